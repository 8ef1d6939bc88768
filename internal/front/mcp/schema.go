package mcp

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// param is an argument of a tool.
type param struct {
	name     string
	required bool
	schema   *jsonschema.Schema
}

// must is the argument as one that cannot be left out.
func (p param) must() param {
	p.required = true
	return p
}

// orNull lets null be given, where that removes a value.
func (p param) orNull() param {
	s := *p.schema
	s.Types, s.Type = []string{s.Type, "null"}, ""
	p.schema = &s
	return p
}

// text is a string of 1 to most characters.
func text(name, does string, most int) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: does, MinLength: new(1),
		MaxLength: &most}}
}

// long is a string that may be as long as a request, and empty.
func long(name, does string) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: does, MaxLength: new(bodyMax)}}
}

// uuid is an id. What is no id must not become another operation's path.
func uuid(name, does string) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: does, Format: "uuid",
		Pattern: "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}}
}

func flag(name, does string) param {
	return param{name, false, &jsonschema.Schema{Type: "boolean", Description: does}}
}

func number(name, does string, least, most float64) param {
	return param{name, false, &jsonschema.Schema{Type: "integer", Description: does, Minimum: &least, Maximum: &most}}
}

func choice(name, does string, values ...any) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: does, Enum: values}}
}

// texts is a list of strings.
func texts(name, does string, least, most int) param {
	return param{name, false, &jsonschema.Schema{Type: "array", Description: does, MinItems: &least, MaxItems: &most,
		Items: &jsonschema.Schema{Type: "string", MinLength: new(1), MaxLength: new(2000)}}}
}

// values is an object of texts, numbers, booleans and nulls by free names.
func values(name, does string, most int) param {
	return param{name, false, &jsonschema.Schema{Type: "object", Description: does, MaxProperties: &most,
		AdditionalProperties: &jsonschema.Schema{Types: []string{"string", "number", "boolean", "null"}}}}
}

// list is a list of objects.
func list(name, does string, most int, each ...param) param {
	return param{name, false, &jsonschema.Schema{Type: "array", Description: does, MaxItems: &most,
		Items: object(each...)}}
}

// nested is an object.
func nested(name, does string, each ...param) param {
	s := object(each...)
	s.Description = does
	return param{name, false, s}
}

// paging are the arguments of lists.
func paging(more ...param) []param {
	return slices.Concat([]param{
		number("limit", "How many items; 20 when not given.", 1, 100),
		uuid("after", "The id of the last item of the page before this one."),
		uuid("before", "The id of the first item of the page after this one."),
	}, more)
}

// object is an object with these arguments and no others.
func object(all ...param) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	for _, p := range all {
		s.Properties[p.name] = p.schema
		s.PropertyOrder = append(s.PropertyOrder, p.name)
		if p.required {
			s.Required = append(s.Required, p.name)
		}
	}
	return s
}

// takesNull reports whether an argument may be null.
func takesNull(s *jsonschema.Schema) bool { return s != nil && slices.Contains(s.Types, "null") }
