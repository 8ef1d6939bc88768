package api

import (
	"math"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
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

func (*scalarValue) ElementTypes() []reflect.Type { return nil }

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
