package api

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// A PATCH request changes what its body has and leaves the rest as it is. Its members are of these kinds:
//
//   - opt: null removes the value.
//   - A plain type or a pointer: null is as good as absent, which clients need that write null for all that they were
//     not given (API reference section 1).
//   - fixed: what a resource is created with and never changes.
//
// A body that has members but nothing to change, because all of them are null or empty, is refused: the client would
// take the answer for the change that it meant. An empty body changes nothing and is accepted (API reference
// section 19.1), and so are members that no operation knows.

// fixed is a member that a resource is created with and that cannot be changed.
type fixed[T comparable] struct{ value *T }

// UnmarshalJSONFrom reads a value; null is absent.
func (f *fixed[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return json.UnmarshalDecode(d, &f.value)
}

func (*fixed[T]) elements() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Schema is that of the value.
func (fixed[T]) Schema(r huma.Registry) *huma.Schema { return r.Schema(reflect.TypeFor[T](), true, "") }

// given reports whether the request has a value. One that is empty is as good as none.
func (f fixed[T]) given() bool { return f.value != nil && *f.value != *new(T) }

// is refuses another value than the resource has. The same one is accepted, because clients send back what they read.
func (f fixed[T]) is(field string, has T) error {
	if !f.given() || *f.value == has {
		return nil
	}
	return fault.Invalidf(field, "The `%s` field cannot be changed. Leave it out, or create another with it.", field)
}

// elsewhere is a member that a resource is created with and that another operation changes.
type elsewhere struct{ given bool }

// UnmarshalJSONFrom passes over a value; null, false and what is empty are absent.
func (e *elsewhere) UnmarshalJSONFrom(d *jsontext.Decoder) error {
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

func (*elsewhere) elements() []reflect.Type { return nil }

// refuse returns an error that says what changes the field.
func (e elsewhere) refuse(field, instead string) error {
	if !e.given {
		return nil
	}
	return fault.Invalidf(field, "The `%s` field cannot be changed here. %s", field, instead)
}

// changesNothing refuses a body whose members are all absent by their values: change, which was made of it, is zero. in
// is the type of the request. Those with a member that is required judge for themselves.
func changesNothing(body []byte, in reflect.Type, change any) error {
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
			return nil // which decoding has found before
		}
		if field := name.String(); known[field] {
			return fault.Invalidf(field, "The request changes nothing, because `%s` is null or empty. Give it a value, or "+
				"leave it out.", field)
		}
	}
	return nil
}

// blank reports whether a member of a request says no more than if it were absent.
func blank(v reflect.Value) bool {
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		return v.IsNil() || jsontext.Value(v.Bytes()).Kind() == 'n'
	}
	return v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0
}
