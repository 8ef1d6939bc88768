package api

import (
	"math"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/front/api/wire"
)

// ref identifies a resource in responses to operations that create or change it.
type ref struct {
	Object string `json:"object"`
	ID     string `json:"id"`
}

// gone identifies a deleted resource.
type gone struct {
	Object  string `json:"object"`
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// orNull returns a pointer to s, or nil if s is empty. A nil pointer is written as null.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// isoOrNull returns nil for the zero time.
func isoOrNull(t time.Time) *wire.ISOTime {
	if t.IsZero() {
		return nil
	}
	return new(wire.ISOTime(t))
}

// orEmpty returns l, or an empty list if l is nil, because a nil list would be written as null.
func orEmpty(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// scalarValue is the value of a contact property or template variable: a string, a number or null. Values of other
// types are decoded as scalar.Other, so that a later error can name the field.
type scalarValue struct{ scalar.Value }

// UnmarshalJSONFrom reads any JSON value.
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

// MarshalJSONTo writes a value in the form that UnmarshalJSONFrom reads.
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

// Schema describes the allowed JSON types in the OpenAPI document.
func (scalarValue) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, MaxLength: new(scalar.MaxText)},
		{Type: huma.TypeNumber, Minimum: new(-float64(scalar.MaxNumber)), Maximum: new(float64(scalar.MaxNumber))},
		{Type: "null"}}}
}

// readScalar reads any JSON value and returns its kind. For strings and numbers, readScalar also returns the value. A
// number beyond the range of float64 is returned as infinity. The content of arrays and objects is skipped.
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
