package requestlog

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

func TestRedact(t *testing.T) {
	long := strings.Repeat("ä", stringMax)
	for name, x := range map[string]struct{ body, want string }{
		"nothing":              {"", ""},
		"spaces":               {" \n", ""},
		"no JSON":              {"a=b&c=d", ""},
		"broken off":           {`{"a":`, ""},
		"two values":           {`{} {}`, ""},
		"compact":              {"\ufeff{ \"a\" : [ 1, null , true ] }\n", `{"a":[1,null,true]}`},
		"attachments":          {`{"attachments":[{"filename":"a","content":"YQ=="}]}`, `{"attachments":[{"filename":"a","content":"[redacted]"}]}`},
		"a Buffer":             {`{"attachments":[{"content":{"type":"Buffer","data":[1,2]}}]}`, `{"attachments":[{"content":"[redacted]"}]}`},
		"in a batch":           {`[{"attachments":[{"content":[1,2]}]}]`, `[{"attachments":[{"content":"[redacted]"}]}]`},
		"content elsewhere":    {`{"content":"shown","a":{"content":1}}`, `{"content":"shown","a":{"content":1}}`},
		"secrets at depth":     {`{"a":[{"signing_secret":"x","Token":"y","API-Key":1}]}`, `{"a":[{"signing_secret":"[redacted]","Token":"[redacted]","API-Key":"[redacted]"}]}`},
		"no secret":            {`{"token":null}`, `{"token":null}`},
		"an object as secret":  {`{"secret":{"a":"b"}}`, `{"secret":"[redacted]"}`},
		"escaped name":         {`{"to\u006ben":"x"}`, `{"to\u006ben":"[redacted]"}`},
		"long name":            {`{"` + strings.Repeat("n", 300) + `token":"x"}`, `{"` + strings.Repeat("n", 300) + `token":"[redacted]"}`},
		"name that is cut":     {`{"` + strings.Repeat("n", 2*stringMax) + `token":"x"}`, `{"` + strings.Repeat("n", stringMax) + `… [16389 more bytes]":"[redacted]"}`},
		"headers":              {`{"headers":{"Authorization":"Bearer x","X-Auth-Token":"y","X-A":"z"}}`, `{"headers":{"Authorization":"[redacted]","X-Auth-Token":"[redacted]","X-A":"z"}}`},
		"twice the same name":  {`{"token":"a","token":"b"}`, `{"token":"[redacted]","token":"[redacted]"}`},
		"no UTF-8":             {"{\"a\":\"\xff\"}", `{"a":"�"}`},
		"a long string is cut": {`{"html":"` + long + `","b":1}`, `{"html":"` + long[:stringMax] + `… [16384 more bytes]","b":1}`},
		"a long list":          {`[` + strings.Repeat(`"abc",`, 20_000) + `1]`, `{"omitted":"The body had 120003 bytes, which is more than the log keeps."}`},
	} {
		if got := Redact([]byte(x.body), stringMax); got != x.want {
			t.Errorf("%s:\n%.200s\nwant\n%.200s", name, got, x.want)
		}
	}
	if got := Redact([]byte(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), stringMax); len(got) != 18_000 {
		t.Errorf("deep lists: %.100s", got)
	}
}

func FuzzRedact(f *testing.F) {
	for _, seed := range []string{`{"attachments":[{"content":"YQ=="}],"token":"s3cr3t"}`, `[{"a":{"secret":["s3cr3t"]}}]`, `{"password":"s3cr3t","a":"\ud800"}`,
		`{`, `{"a":"\u00e4"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Redact(body, stringMax)
		if got == "" {
			return
		}
		if !jsontext.Value(got).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%q is not JSON that a database takes", got)
		}
		if len(got) > 2*(bodyMax+stringMax)+100 {
			t.Errorf("%d bytes are left", len(got))
		}
		if again := Redact([]byte(got), stringMax); again != got && len(got) < stringMax {
			t.Errorf("a second time:\n%q\n%q", got, again)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	body := []byte(`{"from":"Acme <hello@example.org>","to":["you@example.net"],"subject":"Hello","html":"` +
		strings.Repeat(`<p class=\"x\">Some text of an email, with its tags.</p>\n`, 10_000/58) + `","tags":[{"name":"kind","value":"bench"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if Redact(body, briefMax) == "" {
			b.Fatal("it is not JSON")
		}
	}
}
