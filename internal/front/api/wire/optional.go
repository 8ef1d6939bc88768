package wire

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Optional is a request field that distinguishes between an absent field, null and a value.
type Optional[T any] struct {
	Given bool // whether the request contains the field
	Value *T   // nil for null
}

// UnmarshalJSONFrom sets Given, because the decoder calls UnmarshalJSONFrom only if the field is present.
func (o *Optional[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	o.Given = true
	return json.UnmarshalDecode(d, &o.Value)
}

// OrZero returns the value, or the zero value for null.
func (o *Optional[T]) OrZero() (v T) {
	if o.Value != nil {
		v = *o.Value
	}
	return v
}

// ElementTypes implements [BoundedDecoder].
func (*Optional[T]) ElementTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Schema returns a schema that allows the value or null. The struct tag nullable:"false" excludes null from the schema
// of fields that do not accept null.
func (Optional[T]) Schema(r huma.Registry) *huma.Schema {
	s := *r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref != "" { // keywords next to a $ref would also apply to the value
		return &huma.Schema{OneOf: []*huma.Schema{{Ref: s.Ref}, {Type: "null"}}}
	}
	if s.Type == "" { // Nullable only works for schemas with a type
		s.OneOf = append(slices.Clip(s.OneOf), &huma.Schema{Type: "null"})
		return &s
	}
	s.Nullable = true
	return &s
}

// Replacement returns the value to store: the given value, the zero value for null, or nil if the field is absent.
func (o *Optional[T]) Replacement() *T {
	if o.Given && o.Value == nil {
		return new(T)
	}
	return o.Value
}
