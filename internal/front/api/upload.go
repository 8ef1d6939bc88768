package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
)

const mediaForm = "multipart/form-data"

// Limits of forms besides the file.
const (
	formMax   = 1 << 20  // octets of all parts but the file, and of what is between the parts
	fieldMax  = 64 << 10 // octets of a field
	partsMax  = 50
	headMax   = 32 << 10 // octets between two parts, with the header of the second
	answerFor = time.Minute
)

// upload makes an operation of a function that reads a form itself, with [API.receive]. In is for the document.
func upload[In, Out any](f func(ctx context.Context, c *Call) (Out, error)) bound {
	return bound{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), form: true,
		call: func(ctx context.Context, c *Call) (any, error) { return f(ctx, c) }}
}

// form is what a client sends as multipart/form-data (RFC 7578).
type form struct {
	fields   map[string]string
	filename string
}

// receive reads a form whose part file has at most size octets. It calls store with the content of that part while it
// arrives, wherever it is among the parts; nothing else is larger than formMax. An error of store that is a fault is
// returned once the client has sent all: clients that send before they read would see a broken connection otherwise.
func (a *API) receive(c *Call, size int64, store func(io.Reader) error) (form, error) {
	began := time.Now()
	r := c.Request
	f := form{fields: map[string]string{}}
	if r.ContentLength > size+formMax {
		return f, tooLargeFile(size)
	}
	b := &formBody{src: paced{r: http.MaxBytesReader(c.w, r.Body, size+formMax), rc: http.NewResponseController(c.w),
		start: began}}
	r.Body = io.NopCloser(b)
	parts, err := r.MultipartReader()
	if err != nil {
		return f, fault.New(fault.Malformed, "", "The request must be multipart/form-data, with the part `file`.").
			Because(err)
	}
	err = f.read(parts, b, store)
	if _, refused := errors.AsType[*fault.Error](err); refused || err == nil {
		b.left = math.MaxInt64
		if _, broken := io.Copy(io.Discard, b); broken != nil && err == nil {
			err = broken
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](b.err); large {
		return f, tooLargeFile(size)
	}
	if b.err != nil {
		return f, a.brokenBody(b.err)
	}
	if err != nil {
		return f, err
	}
	b.src.lift()
	// An answer that comes after minutes has its time all the same.
	rc := http.NewResponseController(c.w)
	if err := rc.SetWriteDeadline(time.Now().Add(answerFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return f, fmt.Errorf("extend the time of the answer: %w", err)
	}
	if time.Since(began) > slowBody {
		return f, a.still(c.w, r, c.scope)
	}
	return f, nil
}

func tooLargeFile(size int64) error {
	return fault.Invalidf("file", "The `file` is larger than %d bytes. Split it, or ask the operator to raise the limit.",
		size)
}

// read reads the parts in the order in which they come.
func (f *form) read(parts *multipart.Reader, b *formBody, store func(io.Reader) error) error {
	stored := false
	for n := 0; ; n++ {
		b.left = headMax
		part, err := parts.NextRawPart()
		if err == io.EOF { // and not an error that has it as its cause: then the last boundary is missing
			break
		}
		if err != nil {
			return fault.New(fault.Malformed, "", "The form cannot be read: it must end with its boundary, and the header of "+
				"each part must be short.").Because(err)
		}
		if n == partsMax {
			return fault.New(fault.Malformed, "", "The form has more than %d parts.", partsMax)
		}
		switch name := part.FormName(); {
		case name == "file" && stored:
			return fault.Invalidf("file", "The form has the part `file` twice. Import one file after another.")
		case name == "file":
			b.left = math.MaxInt64
			f.filename, stored = part.FileName(), true
			from := &partReader{r: part}
			if err := store(from); err != nil && from.err == nil {
				return err
			}
			if from.err != nil {
				return fault.New(fault.Malformed, "", "The form breaks off within the part `file`.").Because(from.err)
			}
		default:
			b.left = fieldMax + headMax
			text, err := io.ReadAll(part)
			if err != nil || len(text) > fieldMax {
				return fault.Invalidf(name, "The `%.50s` field is longer than %d octets, or broke off.", name, fieldMax).
					Because(err)
			}
			if !isText(string(text)) || !isText(name) {
				return fault.Invalidf("", "The fields of the form must be UTF-8 text without NUL characters.")
			}
			f.fields[name] = string(text)
		}
	}
	if !stored {
		return fault.MissingField("file")
	}
	return nil
}

// field decodes the JSON of a field, if the form has it. like is an example for the error.
func (f *form) field(name, like string, to any, options ...json.Options) error {
	text := f.fields[name]
	if text == "" {
		return nil
	}
	err := json.Unmarshal([]byte(text), to, append(options, lenient)...)
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return err
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok && errors.Is(err, json.ErrUnknownName) {
		return fault.Invalidf(name, "The `%s` field has `%s`, which is not known. It must be JSON such as %s.", name,
			fieldName(e.JSONPointer), like).Because(err)
	}
	if err == nil && hasNUL([]byte(text)) {
		err = errors.New("escaped NUL")
	}
	if err != nil {
		return fault.Invalidf(name, "The `%s` field must be JSON such as %s.", name, like).Because(err)
	}
	return nil
}

// partReader reads a part and remembers its error, to distinguish it from one of storing.
type partReader struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (p *partReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	return n, err
}

// formBody is the body of a form. left is how much may be read until it is set anew: package multipart would keep all
// of a long header in memory.
type formBody struct {
	src  paced
	left int64
	err  error // of the connection
}

var errLongPart = errors.New("a part of the form is too long")

// Read implements io.Reader.
func (b *formBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongPart
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
