package wire

import (
	"bytes"
	"encoding/base64"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// FileContent is the content of a file. Clients send it as base64, as a Node.js Buffer, or as an array of numbers.
type FileContent struct {
	Given bool // whether the request contains the field
	Bytes []byte
}

// UnmarshalJSONFrom reads a file's content, given in base64, as a Buffer or as an array.
func (c *FileContent) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return c.plain(d)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	*c = FileContent{}
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

// plain reads base64 or an array of numbers. A Buffer is an error here, because a Buffer cannot contain another Buffer.
func (c *FileContent) plain(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '"':
		text, err := d.ReadValue()
		if err != nil {
			return err
		}
		c.Given = true
		if err := c.decodeBase64(text); err != nil {
			return badContent(d, "is not valid base64").Because(err)
		}
		return nil
	case '[':
		c.Given = true
		return c.numbers(d)
	}
	if err := d.SkipValue(); err != nil {
		return err
	}
	return badContent(d, "must be base64 text, a Buffer or a list of bytes")
}

// badContent returns the fault for invalid attachment content that the decoder has just read.
func badContent(d *jsontext.Decoder, what string) *fault.Error {
	field := FieldName(d)
	return fault.New(fault.BadAttachment, field, "The `%s` field %s.", field, what)
}

// decodeBase64 decodes base64 in a JSON string. If the string has no escape sequences, decodeBase64 allocates only the
// result.
func (c *FileContent) decodeBase64(quoted jsontext.Value) error {
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
	c.Bytes = make([]byte, enc.DecodedLen(len(text)))
	n, err := enc.Decode(c.Bytes, text)
	c.Bytes = c.Bytes[:n]
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

// numbers reads a file's content from an array of numbers.
func (c *FileContent) numbers(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	c.Bytes = c.Bytes[:0]
	for d.PeekKind() != ']' {
		if d.PeekKind() != '0' {
			var n float64
			if err := json.UnmarshalDecode(d, &n); err != nil { // fails unless the value is null, which is treated as 0
				return err
			}
			c.Bytes = append(c.Bytes, 0)
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
		c.Bytes = append(c.Bytes, byte(n))
	}
	_, err := d.ReadToken()
	return err
}

// ElementTypes implements [BoundedDecoder].
func (*FileContent) ElementTypes() []reflect.Type { return nil }

// Schema describes the accepted JSON forms in the OpenAPI document.
func (FileContent) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: "string", ContentEncoding: "base64"},
		{Type: "array", Items: &huma.Schema{Type: "integer"}}, {Type: "object"}}}
}
