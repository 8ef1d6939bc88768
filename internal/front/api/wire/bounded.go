package wire

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// The decoder enforces the limit on a list's length while it reads the list. A check after decoding would be too late,
// because an element of two bytes, {}, may use hundreds of bytes of memory. The limit is part of the list's type and
// appears in the OpenAPI document.

// Limit is the maximum number of elements in a list. Each limit is a type, because Go has no numeric type parameters.
type Limit interface{ Max() int }

func maxOf[L Limit]() int {
	var l L
	return l.Max()
}

// Array is a JSON array of at most L elements.
type Array[T any, L Limit] []T

// UnmarshalJSONFrom stops at the first element beyond the limit. If a JSON field occurs twice, the second list replaces
// the first list.
func (l *Array[T, L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return json.UnmarshalDecode(d, (*[]T)(l)) // the value is null or not an array
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	all := (*l)[:0]
	if all == nil {
		all = Array[T, L]{}
	}
	for d.PeekKind() != ']' {
		if len(all) == maxOf[L]() {
			return TooManyItems(d, len(all))
		}
		var zero T
		all = append(all, zero)
		if err := json.UnmarshalDecode(d, &all[len(all)-1]); err != nil {
			return err
		}
	}
	*l = all
	_, err := d.ReadToken()
	return err
}

// Schema describes the array in the OpenAPI document.
func (Array[T, L]) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, MaxItems: new(maxOf[L]()), Items: r.Schema(reflect.TypeFor[T](), true, "")}
}

// ElementTypes implements [BoundedDecoder].
func (*Array[T, L]) ElementTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Strings is a JSON string or an array of at most L strings. An empty string and null are both treated as an absent
// field.
type Strings[L Limit] []string

// UnmarshalJSONFrom reads a string or an array of strings.
func (t *Strings[L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case '"':
	case '[', 'n':
		return (*Array[string, L])(t).UnmarshalJSONFrom(d)
	default:
		// StackPointer returns the value's path only after the decoder has skipped the value.
		kind := d.PeekKind()
		if err := d.SkipValue(); err != nil {
			return err
		}
		field := fieldName(d.StackPointer())
		return fault.Invalidf(field, "The `%s` field must be a string or an array of strings, not %s.", field, kindName(kind))
	}
	var one string
	if err := json.UnmarshalDecode(d, &one); err != nil {
		return err
	}
	all := (*t)[:0]
	if *t = nil; one != "" {
		*t = append(all, one)
	}
	return nil
}

// Schema describes both JSON forms in the OpenAPI document.
func (Strings[L]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString},
		{Type: huma.TypeArray, MaxItems: new(maxOf[L]()), Items: &huma.Schema{Type: huma.TypeString}}}}
}

// ElementTypes implements [BoundedDecoder].
func (*Strings[L]) ElementTypes() []reflect.Type { return nil }

// Object is a JSON object with at most L fields. The client chooses the field names.
type Object[T any, L Limit] map[string]T

// UnmarshalJSONFrom stops at the first field beyond the limit. Fields with the same name are counted separately.
func (m *Object[T, L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return json.UnmarshalDecode(d, (*map[string]T)(m)) // the value is null or not an object
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if clear(*m); *m == nil {
		*m = Object[T, L]{}
	}
	for n := 0; d.PeekKind() != '}'; n++ {
		if n == maxOf[L]() {
			return TooManyItems(d, n)
		}
		var name string
		if err := json.UnmarshalDecode(d, &name); err != nil {
			return err
		}
		var value T
		if err := json.UnmarshalDecode(d, &value); err != nil {
			return err
		}
		(*m)[name] = value
	}
	_, err := d.ReadToken()
	return err
}

// Schema describes the object in the OpenAPI document.
func (Object[T, L]) Schema(r huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, MaxProperties: new(maxOf[L]()), AdditionalProperties: true}
	if t := reflect.TypeFor[T](); t != reflect.TypeFor[jsontext.Value]() {
		s.AdditionalProperties = r.Schema(t, true, "")
	}
	return s
}

// ElementTypes implements [BoundedDecoder].
func (*Object[T, L]) ElementTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// TooManyItems returns the fault for an array or object that has more than limit elements.
func TooManyItems(d *jsontext.Decoder, limit int) error {
	field := fieldName(d.StackPointer().Parent())
	if field == "" {
		return fault.Invalidf("", "The request body has more than %d items, which is the limit.", limit)
	}
	return fault.Invalidf(field, "The `%s` field has more than %d items, which is the limit.", field, limit)
}

// BoundedDecoder is implemented by request types that have their own decoding method and keep a limited number of
// elements. ElementTypes returns the types of the elements. Lists in the element types must also have limits.
type BoundedDecoder interface{ ElementTypes() []reflect.Type }

// unbounded returns the path of a list or map without a limit in a request type, or "" if all lists and maps have
// limits.
func unbounded(t reflect.Type, path string) string {
	if t == reflect.TypeFor[jsontext.Value]() {
		return "" // raw JSON is not decoded
	}
	pointer := reflect.PointerTo(t)
	if pointer.Implements(reflect.TypeFor[BoundedDecoder]()) {
		for _, e := range reflect.Zero(pointer).Interface().(BoundedDecoder).ElementTypes() {
			if at := unbounded(e, path+"[]"); at != "" {
				return at
			}
		}
		return ""
	}
	if pointer.Implements(reflect.TypeFor[json.UnmarshalerFrom]()) ||
		pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return path
	}
	switch t.Kind() {
	case reflect.Pointer:
		return unbounded(t.Elem(), path)
	case reflect.Struct:
		for f := range t.Fields() {
			if at := unbounded(f.Type, path+"."+f.Name); at != "" {
				return at
			}
		}
	case reflect.Slice, reflect.Map, reflect.Array, reflect.Interface:
		return path
	}
	return ""
}
