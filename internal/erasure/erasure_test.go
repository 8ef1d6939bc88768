package erasure

import (
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/fault"
)

func TestReplace(t *testing.T) {
	a, err := Parse("Jo <Jo.Doe@Example.com>")
	if err != nil || a.Key() != "jo.doe@example.com" {
		t.Fatalf("%q, %v", a.Key(), err)
	}
	const p = Placeholder
	for text, want := range map[string]string{
		"":                                       "",
		"jo.doe@example.com":                     p,
		"RCPT TO:<JO.Doe@EXAMPLE.com>":           "RCPT TO:<" + p + ">",
		`{"to":["Jo.Doe@example.com"]}`:          `{"to":["` + p + `"]}`,
		"?email=jo.doe@example.com&x":            "?email=" + p + "&x",
		"to jo.doe@example.com.":                 "to " + p + ".",
		"jo.doe@example.com,jo.doe@example.com":  p + "," + p,
		"a.jo.doe@example.com":                   "a.jo.doe@example.com",
		"xjo.doe@example.com":                    "xjo.doe@example.com",
		"jo.doe@example.com.au":                  "jo.doe@example.com.au",
		"jo.doe@example.community":               "jo.doe@example.community",
		"jo.doe@example.com-x.org":               "jo.doe@example.com-x.org",
		"xjo.doe@example.com jo.doe@example.com": "xjo.doe@example.com " + p,
		"Ünü <jo.doe@example.com> ü":             "Ünü <" + p + "> ü",
	} {
		if got := a.Replace(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if a.In(text) != (text != want) {
			t.Errorf("%q names it: %v", text, a.In(text))
		}
	}
	for text, want := range map[string]bool{"jo.doe@example.com": true, "Jo <JO.doe@example.com>": true,
		"doe@example.com": false, "": false} {
		if a.Is(text) != want {
			t.Errorf("%q is it: %v", text, !want)
		}
	}
	u, err := Parse("a_b%c@x.example")
	if err != nil || u.Pattern() != `%a\_b\%c@x.example%` {
		t.Errorf("the pattern is %q, %v", u.Pattern(), err)
	}
	_, err = Parse("nobody")
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Field != "address" {
		t.Errorf("what is no address: %v", err)
	}
}

func FuzzReplace(f *testing.F) {
	f.Add("to A@b.example, xa@b.example \xff a@b.example")
	a, err := Parse("a@b.example")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := a.Replace(text); a.In(got) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
