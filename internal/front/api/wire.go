package api

import (
	"bytes"
	"encoding/base64"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
)

// ref identifies a thing; creating and changing operations answer with it.
type ref struct {
	Object string `json:"object"`
	ID     string `json:"id"`
}

// gone identifies a thing that was deleted.
type gone struct {
	Object  string `json:"object"`
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// dbTime is a time in database style, 2023-10-06 23:47:56.678+00; the zero time is null.
type dbTime time.Time

// MarshalJSON omits zeros at the end of the fraction, like PostgreSQL's text form.
func (t dbTime) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02 15:04:05.999999+00"`), nil
}

// Schema describes the form in the document.
func (dbTime) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Examples: []any{"2026-04-08 00:11:13.110779+00"}}
}

// isoTime is a time in ISO 8601 UTC with milliseconds.
type isoTime time.Time

// MarshalJSON always writes three digits of the fraction.
func (t isoTime) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// Schema describes the form in the document.
func (isoTime) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Format: "date-time", Examples: []any{"2026-04-08T00:11:13.110Z"}}
}

// content is the bytes of a file in any of the forms that clients use: base64, Node's Buffer, a list of numbers.
type content struct {
	given bool
	bytes []byte
}

// UnmarshalJSONFrom reads any of the forms.
func (c *content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return c.plain(d)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	*c = content{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if name.String() != "data" {
			err = d.SkipValue()
		} else {
			err = c.plain(d)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// plain reads any of the forms except a Buffer: a Buffer cannot contain another.
func (c *content) plain(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '"':
		text, err := d.ReadValue()
		if err != nil {
			return err
		}
		c.given = true
		if err := c.decodeBase64(text); err != nil {
			return badContent(d, "is not valid base64").Because(err)
		}
		return nil
	case '[':
		c.given = true
		return c.numbers(d)
	}
	if err := d.SkipValue(); err != nil {
		return err
	}
	return badContent(d, "must be base64 text, a Buffer or a list of bytes")
}

// badContent names the attachment at fault: the decoder has just read its content.
func badContent(d *jsontext.Decoder, what string) *fault.Error {
	field := fieldName(d.StackPointer())
	return fault.New(fault.BadAttachment, field, "The `%s` field %s.", field, what)
}

// decodeBase64 decodes a JSON string. It allocates only the result, unless the string has escapes.
func (c *content) decodeBase64(quoted jsontext.Value) error {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var err error
		if text, err = jsontext.AppendUnquote(nil, quoted); err != nil {
			return err
		}
	}
	if i := bytes.Index(text, []byte(";base64,")); i >= 0 && bytes.HasPrefix(text, []byte("data:")) {
		text = text[i+len(";base64,"):]
	}
	if bytes.ContainsAny(text, " \t\r\n") {
		text = withoutSpace(text)
	}
	enc := base64.RawStdEncoding
	if bytes.ContainsAny(text, "-_") {
		enc = base64.RawURLEncoding
	}
	text = bytes.TrimRight(text, "=")
	c.bytes = make([]byte, enc.DecodedLen(len(text)))
	n, err := enc.Decode(c.bytes, text)
	c.bytes = c.bytes[:n]
	return err
}

func withoutSpace(text []byte) []byte {
	kept := make([]byte, 0, len(text))
	for _, b := range text {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			kept = append(kept, b)
		}
	}
	return kept
}

func (c *content) numbers(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	c.bytes = c.bytes[:0]
	for d.PeekKind() != ']' {
		if d.PeekKind() != '0' {
			var n float64
			if err := json.UnmarshalDecode(d, &n); err != nil { // reports what is wrong, except for null, which is 0
				return err
			}
			c.bytes = append(c.bytes, 0)
			continue
		}
		number, err := d.ReadToken()
		if err != nil {
			return err
		}
		n, err := number.Float()
		if err != nil || n < 0 || n > 255 || n != float64(byte(n)) {
			return badContent(d, "must be a byte from 0 to 255")
		}
		c.bytes = append(c.bytes, byte(n))
	}
	_, err := d.ReadToken()
	return err
}

func (*content) elements() []reflect.Type { return nil }

// Schema describes the forms in the document.
func (content) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: "string", ContentEncoding: "base64"},
		{Type: "array", Items: &huma.Schema{Type: "integer"}}, {Type: "object"}}}
}

// opt is a field that distinguishes absent, null and a value.
type opt[T any] struct {
	given bool
	value *T // nil for null
}

// UnmarshalJSONFrom is called only if the field is present.
func (o *opt[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	o.given = true
	return json.UnmarshalDecode(d, &o.value)
}

// orZero returns the value, the zero value for null.
func (o *opt[T]) orZero() (v T) {
	if o.value != nil {
		v = *o.value
	}
	return v
}

func (*opt[T]) elements() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Schema is that of the value, nullable. The tag nullable:"false" takes that back where null is refused.
func (opt[T]) Schema(r huma.Registry) *huma.Schema {
	s := *r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref != "" { // what stands beside a reference would have to hold too
		return &huma.Schema{OneOf: []*huma.Schema{{Ref: s.Ref}, {Type: "null"}}}
	}
	if s.Type == "" { // Nullable would add null to a type that there is not
		s.OneOf = append(slices.Clip(s.OneOf), &huma.Schema{Type: "null"})
		return &s
	}
	s.Nullable = true
	return &s
}

// orNull returns nil, which is null, for an empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// orEmpty returns an empty list for nil, so that it is never null.
func orEmpty(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// scalarValue is a value of a property of a contact or of a variable of a template: a string or a number, or null for
// none. It keeps of any other value only that it is another, for the error.
type scalarValue struct{ scalar.Value }

// UnmarshalJSONFrom reads any value.
func (v *scalarValue) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	kind, text, n, err := readScalar(d)
	switch kind {
	case '"':
		v.Value = scalar.OfText(text)
	case '0':
		v.Value = scalar.OfNumber(n)
	case 'n':
		v.Value = scalar.Value{}
	default:
		v.Value = scalar.Value{Type: scalar.Other}
	}
	return err
}

// MarshalJSONTo writes what UnmarshalJSONFrom reads.
func (v scalarValue) MarshalJSONTo(e *jsontext.Encoder) error {
	switch v.Type {
	case scalar.String:
		return e.WriteToken(jsontext.String(v.Text))
	case scalar.Number:
		return e.WriteValue(jsontext.Value(v.Text))
	}
	return e.WriteToken(jsontext.Null)
}

func (*scalarValue) elements() []reflect.Type { return nil }

// Schema describes both types in the document.
func (scalarValue) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, MaxLength: new(scalar.MaxText)},
		{Type: huma.TypeNumber, Minimum: new(-float64(scalar.MaxNumber)), Maximum: new(float64(scalar.MaxNumber))},
		{Type: "null"}}}
}

// readScalar reads any value, and returns its kind: that of a string with its text, and of a number with the number,
// which is infinite beyond the bounds of float64. Others are passed over.
func readScalar(d *jsontext.Decoder) (kind jsontext.Kind, text string, n float64, err error) {
	switch kind = d.PeekKind(); kind {
	case '"':
		err = json.UnmarshalDecode(d, &text)
	case '0':
		var number jsontext.Token
		if number, err = d.ReadToken(); err != nil {
			return kind, "", 0, err
		}
		var beyond error
		if n, beyond = number.Float(); beyond != nil {
			n = math.Inf(1)
		}
	default:
		err = d.SkipValue()
	}
	return kind, text, n, err
}
