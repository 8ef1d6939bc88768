package message

import (
	"slices"
	"strings"
	"testing"
)

// Message-IDs are taken up to the longest that a line may hold, with and without brackets.
func TestMessageIDsAreBounded(t *testing.T) {
	longest := strings.Repeat("i", maxLine-len("@acme.example")) + "@acme.example"
	for _, form := range []string{"<", ""} {
		closing := map[string]string{"<": ">", "": ""}[form]
		if got := messageIDs(form + longest + closing); !slices.Equal(got, []string{"<" + longest + ">"}) {
			t.Errorf("%q and the longest id: %d ids", form, len(got))
		}
		if got := messageIDs(form + "i" + longest + closing); got != nil {
			t.Errorf("%q and an id that is too long: %d ids", form, len(got))
		}
	}
}

func TestIsASCII(t *testing.T) {
	for s, want := range map[string]bool{"": true, "a\x7f": true, "\x80": false, "a\xff": false, "é": false} {
		if isASCII(s) != want {
			t.Errorf("%q is not %v", s, want)
		}
	}
}

// What may stand in a message as it is has no line beyond the limit, and ends its lines with CRLF.
func TestCleanText(t *testing.T) {
	longest := strings.Repeat("x", maxLine)
	for text, want := range map[string]bool{
		"": true, "a\r\nb\r\n": true, "a\r\nb": true, longest: true, longest + "\r\n" + longest: true,
		longest + "x": false, "a\r\n" + longest + "x\r\n": false, "a\nb": false, "a\rb": false, "\x00": false, "\x80": false, "\x7f": true,
		"a\r\n--" + boundaryMark: false,
	} {
		if isCleanText([]byte(text)) != want {
			t.Errorf("%.20q... of %d octets is not %v", text, len(text), want)
		}
	}
}

// The content type of an attachment is taken up to the longest that a line may hold.
func TestContentTypesAreBounded(t *testing.T) {
	prefix := "application/"
	longest := prefix + strings.Repeat("n", maxLine-len("Content-Type: ")-len(prefix))
	for _, c := range []struct {
		contentType string
		taken       bool
	}{{longest, true}, {longest + "n", false}} {
		a := Attachment{Filename: "f", ContentType: c.contentType}
		if err := a.Check(); (err == nil) != c.taken {
			t.Errorf("%d octets: %v", len(c.contentType), err)
		}
	}
}
