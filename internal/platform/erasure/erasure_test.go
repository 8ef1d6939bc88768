package erasure

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestReplace(t *testing.T) {
	a, err := Parse("Jo <Jo.Doe@Example.com>")
	if err != nil || a.Key() != "jo.doe@example.com" {
		t.Fatalf("%q, %v", a.Key(), err)
	}
	const p = Placeholder
	texts := map[string]string{
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
		"“Jo.Doe@example.com”":                   "“" + p + "”",
		"üjo.doe@example.com":                    "üjo.doe@example.com",
		"jo.doe@example.comü":                    "jo.doe@example.comü",
		`"Jo \u003cJo.Doe@example.com\u003e"`:    `"Jo \u003c` + p + `\u003e"`,
		`"to:\njo.doe@example.com\n"`:            `"to:\n` + p + `\n"`,
		`"\u004Ao.doe@example.com"`:              `"` + p + `"`,
		`"\u0078jo.doe@example.com"`:             `"\u0078jo.doe@example.com"`,
		`"\\njo.doe@example.com"`:                `"\\njo.doe@example.com"`,

		// percent-encoding (RFC 3986 section 2.1)
		"https://a.example/?to=Jo.Doe%40example.com&x": "https://a.example/?to=" + p + "&x",
		"?q=to%3Djo%2Edoe%40example.com%26x":           "?q=to%3D" + p + "%26x",
		"?to=%6ao.doe%40ex%61mple.com":                 "?to=" + p,
		"?to=a%2Bjo.doe%40example.com":                 "?to=a%2Bjo.doe%40example.com",
		"?to=jo.doe%40example.com%2Eau":                "?to=jo.doe%40example.com%2Eau",
		"?to=jo.doe%40example.com%C3%BC":               "?to=jo.doe%40example.com%C3%BC",

		// file names
		"jo.doe@example.com.csv":                   p + ".csv",
		"contacts-jo.doe@example.com.csv":          "contacts-" + p + ".csv",
		`"filename":"2026_Jo.Doe@example.com.TXT"`: `"filename":"2026_` + p + `.TXT"`,
		"xjo.doe@example.com.csv":                  "xjo.doe@example.com.csv",
		"jo.doe@example.com.csv.au":                "jo.doe@example.com.csv.au",
		"jo.doe@example.com.csvx":                  "jo.doe@example.com.csvx",
	}
	for text, want := range texts {
		if got := a.Replace(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if a.In(text) != (text != want) {
			t.Errorf("%q names it: %v", text, a.In(text))
		}
	}
	selectsAll(t, a, slices.Collect(maps.Keys(texts)))
	for text, want := range map[string]bool{"jo.doe@example.com": true, "Jo <JO.doe@example.com>": true,
		"doe@example.com": false, "": false} {
		if a.Is(text) != want {
			t.Errorf("%q is it: %v", text, !want)
		}
	}
	u, err := Parse("a_b%c@x.example")
	if err != nil || u.Pattern() != `%a\_b%c%x.example%` || u.Like() != `a\_b\%c@x.example` {
		t.Errorf("the patterns are %q and %q, %v", u.Pattern(), u.Like(), err)
	}
	_, err = Parse("nobody")
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Field != "address" {
		t.Errorf("what is no address: %v", err)
	}
}

// Non-ASCII letters in an address match in upper and lower case, with or without JSON escapes, and never match ASCII
// letters. A domain in ASCII matches its Unicode form.
func TestUnicode(t *testing.T) {
	a, err := Parse("ÄÖ.ilga𐐀@München.Example")
	if err != nil || a.Key() != "äö.ilga𐐨@xn--mnchen-3ya.example" {
		t.Fatalf("%q, %v", a.Key(), err)
	}
	if a.Pattern() != "%%%._lga%%%.example%" || a.Like() != "%%._lga%@xn--mnchen-3ya.example" {
		t.Errorf("the patterns are %q and %q", a.Pattern(), a.Like())
	}
	const p = Placeholder
	texts := map[string]string{
		"äö.ilga𐐨@xn--mnchen-3ya.example":                      p,
		"x ÄÖ.ILGA𐐀@MÜNCHEN.EXAMPLE x":                         "x " + p + " x",
		`"\u00c4\u00D6.ilga\uD801\uDC00@m\u00fcnchen.example"`: `"` + p + `"`,
		`\u00c4\u00d6.ilga𐐀@xn--mnchen-3ya.example\u00fc`:      `\u00c4\u00d6.ilga𐐀@xn--mnchen-3ya.example\u00fc`,
		"aäö.ilga𐐨@münchen.example":                            "aäö.ilga𐐨@münchen.example",
	}
	for text, want := range texts {
		if got := a.Replace(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"%C3%A4%C3%96.ilga%F0%90%90%80%40m%C3%BCnchen.example",
		"%c3%a4ö.ilga𐐨%40xn--mnchen-3ya.example"} {
		if got := a.Replace("?to=" + text + "&x"); got != "?to="+p+"&x" {
			t.Errorf("%q became %q", text, got)
		}
		texts[text] = p
	}
	selectsAll(t, a, slices.Collect(maps.Keys(texts)))
	got := a.Spellings([]string{"ÄÖ.ilga𐐀@münchen.example", a.Key(), "ao.ilga𐐨@münchen.example", a.Key()})
	if len(got) != 2 {
		t.Errorf("spellings %q", got)
	}
	k, err := Parse("kim@x.example")
	if err != nil || k.Is("\u212aim@x.example") || k.In("\u212aim@x.example") || !k.Is("KIM@x.example") {
		t.Errorf("the Kelvin sign is a k: %v", err)
	}
}

// selectsAll checks that MayContain selects each text that contains the address, in both engines.
func selectsAll(t *testing.T, a Address, texts []string) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, text := range texts {
			if !a.In(text) {
				continue
			}
			var n int
			err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM (SELECT CAST($1 AS TEXT) AS one) x WHERE `+MayContain(2, "one"),
				text, a.Pattern()).Scan(&n)
			if err != nil || n != 1 {
				t.Errorf("%q is not selected: %v", text, err)
			}
		}
	})
}

func FuzzReplace(f *testing.F) {
	f.Add("to A@b.example, xa@b.example \xff a@b.example")
	f.Add(`\u003ca@b.example\n\\na@b.example\ud801a@b.exampl\u0065`)
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
