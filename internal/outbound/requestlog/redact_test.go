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
		"nothing":    {"", ""},
		"spaces":     {" \n", ""},
		"no JSON":    {"a=b&c=d", ""},
		"broken off": {`{"a":`, ""},
		"two values": {`{} {}`, ""},
		"compact":    {"\ufeff{ \"a\" : [ 1, null , true ] }\n", `{"a":[1,null,true]}`},
		"attachments": {`{"attachments":[{"filename":"a","content":"YQ=="}]}`,
			`{"attachments":[{"filename":"a","content":"[redacted]"}]}`},
		"a Buffer": {`{"attachments":[{"content":{"type":"Buffer","data":[1,2]}}]}`,
			`{"attachments":[{"content":"[redacted]"}]}`},
		"in a batch":        {`[{"attachments":[{"content":[1,2]}]}]`, `[{"attachments":[{"content":"[redacted]"}]}]`},
		"content elsewhere": {`{"content":"shown","a":{"content":1}}`, `{"content":"shown","a":{"content":1}}`},
		"secrets at depth": {`{"a":[{"signing_secret":"x","Token":"y","API-Key":1}]}`,
			`{"a":[{"signing_secret":"[redacted]","Token":"[redacted]","API-Key":"[redacted]"}]}`},
		"no secret":           {`{"token":null}`, `{"token":null}`},
		"an object as secret": {`{"secret":{"a":"b"}}`, `{"secret":"[redacted]"}`},
		"escaped name":        {`{"to\u006ben":"x"}`, `{"to\u006ben":"[redacted]"}`},
		"long name": {`{"` + strings.Repeat("n", 300) + `token":"x"}`, `{"` + strings.Repeat("n", 300) +
			`token":"[redacted]"}`},
		"name that is cut": {`{"` + strings.Repeat("n", 2*stringMax) + `token":"x"}`, `{"` +
			strings.Repeat("n", stringMax) + `… [16389 more bytes]":"[redacted]"}`},
		"headers": {`{"headers":{"Authorization":"Bearer x","X-Auth-Token":"y","X-A":"z"}}`,
			`{"headers":{"Authorization":"[redacted]","X-Auth-Token":"[redacted]","X-A":"z"}}`},
		"a link": {`{"url":"https://m.example/shared?token=x","raw":{"download_url":"https://m.example/?token=y"}}`,
			`{"url":"https://m.example/shared?token=[redacted]","raw":{"download_url":"https://m.example/?token=[redacted]"}}`},
		"a key as a name": {`{"re_12345678_abc":"re_12345678_abc"}`,
			`{"re_12345678_[redacted]":"re_12345678_[redacted]"}`},
		"twice the same name": {`{"token":"a","token":"b"}`, `{"token":"[redacted]","token":"[redacted]"}`},
		"no UTF-8":            {"{\"a\":\"\xff\"}", `{"a":"�"}`},
		"a long string is cut": {`{"html":"` + long + `","b":1}`, `{"html":"` + long[:stringMax] +
			`… [16384 more bytes]","b":1}`},
		"a long list": {`[` + strings.Repeat(`"abc",`, 20_000) + `1]`,
			`{"omitted":"The body had 120003 bytes, which is more than the log keeps."}`},
	} {
		if got := Redact([]byte(x.body), stringMax); got != x.want {
			t.Errorf("%s:\n%.200s\nwant\n%.200s", name, got, x.want)
		}
	}
	if got := Redact([]byte(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), stringMax); len(got) != 18_000 {
		t.Errorf("deep lists: %.100s", got)
	}
}

