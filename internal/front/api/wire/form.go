package wire

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

// mediaForm is the media type of uploaded forms.
const mediaForm = "multipart/form-data"

// Limits for an uploaded form.
const (
	formMax         = 1 << 20  // maximum size of the form, excluding the file, in bytes
	fieldMax        = 64 << 10 // maximum size of a form field, in bytes
	partsMax        = 50
	partHeaderMax   = 32 << 10    // maximum size of the data between two parts, including a part header, in bytes
	responseTimeout = time.Minute // time limit for writing the response once the form has arrived
)

// Upload returns a handler for a function that reads a form with [Call.ReceiveForm]. The type In describes the form in
// the OpenAPI document.
func Upload[In, Out any](f func(ctx context.Context, c *Call) (Out, error)) Handler {
	return Handler{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), form: true,
		call: func(ctx context.Context, c *Call) (any, error) { return f(ctx, c) }}
}

// Form is a request body of type multipart/form-data (RFC 7578).
type Form struct {
	Fields   map[string]string // all form fields except the file
	FileName string
}

// ReceiveForm reads a form with a file of at most size bytes. The content of the file is passed to the function store
// as it arrives. If store fails with a fault, ReceiveForm still reads the rest of the form. Otherwise, a client that
// sends the whole form before it reads the response would report a broken connection.
func (c *Call) ReceiveForm(size int64, store func(io.Reader) error) (Form, error) {
	began := time.Now()
	r, s := c.Request, c.server
	f := Form{Fields: map[string]string{}}
	if r.ContentLength > size+formMax {
		return f, tooLargeFile(size)
	}
	b := &formBody{src: pacedReader{r: http.MaxBytesReader(c.w, r.Body, size+formMax), rc: http.NewResponseController(c.w),
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
		return f, s.bodyError(b.err)
	}
	if err != nil {
		return f, err
	}
	b.src.clearDeadline()
	// The connection's write deadline may have passed while the form was arriving.
	rc := http.NewResponseController(c.w)
	if err := rc.SetWriteDeadline(time.Now().Add(responseTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return f, fmt.Errorf("extend the write deadline: %w", err)
	}
	if time.Since(began) > slowBody {
		return f, s.reauthenticate(c.w, r, c.Operation)
	}
	return f, nil
}

func tooLargeFile(size int64) error {
	return fault.Invalidf("file", "The `file` is larger than %d bytes. Split it, or ask the operator to raise the limit.",
		size)
}

// read reads the parts of the form in order.
func (f *Form) read(parts *multipart.Reader, b *formBody, store func(io.Reader) error) error {
	stored := false
	for n := 0; ; n++ {
		b.left = partHeaderMax
		part, err := parts.NextRawPart()
		if err == io.EOF { // an error that only wraps io.EOF means that the last boundary is missing
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
			f.FileName, stored = part.FileName(), true
			from := &partReader{r: part}
			if err := store(from); err != nil && from.err == nil {
				return err
			}
			if from.err != nil {
				return fault.New(fault.Malformed, "", "The form breaks off within the part `file`.").Because(from.err)
			}
		default:
			b.left = fieldMax + partHeaderMax
			text, err := io.ReadAll(part)
			if err != nil || len(text) > fieldMax {
				return fault.Invalidf(name, "The `%.50s` field is longer than %d octets, or broke off.", name, fieldMax).
					Because(err)
			}
			if !isText(string(text)) || !isText(name) {
				return fault.Invalidf("", "The fields of the form must be UTF-8 text without NUL characters.")
			}
			f.Fields[name] = string(text)
		}
	}
	if !stored {
		return fault.MissingField("file")
	}
	return nil
}

// DecodeField decodes the JSON in a field, if the form has that field. If the JSON is invalid, the error message
// contains the given example.
func (f *Form) DecodeField(name, example string, to any, options ...json.Options) error {
	text := f.Fields[name]
	if text == "" {
		return nil
	}
	err := json.Unmarshal([]byte(text), to, append(options, lenient)...)
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return err
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok && errors.Is(err, json.ErrUnknownName) {
		return fault.Invalidf(name, "The `%s` field has `%s`, which is not known. It must be JSON such as %s.", name,
			fieldName(e.JSONPointer), example).Because(err)
	}
	if err == nil && hasNUL([]byte(text)) {
		err = errors.New("escaped NUL")
	}
	if err != nil {
		return fault.Invalidf(name, "The `%s` field must be JSON such as %s.", name, example).Because(err)
	}
	return nil
}

// partReader reads a part of a form and records any read error. A caller can therefore distinguish read errors from
// errors returned by the function store.
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

// formBody is a request body that contains a form. A caller sets left to limit how many bytes can be read next, because
// package multipart would keep a very long part header in memory.
type formBody struct {
	src  pacedReader
	left int64
	err  error // error from reading the connection
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
