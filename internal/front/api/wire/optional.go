package wire

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Optional is a field that distinguishes absent, null and a value.
type Optional[T any] struct {
	Given bool // the request has the field
	Value *T   // nil for null
}

// UnmarshalJSONFrom is called only if the field is present.
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

// Schema returns the schema of the value or null. The tag nullable:"false" excludes null where it is refused.
func (Optional[T]) Schema(r huma.Registry) *huma.Schema {
	s := *r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref != "" { // the value would also have to match the keywords beside a reference
		return &huma.Schema{OneOf: []*huma.Schema{{Ref: s.Ref}, {Type: "null"}}}
	}
	if s.Type == "" { // Nullable needs a type to add null to
		s.OneOf = append(slices.Clip(s.OneOf), &huma.Schema{Type: "null"})
		return &s
	}
	s.Nullable = true
	return &s
}

// Replacement returns what to store: the value, the zero value for null, and nil if the field is absent.
func (o *Optional[T]) Replacement() *T {
	if o.Given && o.Value == nil {
		return new(T)
	}
	return o.Value
}
