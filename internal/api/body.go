package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/fault"
)

const (
	bodyMax     = 64 << 20  // a message of 40 MB, its attachments in base64 once more, and some air
	bodiesMax   = 768 << 20 // octets of memory for large bodies and what is made of them, at once
	bodyCost    = 3         // octets of memory for one of a body: as it came, decoded, and on its way to the database
	bodyIsLarge = 256 << 10 // smaller ones are not counted

	bodyWait  = 10 * time.Second // for memory, before the client is asked to come again
	bodyGrace = 15 * time.Second // for a large body, and bodyPace on top of it
	bodyPace  = 256 << 10        // octets a second
)

// read reads the body within its limit. Large bodies wait until there is memory for them, which they keep until done is called,
// and must come at a pace, so that nobody keeps that memory by sending slowly.
func (a *API) read(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	done = func() {}
	n := r.ContentLength
	switch {
	case n == 0 || r.Body == nil:
		return nil, done, nil
	case n > a.BodyMax:
		return nil, done, a.tooLarge()
	}
	src := http.MaxBytesReader(w, r.Body, a.BodyMax)
	if n > 0 && n <= bodyIsLarge {
		body = make([]byte, n)
		_, err = io.ReadFull(src, body)
		return body, done, a.brokenBody(err)
	}
	if n < 0 {
		// Of a body in chunks the length is not known: it counts as large once it is.
		body, err = io.ReadAll(io.LimitReader(src, bodyIsLarge))
		if err != nil || len(body) < bodyIsLarge {
			return body, done, a.brokenBody(err)
		}
		n = a.BodyMax
	}
	wait, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	if err := a.bodies.Acquire(wait, n*bodyCost); err != nil {
		return nil, done, fault.New(fault.Unavailable, "", "Too many large requests are being carried out. Try again in a moment.").Because(err)
	}
	body, err = readLarge(w, src, body, n, r.ContentLength > 0)
	return body, func() { a.bodies.Release(n * bodyCost) }, a.brokenBody(err)
}

// readLarge reads the rest of a body of at most n octets, exactly so many when the length is known.
func readLarge(w http.ResponseWriter, src io.Reader, head []byte, n int64, exact bool) ([]byte, error) {
	// A writer without deadlines, as in tests, is read without.
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyGrace+time.Duration(n/bodyPace)*time.Second)) == nil {
		defer rc.SetReadDeadline(time.Time{})
	}
	if exact {
		body := make([]byte, n)
		_, err := io.ReadFull(src, body)
		return body, err
	}
	b := bytes.NewBuffer(head)
	_, err := b.ReadFrom(src)
	return b.Bytes(), err
}

func (a *API) brokenBody(err error) error {
	if err == nil {
		return nil
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return a.tooLarge()
	}
	return fault.New(fault.Malformed, "", "The request body could not be read to its end: it broke off or came too slowly.").Because(err)
}

func (a *API) tooLarge() error {
	return fault.Invalidf("", "The request body is larger than %d bytes. Link to large files instead of attaching them.", a.BodyMax)
}

// lenient reads JSON as clients send it: what they repeat or misspell is not an error, unknown members are ignored, and null
// is absent.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decode reads a body. An empty one is the same as {}.
func decode(body []byte, contentType string, in any) error {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return nil
	}
	err := json.Unmarshal(body, in, lenient)
	switch {
	case err != nil:
		return badBody(err, contentType)
	case hasNUL(body):
		return fault.Invalidf("", `The request body has the character \u0000, which text cannot have.`)
	}
	return nil
}

// hasNUL reports whether a JSON text has an escaped NUL, which PostgreSQL stores in no text. It cannot stand there as it is.
func hasNUL(body []byte) bool {
	for rest := body; ; {
		i := bytes.Index(rest, []byte(`\u0000`))
		if i < 0 {
			return false
		}
		slashes := 1
		for i-slashes >= 0 && rest[i-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 1 {
			return true
		}
		rest = rest[i+1:]
	}
}

// badBody says what is wrong with a body, in the words of who wrote it.
func badBody(err error, contentType string) error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok && e.JSONKind != 0 {
		field, want := fieldName(e.JSONPointer), typeName(e.GoType)
		if field == "" {
			return fault.Invalidf("", "The request body must be %s, not %s.", want, kindName(e.JSONKind)).Because(err)
		}
		if want == kindName(e.JSONKind) {
			return fault.Invalidf(field, "The `%s` field must be a whole number within its range.", field).Because(err)
		}
		return fault.Invalidf(field, "The `%s` field must be %s, not %s.", field, want, kindName(e.JSONKind)).Because(err)
	}
	if media, _, _ := mime.ParseMediaType(contentType); media != "" && media != "application/json" && !strings.HasSuffix(media, "+json") {
		return fault.New(fault.Malformed, "", "The request body must be JSON, with the header `Content-Type: application/json`, not %s.",
			media).Because(err)
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte %d.", e.ByteOffset).Because(err)
	}
	return fault.New(fault.Malformed, "", "The request body is not valid JSON: it ends too early.").Because(err)
}

// pointerMax is how many octets of a pointer are shown: the names in it are the caller's, and may be as long as the body.
const pointerMax = 300

// fieldName is a JSON pointer as people write it: /to/2 is to[2].
func fieldName(p jsontext.Pointer) string {
	pointer := string(p)
	if len(pointer) > pointerMax {
		pointer = strings.ToValidUTF8(pointer[:pointerMax], "") + "…"
	}
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	return b.String()
}

func typeName(t reflect.Type) string {
	if t == nil {
		return "of another type"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "a number"
	}
	return "of another type"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "what was sent"
}
