package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// document is the part of an OpenAPI document that genclient reads.
type document struct {
	Paths      map[string]map[string]*endpoint
	Components struct {
		Schemas map[string]*schema
	}
}

// endpoint is an operation of the document.
type endpoint struct {
	Method, Path string `json:"-"`

	Summary, Description string
	Deprecated           bool
	Tags                 []string
	Parameters           []parameter
	RequestBody          *struct {
		Content map[string]media
	}
	Responses map[string]struct {
		Content map[string]media
	}
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                *schema
}

type media struct{ Schema *schema }

// schema is a JSON Schema.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 types
	Format               string
	ContentEncoding      string
	Description          string
	Deprecated           bool
	Default              any
	Examples             []any
	Enum                 []any
	Properties           map[string]*schema
	Required             []string // in the order of declaration
	Items                *schema
	AdditionalProperties *additional
	OneOf, AnyOf         []*schema
}

// types are the types of a schema, except null.
type types struct {
	names    []string
	nullable bool
}

// UnmarshalJSON reads a name or a list of names.
func (t *types) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		var one string
		if err := json.Unmarshal(text, &one); err != nil {
			return err
		}
		names = []string{one}
	}
	t.nullable = slices.Contains(names, "null")
	t.names = slices.DeleteFunc(names, func(n string) bool { return n == "null" })
	return nil
}

func (t types) is(name string) bool { return len(t.names) == 1 && t.names[0] == name }

// additional is a schema, or a nil schema for true.
type additional struct{ schema *schema }

// UnmarshalJSON reads true or a schema.
func (a *additional) UnmarshalJSON(text []byte) error {
	if string(text) == "true" {
		return nil
	}
	return json.Unmarshal(text, &a.schema)
}

// parse reads a document.
func parse(text []byte) (*document, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	if len(d.Paths) == 0 {
		return nil, fmt.Errorf("the OpenAPI document has no paths")
	}
	return &d, nil
}

// methodOrder is the order of the operations of a path.
var methodOrder = []string{"get", "post", "put", "patch", "delete"}

// endpoints returns the operations by tag, in the order of their paths.
func (d *document) endpoints() (map[string][]*endpoint, error) {
	all := map[string][]*endpoint{}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methodOrder {
			o := d.Paths[path][method]
			if o == nil {
				continue
			}
			delete(d.Paths[path], method)
			o.Method, o.Path = strings.ToUpper(method), path
			if len(o.Tags) != 1 {
				return nil, fmt.Errorf("%s %s has %d tags", o.Method, path, len(o.Tags))
			}
			all[o.Tags[0]] = append(all[o.Tags[0]], o)
		}
		if len(d.Paths[path]) > 0 {
			return nil, fmt.Errorf("%s has methods that genclient does not know", path)
		}
	}
	return all, nil
}

// success returns the content of the successful response by media type.
func (o *endpoint) success() (map[string]media, error) {
	for status, r := range o.Responses {
		if strings.HasPrefix(status, "2") {
			return r.Content, nil
		}
	}
	return nil, fmt.Errorf("%s %s has no successful response", o.Method, o.Path)
}

// query returns the query parameters.
func (o *endpoint) query() (all []parameter) {
	for _, p := range o.Parameters {
		if p.In == "query" {
			all = append(all, p)
		}
	}
	return all
}

// has reports whether the operation has a parameter.
func (o *endpoint) has(in, name string) bool {
	return slices.ContainsFunc(o.Parameters, func(p parameter) bool {
		return p.In == in && strings.EqualFold(p.Name, name)
	})
}

// resolve follows a reference to a schema.
func (d *document) resolve(s *schema) (*schema, error) {
	if s.Ref == "" {
		return s, nil
	}
	to := d.Components.Schemas[refName(s.Ref)]
	if to == nil {
		return nil, fmt.Errorf("there is no schema %s", s.Ref)
	}
	return to, nil
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// notNull returns the schema without the alternative null, and whether null is allowed.
func (s *schema) notNull() (*schema, bool) {
	nullable := s.Type.nullable
	var rest []*schema
	for _, of := range slices.Concat(s.OneOf, s.AnyOf) {
		if len(of.Type.names) == 0 && of.Type.nullable {
			nullable = true
			continue
		}
		rest = append(rest, of)
	}
	if len(rest) == 0 {
		return s, nullable
	}
	if len(rest) == 1 {
		inner, alsoNull := rest[0].notNull()
		return inner, nullable || alsoNull
	}
	one := *s
	one.OneOf, one.AnyOf = rest, nil
	return &one, nullable
}
