package wire

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// A PATCH request changes the fields in its body. The Go type of a field determines the meaning of null:
//
//   - Optional: null removes the value.
//   - A plain type or a pointer: null is treated as an absent field, because some clients write null for every unset
//     field (API reference section 1).
//   - Immutable and ReadOnly: the request cannot change the field.
//
// A PATCH body that contains only null or empty fields is refused, because the client would take a successful response
// as confirmation of a change. An empty body and a body with only unknown fields are accepted, but change nothing (API
// reference section 19.1).

// Immutable is a field that is set when a resource is created and can never be changed.
type Immutable[T comparable] struct{ value *T }

// UnmarshalJSONFrom reads a value. A null value is treated as an absent field.
func (f *Immutable[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return json.UnmarshalDecode(d, &f.value)
}

// ElementTypes implements [BoundedDecoder].
func (*Immutable[T]) ElementTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Schema returns the schema of the value.
func (Immutable[T]) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, "")
}

// Given reports whether the request has a non-empty value for the field.
func (f Immutable[T]) Given() bool { return f.value != nil && *f.value != *new(T) }

// MustEqual returns a fault if the request's value differs from the current value. The current value is accepted,
// because some clients send back all fields of the resource that they have read.
func (f Immutable[T]) MustEqual(field string, current T) error {
	if !f.Given() || *f.value == current {
		return nil
	}
	return fault.Invalidf(field, "The `%s` field cannot be changed. Leave it out, or create another with it.", field)
}

// ReadOnly is a field that is set when a resource is created and can be changed only by another operation.
type ReadOnly struct{ given bool }

// UnmarshalJSONFrom skips the value. The values null and false, and empty values, are treated as an absent field.
func (e *ReadOnly) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	switch text := string(value); {
	case text == "null", text == "false", text == `""`:
	case value.Kind() == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) == 0:
	default:
		e.given = true
	}
	return nil
}

// ElementTypes implements [BoundedDecoder].
func (*ReadOnly) ElementTypes() []reflect.Type { return nil }

// Refuse returns a fault if the request contains the field. The parameter instead is a sentence that tells the client
// how to change the field.
func (e ReadOnly) Refuse(field, instead string) error {
	if !e.given {
		return nil
	}
	return fault.Invalidf(field, "The `%s` field cannot be changed here. %s", field, instead)
}

// RequireChange returns a fault if the request body contains only null or empty fields. The parameter in is the decoded
// body, and change is the change that results from it.
func (c *Call) RequireChange(in, change any) error {
	return requireChange(c.body, reflect.TypeOf(in), change)
}

// requireChange implements RequireChange. The parameter in is the body's Go type. If the body's type has required
// fields, any body is accepted.
func requireChange(body []byte, in reflect.Type, change any) error {
	if in.Kind() != reflect.Struct {
		return nil
	}
	for _, v := range reflect.ValueOf(change).Fields() {
		if !blank(v) {
			return nil
		}
	}
	known := map[string]bool{}
	for f := range in.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options != "omitzero" {
			return nil
		}
		known[name] = true
	}
	d := jsontext.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))), lenient)
	if d.PeekKind() != '{' {
		return nil
	}
	for d.ReadToken(); d.PeekKind() == '"'; d.SkipValue() {
		name, err := d.ReadToken()
		if err != nil {
			return nil // the JSON decoder has already reported the error
		}
		if field := name.String(); known[field] {
			return fault.Invalidf(field, "The request changes nothing, because `%s` is null or empty. Give it another value, "+
				"or leave it out.", field)
		}
	}
	return nil
}

// blank reports whether a field's value has the same meaning as an absent field.
func blank(v reflect.Value) bool {
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		return v.IsNil() || jsontext.Value(v.Bytes()).Kind() == 'n'
	}
	return v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0
}
