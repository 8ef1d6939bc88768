package message

import (
	"strings"
	"testing"
)

func TestIsASCII(t *testing.T) {
	for s, want := range map[string]bool{"": true, "a\x7f": true, "\x80": false, "a\xff": false, "é": false} {
		if isASCII(s) != want {
			t.Errorf("%q is not %v", s, want)
		}
	}
}

// In text that is sent unencoded, no line is too long and every line ends with CRLF.
func TestCleanText(t *testing.T) {
	longest := strings.Repeat("x", maxLine)
	for text, want := range map[string]bool{
		"": true, "a\r\nb\r\n": true, "a\r\nb": true, longest: true, longest + "\r\n" + longest: true,
		longest + "x": false, "a\r\n" + longest + "x\r\n": false, "a\nb": false, "a\rb": false, "\x00": false, "\x80": false,
		"\x7f":                   true,
		"a\r\n--" + boundaryMark: false,
	} {
		if isCleanText([]byte(text)) != want {
			t.Errorf("%.20q... of %d bytes is not %v", text, len(text), want)
		}
	}
}

// The content type of an attachment is accepted up to the maximum length that fits on a line.
func TestContentTypesAreBounded(t *testing.T) {
	prefix := "application/"
	longest := prefix + strings.Repeat("n", maxLine-len("Content-Type: ")-len(prefix))
	for _, c := range []struct {
		contentType string
		taken       bool
	}{{longest, true}, {longest + "n", false}} {
		a := Attachment{Filename: "f", ContentType: c.contentType}
		if err := a.Check(); (err == nil) != c.taken {
			t.Errorf("%d bytes: %v", len(c.contentType), err)
		}
	}
}

// The file name, media type and content id of an attachment are accepted up to their maximum lengths.
func TestAttachmentLimits(t *testing.T) {
	pair := func(n int) string { return "x=" + strings.Repeat("v", n-len("x")) } // returns a parameter of n bytes
	long := "a/b; " + pair(495) + "; y="
	for _, c := range []struct {
		name  string
		a     Attachment
		taken bool
	}{
		{"file name", Attachment{Filename: strings.Repeat("n", 1000)}, true},
		{"file name", Attachment{Filename: strings.Repeat("n", 1001)}, false},
		{"file name", Attachment{Filename: "a\rb"}, false},
		{"file name", Attachment{Filename: "a\xff"}, false},
		{"content id", Attachment{ContentID: strings.Repeat("i", 256)}, true},
		{"content id", Attachment{ContentID: strings.Repeat("i", 257)}, false},
		{"content id", Attachment{ContentID: "a\x7f"}, false},
		{"content id", Attachment{ContentID: "a b"}, false},
		{"parameter", Attachment{ContentType: "a/b; " + pair(500)}, true},
		{"parameter", Attachment{ContentType: "a/b; " + pair(501)}, false},
		{"parameter", Attachment{ContentType: "a/b; x*=utf-8''%0D%0ABcc"}, false},
		{"content type", Attachment{ContentType: long + strings.Repeat("v", 1000-len(long))}, true},
		{"content type", Attachment{ContentType: long + strings.Repeat("v", 1001-len(long))}, false},
		{"content type", Attachment{ContentType: "a/b\x00"}, false},
		{"content type", Attachment{ContentType: "a"}, false},
	} {
		if err := c.a.Check(); (err == nil) != c.taken {
			t.Errorf("%s of %d, %d and %d bytes: %v", c.name, len(c.a.Filename), len(c.a.ContentID), len(c.a.ContentType), err)
		}
	}
}