// The log stores no usable credential, whatever the name of its JSON member and however it is escaped.
func TestMaskSecrets(t *testing.T) {
	token := strings.Repeat("aB3-_", 10)
	for text, want := range map[string]string{
		"":       "",
		"a text": "a text",
		"https://m.example/shared?token=" + token:                "https://m.example/shared?token=[redacted]",
		"https://m.example/shared?a=b&token=x&c=d#e":             "https://m.example/shared?a=b&token=[redacted]&c=d#e",
		`https:\/\/m.example\/shared?a=1\u0026token=x\u0026b=2`:  `https:\/\/m.example\/shared?a=1\u0026token=[redacted]\u0026b=2`,
		`<a href=\"https://m.example/?a=1&amp;token=x+y\">z</a>`: `<a href=\"https://m.example/?a=1&amp;token=[redacted]\">z</a>`,
		`?token=ab\u002bcd\/ef more`:                             "?token=[redacted] more",
		"https://m.example/download/" + token:                    "https://m.example/download/[redacted]",
		`https:\/\/m.example\/download\/raw\/` + token + `","`:   `https:\/\/m.example\/download\/raw\/[redacted]","`,
		"/download/received/" + token + "?a":                     "/download/received/[redacted]?a",
		"/download/guide and /download/received":                 "/download/guide and /download/received",
		"/download/" + token[:30] + "… [20 more bytes]":          "/download/[redacted]… [20 more bytes]",
		"key re_12345678_" + token[:3] + "xyz!":                  "key re_12345678_[redacted]!",
		"/api-keys/re_12345678_ABCdefGHI":                        "/api-keys/re_12345678_[redacted]",
		"more_12345678_x, pre_12345678_x, re_1234_5678_x":        "more_12345678_x, pre_12345678_x, re_1234_5678_x",
		`whsec_ab+/cd\/e== and whsec_`:                           "whsec_[redacted] and whsec_",
		"https://user:pass@host.example/p@th":                    "https://[redacted]@host.example/p@th",
		`https:\/\/user@host.example\/`:                          `https:\/\/[redacted]@host.example\/`,
		"write to https://host.example or a@b.example":           "write to https://host.example or a@b.example",
		"mailto:a@b.example, 12:30":                              "mailto:a@b.example, 12:30",
		"https://b.s3.example/f?X-Amz-Signature=1f&X-Amz-Security-Token=x&X-Amz-Date=2": "https://b.s3.example/f?" +
			"X-Amz-Signature=[redacted]&" +
			"X-Amz-Security-Token=[redacted]&X-Amz-Date=2",
		"https://a.blob.example/f?sv=1&sig=x%3D": "https://a.blob.example/f?sv=1&sig=[redacted]",
		"?design=1&token&token=&x=token=2":       "?design=1&token&token=&x=token=2",
		"class=x token=y":                        "class=x token=y",
		`\`:                                      `\`,
		`://\`:                                   `://\`,
		`?token=a\u00`:                           `?token=[redacted]\u00`,
	} {
		if got := MaskSecrets(text); got != want {
			t.Errorf("%s\nbecomes %s\nand not %s", text, got, want)
		}
		if again := MaskSecrets(MaskSecrets(text)); again != MaskSecrets(text) {
			t.Errorf("%s\nbecomes %s\nand then %s", text, MaskSecrets(text), again)
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, seed := range []string{`{"attachments":[{"content":"YQ=="}],"token":"s3cr3t"}`, `[{"a":{"secret":["s3cr3t"]}}]`,
		`{"password":"s3cr3t","a":"\ud800"}`,
		`{`, `{"a":"\u00e4"}`, `{"url":"https://u:p@m.example/?token=\u0026sig=x re_12345678_s3cr3t whsec_s3cr3t"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Redact(body, stringMax)
		if got == "" {
			return
		}
		if !jsontext.Value(got).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) ||
			!utf8.ValidString(got) || strings.ContainsRune(got, 0) {
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
		strings.Repeat(`<p class=\"x\">Some text of an email, with its tags.</p>\n`, 10_000/58) +
		`","tags":[{"name":"kind","value":"bench"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if Redact(body, successMax) == "" {
			b.Fatal("it is not JSON")
		}
	}
}

// TestRedactCredentials checks that the queries of URLs and the values of header fields are masked for webhooks and
// automations, even if the JSON escapes their characters.
func TestRedactCredentials(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"url":"https://a.example/hook?key=x&b=1#c"}`:      `{"url":"https://a.example/hook?[redacted]"}`,
		`{"url":"https:\/\/a.example\/\u003fkey=x"}`:        `{"url":"https:\/\/a.example\/\u003f[redacted]"}`,
		`["Posts to http://a.example?k=x, then stops? No"]`: `["Posts to http://a.example?[redacted] then stops? No"]`,
		`{"headers":{"X-Source":"x","N":null,"L":["x"]}}`:   `{"headers":{"X-Source":"[redacted]","N":null,"L":"[redacted]"}}`,
		`{"headers":["https://a.example/"],"event":"a?b"}`:  `{"headers":["https://a.example/"],"event":"a?b"}`,
	} {
		if got := redact([]byte(body), successMax, true); got != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
	}
	if got := HideURL("https://ann:pw@a.example/hook?key=x"); got != "https://[redacted]@a.example/hook?[redacted]" {
		t.Errorf("the URL becomes %s", got)
	}
}
