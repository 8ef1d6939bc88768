package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/teams"
)

// access says which keys may use an operation.
type access int

const (
	full access = iota // keys with full access
	sending
	open // nobody is asked who they are
)

// op is one operation of the API.
type op struct {
	method, path string
	access       access
	status       int // of success
	tag, summary string
	query        []string // names of query parameters, for the document
	bound
}

// bound is a function of the API with its types forgotten.
type bound struct {
	in, out reflect.Type
	call    func(ctx context.Context, c *Call) (any, error)
}

// none is the request type of operations without input: whatever stands in the body is ignored.
type none struct{}

// Call is one request to an operation.
type Call struct {
	teams.Principal
	Request *http.Request
	Header  http.Header // of the response
	Status  int         // of success; an operation may change it
	body    []byte
}

// endpoint makes an operation of a function.
func endpoint[In, Out any](f func(ctx context.Context, c *Call, in In) (Out, error)) bound {
	return bound{reflect.TypeFor[In](), reflect.TypeFor[Out](), func(ctx context.Context, c *Call) (any, error) {
		var in In
		if _, ignored := any(in).(none); !ignored {
			if err := decode(c.body, &in); err != nil {
				return nil, err
			}
		}
		return f(ctx, c, in)
	}}
}

// serve carries one operation out.
func (a *API) serve(w http.ResponseWriter, r *http.Request, o op) {
	c := &Call{Request: r, Header: w.Header(), Status: o.status}
	if o.access != open {
		var err error
		if c.Principal, err = a.enter(w, r); err != nil {
			a.fail(w, r, err)
			return
		}
		if o.access == full && c.Permission != teams.FullAccess {
			a.fail(w, r, fault.New(fault.Restricted, "", "This API key is restricted to only send emails. Use a key with full access."))
			return
		}
	}
	body, done, err := a.read(w, r)
	defer done()
	if err != nil {
		a.fail(w, r, err)
		return
	}
	c.body = body
	out, err := o.call(r.Context(), c)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answer, err := json.Marshal(out, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		a.fail(w, r, fmt.Errorf("encode the answer: %w", err))
		return
	}
	write(w, c.Status, answer)
}

// read reads the body within its limit. Large bodies wait until there is memory for them.
func (a *API) read(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	done = func() {}
	n := r.ContentLength
	if n == 0 || r.Body == nil {
		return nil, done, nil
	}
	if n > a.BodyMax {
		return nil, done, a.tooLarge()
	}
	if n < 0 {
		n = a.BodyMax // chunked: it may become as large as that
	}
	if n > bodyIsLarge {
		if err := a.bodies.Acquire(r.Context(), n); err != nil {
			return nil, done, err
		}
		done = func() { a.bodies.Release(n) }
	}
	src := http.MaxBytesReader(w, r.Body, a.BodyMax)
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(src, body)
	} else {
		body, err = io.ReadAll(src)
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, done, a.tooLarge()
	}
	if err != nil {
		return nil, done, fault.New(fault.Malformed, "", "The request body ended before its Content-Length.").Because(err)
	}
	return body, done, nil
}

func (a *API) tooLarge() error {
	return fault.Invalidf("", "The request body is larger than %d bytes. Link to large files instead of attaching them.", a.BodyMax)
}

// lenient reads JSON as clients send it: what they repeat or misspell is not an error, unknown members are ignored, and null
// is absent.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decode reads a body. An empty one is the same as {}.
func decode(body []byte, in any) error {
	if len(strings.TrimSpace(string(body[:min(len(body), 16)]))) == 0 {
		return nil
	}
	err := json.Unmarshal(body, in, lenient)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fault.New(fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte %d.", e.ByteOffset).Because(err)
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		field := fieldName(string(e.JSONPointer))
		if field == "" {
			return fault.Invalidf("", "The request body must be %s, not %s.", typeName(e.GoType), kindName(e.JSONKind)).Because(err)
		}
		return fault.Invalidf(field, "The `%s` field must be %s, not %s.", field, typeName(e.GoType), kindName(e.JSONKind)).Because(err)
	}
	return fault.New(fault.Malformed, "", "The request body is not valid JSON: it ends too early.").Because(err)
}

// fieldName is a JSON pointer as people write it: /to/2 is to[2].
func fieldName(pointer string) string {
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

// Param is a segment of the path, decoded: in a path a plus is a plus.
func (c *Call) Param(name string) string {
	raw := chi.URLParam(c.Request, name)
	if text, err := url.PathUnescape(raw); err == nil {
		return text
	}
	return raw
}

// ID is a segment of the path that must be an id.
func (c *Call) ID(name string) (string, error) {
	text := c.Param(name)
	if !id.Valid(text) {
		return "", fault.New(fault.BadID, name, "The `%s` must be a valid UUID.", name)
	}
	return strings.ToLower(text), nil
}

// Page reads the cursor and the limit. With no limit given there is the default; 0 means all.
func (c *Call) Page(deflt int) (page.Page, error) {
	q := c.Request.URL.Query()
	p := page.Page{Limit: deflt, After: strings.ToLower(q.Get("after")), Before: strings.ToLower(q.Get("before"))}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > 100 {
			return p, fault.Invalidf("limit", "The `limit` parameter must be a number from 1 to 100.")
		}
		p.Limit = n
	}
	if p.After != "" && p.Before != "" {
		return p, fault.Invalidf("after", "The `after` and `before` parameters cannot be used together.")
	}
	for name, cursor := range map[string]string{"after": p.After, "before": p.Before} {
		if q.Has(name) && !id.Valid(cursor) {
			return p, fault.Invalidf(name, "The `%s` parameter must be the id of an item: the pagination cursor is invalid.", name)
		}
	}
	return p, nil
}

// Idempotency is the request's key for an operation, with a hash of its body in which the order of members does not count.
func (c *Call) Idempotency(scope string, more ...string) (emails.Idempotency, error) {
	if _, given := c.Request.Header["Idempotency-Key"]; !given {
		return emails.Idempotency{}, nil
	}
	key := c.Request.Header.Get("Idempotency-Key")
	if key == "" || len(key) > 256 {
		return emails.Idempotency{}, fault.New(fault.BadIdempotencyKey, "Idempotency-Key", "The idempotency key must have 1 to 256 characters.")
	}
	canonical := jsontext.Value(append([]byte(nil), c.body...))
	if err := canonical.Canonicalize(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		canonical = c.body
	}
	h := sha256.New()
	h.Write(canonical)
	for _, m := range more {
		h.Write([]byte{0})
		io.WriteString(h, m)
	}
	return emails.Idempotency{Scope: scope, Key: key, Hash: hex.EncodeToString(h.Sum(nil))}, nil
}
