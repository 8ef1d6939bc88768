package mcp

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// param describes an argument to a tool.
type param struct {
	name     string
	required bool
	schema   *jsonschema.Schema
}

// must returns a required copy of the argument.
func (p param) must() param {
	p.required = true
	return p
}

// orNull returns a copy of the argument that also allows null. Passing null removes a value.
func (p param) orNull() param {
	s := *p.schema
	if s.Types == nil {
		s.Types = []string{s.Type}
	}
	s.Types, s.Type = append(slices.Clip(s.Types), "null"), ""
	p.schema = &s
	return p
}

// text returns a string argument with a length of 1 to the given number of characters.
func text(name, description string, most int) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: description, MinLength: new(1),
		MaxLength: &most}}
}

// long returns a string argument that may be empty or as long as a whole request.
func long(name, description string) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: description, MaxLength: new(bodyMax)}}
}

// uuid returns an argument for an id. The pattern ensures that an id cannot change the request's path to the path of
// another operation.
func uuid(name, description string) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: description, Format: "uuid",
		Pattern: "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}}
}

func flag(name, description string) param {
	return param{name, false, &jsonschema.Schema{Type: "boolean", Description: description}}
}

func number(name, description string, least, most float64) param {
	return param{name, false, &jsonschema.Schema{Type: "integer", Description: description, Minimum: &least,
		Maximum: &most}}
}

func choice(name, description string, values ...any) param {
	return param{name, false, &jsonschema.Schema{Type: "string", Description: description, Enum: values}}
}

// texts returns an argument that is a list of strings.
func texts(name, description string, least, most int) param {
	return param{name, false, &jsonschema.Schema{Type: "array", Description: description, MinItems: &least,
		MaxItems: &most,
		Items:    &jsonschema.Schema{Type: "string", MinLength: new(1), MaxLength: new(2000)}}}
}

// addresses returns an argument that is a list of strings or a single string, as in the API. Tools get a list.
func addresses(name, description string, least, most int) param {
	p := texts(name, description, least, most)
	p.schema.Types, p.schema.Type = []string{"array", "string"}, ""
	p.schema.MinLength, p.schema.MaxLength = new(1), new(2000)
	return p
}

// values returns an argument that is an object with any field names. The fields are strings, numbers, booleans or null.
func values(name, description string, most int) param {
	return param{name, false, &jsonschema.Schema{Type: "object", Description: description, MaxProperties: &most,
		AdditionalProperties: &jsonschema.Schema{Types: []string{"string", "number", "boolean", "null"}}}}
}

// list returns an argument that is a list of objects.
func list(name, description string, most int, each ...param) param {
	return param{name, false, &jsonschema.Schema{Type: "array", Description: description, MaxItems: &most,
		Items: object(each...)}}
}

// nested returns an argument that is an object with the given fields.
func nested(name, description string, each ...param) param {
	s := object(each...)
	s.Description = description
	return param{name, false, s}
}

const (
	limitText  = "The number of items. Default: 20."
	afterText  = "The id of the last item of the previous page."
	beforeText = "The id of the first item of the next page."
)

// paging returns the pagination arguments for a list, followed by the arguments in more.
func paging(more ...param) []param {
	return append([]param{number("limit", limitText, 1, 100), uuid("after", afterText), uuid("before", beforeText)},
		more...)
}

// opaquePaging is like paging, for lists whose items have ids that are not UUIDs.
func opaquePaging(more ...param) []param {
	return append([]param{number("limit", limitText, 1, 100), text("after", afterText, 500),
		text("before", beforeText, 500)}, more...)
}

// object returns the schema of an object that allows only the given fields.
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

// lenient returns the value in the form that the schema asks for, if a model has written it in another form with the same
// meaning: a single string for a list, or a number or a truth value as a string.
func lenient(s *jsonschema.Schema, value json.RawMessage) json.RawMessage {
	var written string
	if s == nil || json.Unmarshal(value, &written) != nil {
		return value
	}
	switch {
	case slices.Contains(s.Types, "array"):
		return slices.Concat([]byte("["), value, []byte("]"))
	case s.Type == "integer" && wholeNumber.MatchString(written), s.Type == "boolean" && (written == "true" ||
		written == "false"):
		return json.RawMessage(written)
	}
	return value
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)

// takesNull reports whether an argument may be null.
func takesNull(s *jsonschema.Schema) bool { return s != nil && slices.Contains(s.Types, "null") }
