package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

type bodyIn struct {
	Text   string                  `json:"text"`
	Number int                     `json:"number"`
	Float  float64                 `json:"float"`
	Flag   *bool                   `json:"flag"`
	To     texts[maxRecipients]    `json:"to"`
	Opt    opt[string]             `json:"opt"`
	File   content                 `json:"file"`
	Fields fields                  `json:"headers"`
	Nested many[nestedIn, maxTags] `json:"nested"`
}

type nestedIn struct {
	Tag struct {
		Name string `json:"name"`
	} `json:"tag"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		want       bodyIn
	}{
		{"nothing", "", bodyIn{}},
		{"white space", " \r\n\t                         ", bodyIn{}},
		{"an empty object", "{}", bodyIn{}},
		{"null", "null", bodyIn{}},
		{"nulls", `{"text":null,"number":null,"flag":null,"to":null,"file":null,"headers":null,"nested":null}`, bodyIn{}},
		{"a byte order mark", "\ufeff{\"text\":\"x\"}", bodyIn{Text: "x"}},
		{"unknown members", `{"what":{"ever":[1,2]},"text":"x"}`, bodyIn{Text: "x"}},
		{"the last of two wins", `{"text":"x","text":"y"}`, bodyIn{Text: "y"}},
		{"names have a case", `{"Text":"x","TEXT":"y"}`, bodyIn{}},
		{"bytes that are no UTF-8", "{\"text\":\"a\xffb\"}", bodyIn{Text: "a\ufffdb"}},
		{"half a surrogate pair", `{"text":"a\ud800b"}`, bodyIn{Text: "a\ufffdb"}},
		{"a whole one", `{"text":"\ud83d\ude00"}`, bodyIn{Text: "😀"}},
		{"one text", `{"to":"a"}`, bodyIn{To: texts[maxRecipients]{"a"}}},
		{"an empty text", `{"to":""}`, bodyIn{}},
		{"texts", `{"to":["a","b"]}`, bodyIn{To: texts[maxRecipients]{"a", "b"}}},
		{"optional null", `{"opt":null}`, bodyIn{Opt: opt[string]{given: true}}},
		{"optional value", `{"opt":"x"}`, bodyIn{Opt: opt[string]{given: true, value: new("x")}}},
		{"base64", `{"file":"aGk="}`, bodyIn{File: content{true, []byte("hi")}}},
		{"base64 without padding", `{"file":"aGk"}`, bodyIn{File: content{true, []byte("hi")}}},
		{"base64 for URLs", `{"file":"_-8="}`, bodyIn{File: content{true, []byte{0xff, 0xef}}}},
		{"base64 in lines", `{"file":"aG\r\nk="}`, bodyIn{File: content{true, []byte("hi")}}},
		{"a data URL", `{"file":"data:text/plain;base64,aGk="}`, bodyIn{File: content{true, []byte("hi")}}},
		{"an empty file", `{"file":""}`, bodyIn{File: content{true, []byte{}}}},
		{"bytes", `{"file":[104,105]}`, bodyIn{File: content{true, []byte("hi")}}},
		{"a buffer", `{"file":{"type":"Buffer","data":[104,105]}}`, bodyIn{File: content{true, []byte("hi")}}},
		{"header fields in order", `{"headers":{"B":"1","A":2,"C":true,"D":null}}`,
			bodyIn{Fields: fields{{Name: "B", Value: "1"},
				{Name: "A", Value: "2"}, {Name: "C", Value: "true"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got bodyIn
			err := decode([]byte(c.body), "application/json", &got)
			if diff := gocmp.Diff(c.want, got, gocmp.AllowUnexported(content{}, opt[string]{})); err != nil || diff != "" {
				t.Errorf("error %v, difference %s", err, diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body    string
		kind    fault.Kind
		field   string
		message string
	}{
		{`{`, fault.Malformed, "", "The request body is not valid JSON: it ends too early."},
		{`{"text":"x`, fault.Malformed, "", "The request body is not valid JSON: it ends too early."},
		{`{"text":"x"]`, fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte 11."},
		{`{"text":"\x"}`, fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte 9."},
		{"{\"text\":\"\x00\"}", fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte 9."},
		{`{'text':1}`, fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte 1."},
		{`{"x":` + strings.Repeat("[", 20_000), fault.Malformed, "", ""},
		{`true`, fault.Invalid, "", "The request body must be an object, not true or false."},
		{`{"text":1}`, fault.Invalid, "text", "The `text` field must be a string, not a number."},
		{`{"number":"1"}`, fault.Invalid, "number", "The `number` field must be a number, not a string."},
		{`{"number":1.5}`, fault.Invalid, "number", "The `number` field must be a whole number within its range."},
		{`{"number":1e99}`, fault.Invalid, "number", "The `number` field must be a whole number within its range."},
		{`{"flag":"yes"}`, fault.Invalid, "flag", "The `flag` field must be true or false, not a string."},
		{`{"to":{}}`, fault.Invalid, "to", "The `to` field must be a string or an array of strings, not an object."},
		{`{"to":["a","b",null,4]}`, fault.Invalid, "to[3]", "The `to[3]` field must be a string, not a number."},
		{`{"opt":1}`, fault.Invalid, "opt", "The `opt` field must be a string, not a number."},
		{`{"nested":[{"tag":{"name":"x"}},{"tag":{"name":[]}}]}`, fault.Invalid, "nested[1].tag.name",
			"The `nested[1].tag.name` field must be a string, not an array."},
		{`{"nested":{}}`, fault.Invalid, "nested", "The `nested` field must be an array, not an object."},
		{`{"file":true}`, fault.BadAttachment, "file", "The `file` field must be base64 text, a Buffer or a list of bytes."},
		{`{"file":"?"}`, fault.BadAttachment, "file", "The `file` field is not valid base64."},
		{`{"file":[1,256]}`, fault.BadAttachment, "file[1]", "The `file[1]` field must be a byte from 0 to 255."},
		{`{"file":[1.5]}`, fault.BadAttachment, "file[0]", "The `file[0]` field must be a byte from 0 to 255."},
		{`{"file":["x"]}`, fault.Invalid, "file[0]", "The `file[0]` field must be a number, not a string."},
		{`{"headers":[]}`, fault.Invalid, "headers", "The `headers` field must be an object of strings."},
		{`{"headers":{"A":[]}}`, fault.Invalid, "headers.A", "The value of a header must be a string (`headers.A`)."},
		{`{"text":"a\u0000b"}`, fault.Invalid, "", `The request body has the character \u0000, which text cannot have.`},
	} {
		t.Run(c.body[:min(len(c.body), 40)], func(t *testing.T) {
			t.Parallel()
			var in bodyIn
			e, ok := errors.AsType[*fault.Error](decode([]byte(c.body), "", &in))
			if !ok || e.Kind != c.kind || e.Field != c.field || c.message != "" && e.Message != c.message {
				t.Errorf("%+v\nwant kind %d, field %q, %q", e, c.kind, c.field, c.message)
			}
		})
	}
}

func TestHasNUL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{`"a"`: false, `"\u0000"`: true, `"\\u0000"`: false, `"\\\u0000"`: true,
		`"\\\\u0000"`:      false,
		`"\\u0000 \u0000"`: true, `"\u0001"`: false, `"u0000"`: false} {
		if hasNUL([]byte(text)) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func TestTimesOnTheWire(t *testing.T) {
	t.Parallel()
	at := time.Date(2023, 10, 6, 23, 47, 56, 678_000_000, time.FixedZone("", 3600))
	got, err := json.Marshal([]any{dbTime(at), dbTime(at.Add(162*time.Microsecond + 999)),
		dbTime(at.Truncate(time.Second)), dbTime{},
		isoTime(at), isoTime(at.Truncate(time.Second))})
	want := `["2023-10-06 22:47:56.678+00","2023-10-06 22:47:56.678162+00","2023-10-06 22:47:56+00",null,` +
		`"2023-10-06T22:47:56.678Z","2023-10-06T22:47:56.000Z"]`
	if err != nil || string(got) != want {
		t.Errorf("%s, error %v, want %s", got, err, want)
	}
}

// Whatever a body is, it is read or refused with a fault.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[{}]`, `{"to":["a",1]}`, `{"text":"\ud800\u0000"}`,
		"\ufeff{\"a\":1e400}", `{"file":{"data":{"data":"x"}}}`,
		`{"headers":{"a":1,"a":null}}`, `{"nested":[{"tag":null}]}`, `{"opt":null,"opt":"x"}`, `{"text":`,
		`{"a":"\\u0000"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, in := range []any{&bodyIn{}, &sendEmailIn{}, &batchIn{}, &createDomainIn{}, &removeSuppressionsIn{}} {
			err := decode(body, "application/json", in)
			if _, ok := errors.AsType[*fault.Error](err); err != nil && !ok {
				t.Errorf("%T: %v", in, err)
			}
			if err != nil && err.Error() == "" {
				t.Errorf("%T: no message", in)
			}
		}
	})
}

// Whatever a request is, it is not answered as a failure of ours.
func FuzzRequest(f *testing.F) {
	a := newFixture(f, dbtest.SQLite(f), Options{BodyMax: 1 << 20})
	a.verified("example.org")
	seeds := []string{"GET /emails?limit=1", "GET /emails/metrics?start_date=2026-01-01&dimensions=period,domain",
		"GET /suppressions/a%40b?x=%zz",
		"POST /domains {\"name\":\"xn--a.example\"}",
		"PATCH /emails/0199aaaa-0000-7000-8000-000000000000 {\"scheduled_at\":\"tomorrow\"}",
		`POST /emails {"from":"a@example.org","to":"b@example.net","subject":"s","text":"t","headers":{"X-A":"1"},"tags":[{"name":"a","value":"b"}]}`,
		`POST /emails/batch [{"from":"a@example.org","to":"b@example.net","subject":"s","html":"<p>"}]`,
		"DELETE /suppressions/%C3%A9@example.org",
		`POST /suppressions/batch/add {"emails":["a@b.c","A@B.C"]}`, `POST /api-keys {"name":"x","permission":"full_access"}`}
	for _, s := range seeds {
		head, body, _ := strings.Cut(s, " {")
		if strings.Contains(s, " [") {
			head, body, _ = strings.Cut(s, " [")
			body = "[" + body
		} else if body != "" {
			body = "{" + body
		}
		method, target, _ := strings.Cut(head, " ")
		f.Add(method, target, body)
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://postrider.test/", strings.NewReader(body))
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil || !strings.HasPrefix(r.URL.Path, "/") {
			return
		}
		r.Header.Set("Authorization", "Bearer "+a.keys["full"])
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %q %q: %d %s\n%s", method, target, body, w.Code, w.Body, a.log)
		}
		a.log.Take()
		if ct := w.Header().Get("Content-Type"); !strings.HasPrefix(ct, "application/json") && target != "/docs" &&
			w.Code != 200 {
			t.Errorf("%s %q: Content-Type %q", method, target, ct)
		}
	})
}
