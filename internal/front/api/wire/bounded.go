package wire

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// The decoder enforces the limit of a list while it reads the list. An element of two bytes, {}, may take hundreds of
// bytes in memory, so a check afterwards would be too late. The limit is part of the list's type; the OpenAPI document
// shows it too.

// Limit is the largest number of elements of a list. Go has no numbers as type parameters, so each limit is a type.
type Limit interface{ Max() int }

func maxOf[L Limit]() int {
	var l L
	return l.Max()
}

// Array is a JSON array of at most L elements.
type Array[T any, L Limit] []T

// UnmarshalJSONFrom stops at the first element beyond the limit. A later field of the same name replaces the elements.
func (l *Array[T, L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return json.UnmarshalDecode(d, (*[]T)(l)) // null, or not a list
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

// Strings is a JSON string or an array of at most L strings. An empty string counts as absent, as null does.
type Strings[L Limit] []string

// UnmarshalJSONFrom reads either form.
func (t *Strings[L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case '"':
	case '[', 'n':
		return (*Array[string, L])(t).UnmarshalJSONFrom(d)
	default:
		// Skipping the value first makes the decoder point at it.
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

// Schema describes both forms in the OpenAPI document.
func (Strings[L]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString},
		{Type: huma.TypeArray, MaxItems: new(maxOf[L]()), Items: &huma.Schema{Type: huma.TypeString}}}}
}

// ElementTypes implements [BoundedDecoder].
func (*Strings[L]) ElementTypes() []reflect.Type { return nil }

// Object is a JSON object with at most L fields, whose names the client chooses.
type Object[T any, L Limit] map[string]T

// UnmarshalJSONFrom stops at the first field beyond the limit. A duplicate name counts twice.
func (m *Object[T, L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return json.UnmarshalDecode(d, (*map[string]T)(m)) // null, or not an object
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

// TooManyItems returns the fault for an array or an object that has more than limit elements.
func TooManyItems(d *jsontext.Decoder, limit int) error {
	field := fieldName(d.StackPointer().Parent())
	if field == "" {
		return fault.Invalidf("", "The request body has more than %d items, which is the limit.", limit)
	}
	return fault.Invalidf(field, "The `%s` field has more than %d items, which is the limit.", field, limit)
}

// BoundedDecoder is implemented by request types that decode themselves and keep a limited number of elements.
// ElementTypes returns the types of these elements, which must have limits too.
type BoundedDecoder interface{ ElementTypes() []reflect.Type }

// unbounded returns the path of a list or a map without a limit in a request type, or "" if there is none.
func unbounded(t reflect.Type, path string) string {
	if t == reflect.TypeFor[jsontext.Value]() {
		return "" // JSON is kept and not decoded
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
