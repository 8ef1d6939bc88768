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

// A PATCH request changes the fields that its body has. The type of a field says what null means:
//
//   - Optional: null removes the value.
//   - A plain type or a pointer: null counts as absent, because some clients write null for every field that they were
//     not given (API reference section 1).
//   - Immutable and ReadOnly: the request cannot change the field.
//
// A body whose fields are all null or empty is refused: the client would take the response for a confirmed change. An
// empty body is accepted and changes nothing (API reference section 19.1), and so is one with unknown fields only.

// Immutable is a field that is set when a resource is created and that never changes.
type Immutable[T comparable] struct{ value *T }

// UnmarshalJSONFrom reads a value; null counts as absent.
func (f *Immutable[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return json.UnmarshalDecode(d, &f.value)
}

// ElementTypes implements [BoundedDecoder].
func (*Immutable[T]) ElementTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Schema returns the schema of the value.
func (Immutable[T]) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, "")
}

// Given reports whether the request has a value. An empty value counts as absent.
func (f Immutable[T]) Given() bool { return f.value != nil && *f.value != *new(T) }

// MustEqual returns a fault if the request has a value other than the current one. The current value is accepted,
// because clients send back what they have read.
func (f Immutable[T]) MustEqual(field string, current T) error {
	if !f.Given() || *f.value == current {
		return nil
	}
	return fault.Invalidf(field, "The `%s` field cannot be changed. Leave it out, or create another with it.", field)
}

// ReadOnly is a field that is set when a resource is created and that only another operation can change.
type ReadOnly struct{ given bool }

// UnmarshalJSONFrom skips a value. Null, false and empty values count as absent.
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

// Refuse returns a fault if the request has the field. instead is a sentence that says how to change it.
func (e ReadOnly) Refuse(field, instead string) error {
	if !e.given {
		return nil
	}
	return fault.Invalidf(field, "The `%s` field cannot be changed here. %s", field, instead)
}

// RequireChange returns a fault if the body has fields but change, which was made from in, has none: all of the body's
// fields are null or empty.
func (c *Call) RequireChange(in, change any) error {
	return requireChange(c.body, reflect.TypeOf(in), change)
}

// requireChange does the work of RequireChange. The type of the body is in. If that type has required fields, any body
// is accepted.
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
			return nil // the decoder has reported the error
		}
		if field := name.String(); known[field] {
			return fault.Invalidf(field, "The request changes nothing, because `%s` is null or empty. Give it a value, or "+
				"leave it out.", field)
		}
	}
	return nil
}

// blank reports whether a field of a request means the same as if it were absent.
func blank(v reflect.Value) bool {
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		return v.IsNil() || jsontext.Value(v.Bytes()).Kind() == 'n'
	}
	return v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0
}
