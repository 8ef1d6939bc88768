package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 1500)
	var items []any
	names := map[string]any{}
	for i := range 100 {
		names[fmt.Sprint("some longer name ", i)] = i
		items = append(items, map[string]any{"id": fmt.Sprint(i), "text": strings.Repeat("x", 100)})
	}
	for _, c := range []struct {
		what  string
		v     any
		whole bool
		note  string
	}{
		{"short value", map[string]any{"a": "<b>"}, true, ""},
		{"a long text", map[string]any{"id": "1", "html": long, "text": long}, true, "2 texts were cut to 500 " +
			"characters."},
		{"a long list", map[string]any{"data": items}, true, "only the first 12 of 100 items"},
		{"many names", names, false, "not complete JSON"},
		{"invisible characters", map[string]any{"a": "a\U000E0041\u200b"}, true, "2 invisible characters"},
	} {
		text, notes := bounded(c.v, 2000)
		if len(text) > 2000 || json.Valid([]byte(text)) != c.whole || !utf8.ValidString(text) ||
			!strings.Contains(strings.Join(notes, " "), c.note) || (c.note == "") != (notes == nil) {
			t.Errorf("%s: %d bytes, %q, %s", c.what, len(text), notes, text)
		}
	}
	if text, _ := bounded(map[string]any{"a": "<b>&"}, 100); text != `{"a":"<b>&"}` {
		t.Error(text)
	}
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"a\tb\nc": "a\tb\nc", "a\x00\x1b[1mb": "a[1mb", "\u202eabc\u2066": "abc",
		"👨\u200d👩": "👨\u200d👩", "soft\u00adhyphen": "softhyphen", "x\U000E0100": "x", "a\ufe00b\ufe0f": "ab",
		"\u3164a\u115f\u1160\uffa0\u034f": "a", "\u180bx\u2028": "x",
		"\ufeffx": "x",
		"naïve":   "naïve"} {
		if got, n := visible(text); got != want || n != len([]rune(text))-len([]rune(want)) {
			t.Errorf("%q: %q, %d", text, got, n)
		}
	}
}

func FuzzBounded(f *testing.F) {
	f.Add(`{"data":[{"id":"1","text":"héllo"}]}`, 300)
	f.Add(`"`+strings.Repeat(`<`, 400)+`"`, 250)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = 200 + most&0xfff
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		if got, _ := bounded(v, most); len(got) > most || !utf8.ValidString(got) {
			t.Errorf("%d bytes, want at most %d: %q", len(got), most, got)
		}
	})
}

func TestRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ op, in, want string }{
		{"GET /emails/{email_id}", `{"email_id":"a/b?c"}`, "GET /emails/a%2Fb%3Fc"},
		{"GET /logs", `{"limit":5,"status":"422","unknown":1}`, "GET /logs?limit=5&status=422"},
		{"PATCH /contacts/{contact}", `{"contact":"a@b.c","first_name":null,"n":1.5}`,
			`PATCH /contacts/a@b.c {"first_name":null,"n":1.5}`},
	} {
		var in arguments
		if err := json.Unmarshal([]byte(c.in), &in); err != nil {
			t.Fatal(err)
		}
		o := request(c.op, in, pages("status")...)
		got := o.method + " " + o.path
		if len(o.query) > 0 {
			got += "?" + o.query.Encode()
		}
		if o.body != nil {
			body, err := encoded(o.body)
			if err != nil {
				t.Fatal(err)
			}
			got += " " + string(body)
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Error(diff)
		}
	}
}
