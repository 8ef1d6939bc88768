package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// A list in a request is bounded while it is decoded: an element of two octets, {}, may take hundreds in memory, so
// checking the limit afterwards is too late. The limit is part of the list's type, from which the OpenAPI document
// has it too, and [endpoint] accepts no request type with an unlimited list.

// limit is the largest number of elements of a list. Go has no numbers as type parameters, so each limit is a type.
type limit interface{ max() int }

type (
	maxRecipients   struct{}
	maxTags         struct{}
	maxAttachments  struct{}
	maxSuppressions struct{}
	maxEventTypes   struct{}
	maxVariables    struct{}
	maxDeclared     struct{}
	maxProperties   struct{}
	maxSegments     struct{}
	maxTopics       struct{}
	maxVersions     struct{} // of one broadcast
	maxTrial        struct{}
	maxEventFields  struct{} // of the schema of a custom event
)

func (maxRecipients) max() int   { return emails.MaxRecipients }
func (maxTags) max() int         { return emails.MaxTags }
func (maxAttachments) max() int  { return emails.MaxAttachments }
func (maxSuppressions) max() int { return suppressions.MaxBatch }
func (maxEventTypes) max() int   { return 100 }
func (maxVariables) max() int    { return 100 }
func (maxDeclared) max() int     { return templates.MaxVariables }
func (maxProperties) max() int   { return contacts.MaxProperties }
func (maxSegments) max() int     { return contacts.MaxSegments }
func (maxTopics) max() int       { return contacts.MaxTopics }
func (maxVersions) max() int     { return broadcasts.MaxVariants }
func (maxTrial) max() int        { return broadcasts.MaxTrial }
func (maxEventFields) max() int  { return customevents.MaxFields }

func maxOf[L limit]() int {
	var l L
	return l.max()
}

// many is a list of at most L elements.
type many[T any, L limit] []T

// UnmarshalJSONFrom stops at the first element beyond the limit. A later member of the same name overwrites the
// elements.
func (l *many[T, L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return json.UnmarshalDecode(d, (*[]T)(l)) // null, or not a list
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	all := (*l)[:0]
	if all == nil {
		all = many[T, L]{}
	}
	for d.PeekKind() != ']' {
		if len(all) == maxOf[L]() {
			return tooMany(d, len(all))
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

// Schema describes the list in the document.
func (many[T, L]) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, MaxItems: new(maxOf[L]()), Items: r.Schema(reflect.TypeFor[T](), true, "")}
}

func (*many[T, L]) elements() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// texts is a string or a list of at most L strings. An empty string is absent, as is null.
type texts[L limit] []string

// UnmarshalJSONFrom reads either form.
func (t *texts[L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case '"':
	case '[', 'n':
		return (*many[string, L])(t).UnmarshalJSONFrom(d)
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

// Schema describes both forms in the document.
func (texts[L]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString},
		{Type: huma.TypeArray, MaxItems: new(maxOf[L]()), Items: &huma.Schema{Type: huma.TypeString}}}}
}

func (*texts[L]) elements() []reflect.Type { return nil }

// named is an object of at most L members with arbitrary names.
type named[T any, L limit] map[string]T

// UnmarshalJSONFrom stops at the first member beyond the limit; a duplicate name counts twice.
func (m *named[T, L]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return json.UnmarshalDecode(d, (*map[string]T)(m)) // null, or not an object
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if clear(*m); *m == nil {
		*m = named[T, L]{}
	}
	for n := 0; d.PeekKind() != '}'; n++ {
		if n == maxOf[L]() {
			return tooMany(d, n)
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

// Schema describes the object in the document.
func (named[T, L]) Schema(r huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, MaxProperties: new(maxOf[L]()), AdditionalProperties: true}
	if t := reflect.TypeFor[T](); t != reflect.TypeFor[jsontext.Value]() {
		s.AdditionalProperties = r.Schema(t, true, "")
	}
	return s
}

func (*named[T, L]) elements() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// tooMany reports a list or an object that goes on after the largest number of elements.
func tooMany(d *jsontext.Decoder, most int) error {
	field := fieldName(d.StackPointer().Parent())
	if field == "" {
		return fault.Invalidf("", "The request body has more than %d items, which is the limit.", most)
	}
	return fault.Invalidf(field, "The `%s` field has more than %d items, which is the limit.", field, most)
}

// decodesItself is implemented by the request types with a decoder of their own. Such a decoder keeps at most a
// bounded number of elements, whatever the body has. elements returns their types, which must be bounded themselves.
type decodesItself interface{ elements() []reflect.Type }

// unbounded returns the place in a request type that decoding does not bound, or "" if there is none.
func unbounded(t reflect.Type, where string) string {
	if t == reflect.TypeFor[jsontext.Value]() {
		return "" // a part of the body, undecoded
	}
	pointer := reflect.PointerTo(t)
	if pointer.Implements(reflect.TypeFor[decodesItself]()) {
		for _, e := range reflect.Zero(pointer).Interface().(decodesItself).elements() {
			if at := unbounded(e, where+"[]"); at != "" {
				return at
			}
		}
		return ""
	}
	if pointer.Implements(reflect.TypeFor[json.UnmarshalerFrom]()) ||
		pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return where
	}
	switch t.Kind() {
	case reflect.Pointer:
		return unbounded(t.Elem(), where)
	case reflect.Struct:
		for f := range t.Fields() {
			if at := unbounded(f.Type, where+"."+f.Name); at != "" {
				return at
			}
		}
	case reflect.Slice, reflect.Map, reflect.Array, reflect.Interface:
		return where
	}
	return ""
}
