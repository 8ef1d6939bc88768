package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
)

// ten is a Limit of 10 elements.
type ten struct{}

func (ten) Max() int { return 10 }

type bodyIn struct {
	Text   string               `json:"text"`
	Number int                  `json:"number"`
	Float  float64              `json:"float"`
	Flag   *bool                `json:"flag"`
	To     Strings[ten]         `json:"to"`
	Opt    Optional[string]     `json:"opt"`
	File   FileContent          `json:"file"`
	Nested Array[nestedIn, ten] `json:"nested"`
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
		{"nulls", `{"text":null,"number":null,"flag":null,"to":null,"file":null,"nested":null}`, bodyIn{}},
		{"a byte order mark", "\ufeff{\"text\":\"x\"}", bodyIn{Text: "x"}},
		{"unknown members", `{"what":{"ever":[1,2]},"text":"x"}`, bodyIn{Text: "x"}},
		{"the last of two wins", `{"text":"x","text":"y"}`, bodyIn{Text: "y"}},
		{"names have a case", `{"Text":"x","TEXT":"y"}`, bodyIn{}},
		{"bytes that are no UTF-8", "{\"text\":\"a\xffb\"}", bodyIn{Text: "a\ufffdb"}},
		{"half a surrogate pair", `{"text":"a\ud800b"}`, bodyIn{Text: "a\ufffdb"}},
		{"a whole one", `{"text":"\ud83d\ude00"}`, bodyIn{Text: "😀"}},
		{"one text", `{"to":"a"}`, bodyIn{To: Strings[ten]{"a"}}},
		{"an empty text", `{"to":""}`, bodyIn{}},
		{"texts", `{"to":["a","b"]}`, bodyIn{To: Strings[ten]{"a", "b"}}},
		{"optional null", `{"opt":null}`, bodyIn{Opt: Optional[string]{Given: true}}},
		{"optional value", `{"opt":"x"}`, bodyIn{Opt: Optional[string]{Given: true, Value: new("x")}}},
		{"base64", `{"file":"aGk="}`, bodyIn{File: FileContent{true, []byte("hi")}}},
		{"base64 without padding", `{"file":"aGk"}`, bodyIn{File: FileContent{true, []byte("hi")}}},
		{"base64 for URLs", `{"file":"_-8="}`, bodyIn{File: FileContent{true, []byte{0xff, 0xef}}}},
		{"base64 in lines", `{"file":"aG\r\nk="}`, bodyIn{File: FileContent{true, []byte("hi")}}},
		{"a data URL", `{"file":"data:text/plain;base64,aGk="}`, bodyIn{File: FileContent{true, []byte("hi")}}},
		{"an empty file", `{"file":""}`, bodyIn{File: FileContent{true, []byte{}}}},
		{"bytes", `{"file":[104,105]}`, bodyIn{File: FileContent{true, []byte("hi")}}},
		{"a buffer", `{"file":{"type":"Buffer","data":[104,105]}}`, bodyIn{File: FileContent{true, []byte("hi")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got bodyIn
			err := decode([]byte(c.body), "application/json", &got)
			if diff := gocmp.Diff(c.want, got); err != nil || diff != "" {
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
		`"\\u0000 \u0000"`: true, `"\u0001"`: false, `"u0000"`: false, `"\u000000"`: true, `"0\u00000000"`: true,
		`"000000000000"`: false} {
		for range 4 { // with the escape at each place within four bytes
			if hasNUL([]byte(text)) != want {
				t.Errorf("%s: %v", text, !want)
			}
			text = " " + text
		}
	}
}

func TestTimesOnTheWire(t *testing.T) {
	t.Parallel()
	at := time.Date(2023, 10, 6, 23, 47, 56, 678_000_000, time.FixedZone("", 3600))
	got, err := json.Marshal([]any{DBTime(at), DBTime(at.Add(162*time.Microsecond + 999)),
		DBTime(at.Truncate(time.Second)), DBTime{},
		ISOTime(at), ISOTime(at.Truncate(time.Second))})
	want := `["2023-10-06 22:47:56.678+00","2023-10-06 22:47:56.678162+00","2023-10-06 22:47:56+00",null,` +
		`"2023-10-06T22:47:56.678Z","2023-10-06T22:47:56.000Z"]`
	if err != nil || string(got) != want {
		t.Errorf("%s, error %v, want %s", got, err, want)
	}
}

// Any request body is either decoded or rejected with a fault.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[{}]`, `{"to":["a",1]}`, `{"text":"\ud800\u0000"}`,
		"\ufeff{\"a\":1e400}", `{"file":{"data":{"data":"x"}}}`,
		`{"nested":[{"tag":null}]}`, `{"opt":null,"opt":"x"}`, `{"text":`,
		`{"a":"\\u0000"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, in := range []any{&bodyIn{}, &Array[bodyIn, ten]{}, &Strings[ten]{}} {
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
