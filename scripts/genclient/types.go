package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// goType is the Go type of a schema.
type goType struct {
	name     string
	nullable bool // null is allowed
	zeroNull bool // the zero value of the type stands for null
	isStruct bool
}

// generator generates the files of the package client.
type generator struct {
	doc     *document
	names   map[string]string   // Go names by the names of schemas
	sent    map[string]bool     // schemas that are part of requests
	changes map[string]bool     // schemas whose optional fields are a Field
	used    map[string][]string // services that use a schema
	order   []string            // schemas in the order of first use
	inline  map[string]string   // declarations of types without a name in the document, by name
	written map[string]bool     // names of the types in inline whose declarations are in a file
	roles   map[string][]string // what the methods of a service use a schema for, as in "is the request of [S.M]"
	errs    []error
}

// nameTypes chooses the Go names of all schemas. The suffix Request is left out where that is possible, as in
// CreateDomain.
func (g *generator) nameTypes() {
	schemas := g.doc.Components.Schemas
	for name := range schemas {
		short, isRequest := strings.CutSuffix(name, "Request")
		if _, taken := schemas[short]; isRequest && !taken && !slices.Contains(reserved, short) {
			g.names[name] = short
			continue
		}
		g.names[name] = name
		if slices.Contains(reserved, name) && name != "Error" {
			g.names[name] = name + "Object"
		}
	}
}

// mark notes that a service uses a schema and all schemas in it. The parameter sent means that the schema is part of a
// request.
func (g *generator) mark(s *schema, service string, sent bool) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		name := refName(s.Ref)
		if slices.Contains(g.used[name], service) && (g.sent[name] || !sent) {
			return
		}
		if g.used[name] == nil {
			g.order = append(g.order, name)
		}
		if !slices.Contains(g.used[name], service) {
			g.used[name] = append(g.used[name], service)
		}
		g.sent[name] = g.sent[name] || sent
		g.mark(g.doc.Components.Schemas[name], service, sent)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		g.mark(s.Properties[name], service, sent)
	}
	g.mark(s.Items, service, sent)
	if s.AdditionalProperties != nil {
		g.mark(s.AdditionalProperties.schema, service, sent)
	}
	for _, of := range slices.Concat(s.OneOf, s.AnyOf) {
		g.mark(of, service, sent)
	}
}

// isTime matches the examples of times without a format.
var isTime = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

// typeOf returns the Go type of a schema. If the schema is an object without a name, its Go name is hint.
func (g *generator) typeOf(s *schema, hint string, sent bool) goType {
	s, nullable := s.notNull()
	t := g.plainType(s, hint, sent)
	t.nullable = t.nullable || nullable
	return t
}

func (g *generator) plainType(s *schema, hint string, sent bool) goType {
	switch {
	case s.Ref != "":
		to, err := g.doc.resolve(s)
		if err != nil {
			g.errs = append(g.errs, err)
			return goType{}
		}
		if to.Type.is("object") && len(to.Properties) > 0 {
			return goType{name: g.names[refName(s.Ref)], isStruct: true}
		}
		return g.typeOf(to, g.names[refName(s.Ref)], sent)
	case len(s.OneOf) > 0:
		return g.oneOf(s, hint, sent)
	case s.Type.is("array"):
		if s.Items == nil {
			break
		}
		return goType{name: "[]" + g.typeOf(s.Items, singular(hint), sent).name, zeroNull: true}
	case s.Type.is("string") && s.ContentEncoding == "base64":
		return goType{name: "[]byte", zeroNull: true}
	case s.Type.is("string") && !sent && (s.Format == "date-time" || len(s.Examples) > 0 && exampleIsTime(s.Examples[0])):
		return goType{name: "Time", zeroNull: true}
	case s.Type.is("string"):
		return goType{name: "string"}
	case s.Type.is("boolean"):
		return goType{name: "bool"}
	case s.Type.is("integer"):
		return goType{name: "int"}
	case s.Type.is("number"):
		return goType{name: "float64"}
	case s.Type.is("object") && len(s.Properties) > 0:
		g.declareInline(s, hint, sent)
		return goType{name: hint, isStruct: true}
	case s.Type.is("object") && s.AdditionalProperties != nil && s.AdditionalProperties.schema != nil:
		return goType{name: "map[string]" + g.typeOf(s.AdditionalProperties.schema, hint+"Value", sent).name, zeroNull: true}
	case s.Type.is("object") && s.AdditionalProperties != nil:
		return goType{name: "map[string]any", zeroNull: true}
	case sent || len(s.Type.names) > 1:
		return goType{name: "any", zeroNull: true}
	case len(s.Type.names) == 0, s.Type.is("object"):
		return goType{name: "json.RawMessage", zeroNull: true}
	}
	g.errs = append(g.errs, fmt.Errorf("the schema of %s has the unknown type %v", hint, s.Type.names))
	return goType{}
}

func exampleIsTime(v any) bool {
	text, ok := v.(string)
	return ok && isTime.MatchString(text)
}

// oneOf returns the type of a schema with alternatives: the list if a single item is allowed too, base64 for files, an
// ID instead of an object with this ID, and any otherwise.
func (g *generator) oneOf(s *schema, hint string, sent bool) goType {
	var first, array *schema
	strings, objects := 0, 0
	for i, of := range s.OneOf {
		if i == 0 {
			first = of
		}
		switch {
		case of.ContentEncoding == "base64":
			return goType{name: "[]byte", zeroNull: true}
		case of.Type.is("array") && array == nil:
			array = of
		case of.Type.is("string"):
			strings++
		case of.Type.is("object"):
			objects++
		}
	}
	switch {
	case array != nil && strings+objects+1 == len(s.OneOf):
		return g.typeOf(array, hint, sent)
	case first.Type.is("string") && strings == 1 && objects+1 == len(s.OneOf):
		return g.typeOf(first, hint, sent)
	}
	return goType{name: "any", zeroNull: true}
}

// declareInline declares a struct for an object without a name in the document.
func (g *generator) declareInline(s *schema, name string, sent bool) {
	text := g.structText(s, name, sent, false)
	if have, ok := g.inline[name]; ok && have != text {
		g.errs = append(g.errs, fmt.Errorf("two different types would be called %s", name))
	}
	g.inline[name] = text
}

// structText returns the declaration of a struct. If change is true, optional fields are a Field.
func (g *generator) structText(s *schema, name string, sent, change bool) string {
	var b strings.Builder
	comment(&b, "", name+" "+g.role(name, s.Description))
	fmt.Fprintf(&b, "type %s struct {\n", name)
	var optional []string
	for _, p := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, p) {
			optional = append(optional, p)
		}
	}
	for _, p := range slices.Concat(s.Required, optional) {
		prop := s.Properties[p]
		if prop == nil {
			g.errs = append(g.errs, fmt.Errorf("%s requires %s, which it does not describe", name, p))
			continue
		}
		if sent && (prop.Deprecated || strings.HasPrefix(prop.Description, "Deprecated")) {
			continue // an older name of another field
		}
		required := slices.Contains(s.Required, p)
		t := g.typeOf(prop, name+camel(p), sent)
		text, tag := t.name, p
		onByDefault := t.name == "bool" && prop.Default == true
		switch {
		case !required && change, required && change && t.nullable:
			text = "Field[" + t.name + "]"
		case t.nullable && !t.zeroNull, !required && (t.isStruct || onByDefault):
			text = "*" + t.name
		}
		if !required {
			tag += ",omitzero"
		}
		comment(&b, "\t", fieldText(prop))
		fmt.Fprintf(&b, "\t%s %s `json:%q`\n", camel(p), text, tag)
	}
	b.WriteString("}\n\n")
	return b.String()
}

// fieldText returns the comment of a field: its description, the values that it may have, and its default.
func fieldText(s *schema) string {
	text := s.Description
	add := func(format string, args ...any) {
		if text = strings.TrimSpace(text); text != "" && !strings.HasSuffix(text, ".") {
			text += "."
		}
		text = strings.TrimSpace(text + " " + fmt.Sprintf(format, args...))
	}
	if len(s.Enum) > 1 {
		var values []string
		for _, v := range s.Enum {
			if v != nil {
				values = append(values, fmt.Sprint(v))
			}
		}
		add("One of: %s.", strings.Join(values, ", "))
	}
	if s.Default != nil {
		def, err := json.Marshal(s.Default)
		if err == nil {
			add("The default is %s.", strings.Trim(string(def), `"`))
		}
	}
	if s.Deprecated {
		add("Deprecated.")
	}
	return text
}

// commentWidth is the number of columns of comments.
const commentWidth = 115

// comment writes a comment with the given indentation. Empty lines separate paragraphs, and lines that begin with a
// dash are the items of a list.
func comment(b io.StringWriter, indent, text string) {
	if text == "" {
		return
	}
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(indent + "//\n")
		}
		if !strings.HasPrefix(paragraph, "- ") {
			wrap(b, indent+"// ", indent+"// ", paragraph)
			continue
		}
		for item := range strings.SplitSeq("\n"+paragraph, "\n- ") {
			if item != "" {
				wrap(b, indent+"//   - ", indent+"//     ", item)
			}
		}
	}
}

// wrap writes a text in lines of at most commentWidth columns. The first line begins with first, and the others with
// rest.
func wrap(b io.StringWriter, first, rest, text string) {
	line := first
	for word := range strings.FieldsSeq(text) {
		if line != first && line != rest && len(line)+len(word) > commentWidth {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = rest
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// typesOf writes the types that only one service uses, or those that several services use if service is "".
func (g *generator) typesOf(b *bytes.Buffer, service string) {
	for _, name := range g.order {
		only := len(g.used[name]) == 1
		if only && g.used[name][0] != service || !only && service != "" || name == "Error" {
			continue
		}
		s := g.doc.Components.Schemas[name]
		if !s.Type.is("object") || len(s.Properties) == 0 || g.listItem(s) != nil {
			continue // its users have the type itself
		}
		b.WriteString(g.structText(s, g.names[name], g.sent[name], g.changes[name]))
		g.writeInline(b)
	}
}

// role returns the comment of a type without its name: what methods use it for, and its description.
func (g *generator) role(name, description string) string {
	text := "is part of other types."
	for schema, roles := range g.roles {
		if g.names[schema] != name {
			continue
		}
		switch verb, _, _ := strings.Cut(roles[0], " ["); {
		case len(roles) == 1:
			text = roles[0] + "."
		case !slices.ContainsFunc(roles, func(r string) bool { return !strings.HasPrefix(r, verb+" [") }):
			text = verb + " several methods."
		default:
			text = "is used by several methods."
		}
	}
	return strings.TrimSpace(text + " " + description)
}

// writeInline writes the declarations of the types without a name that were not written before.
func (g *generator) writeInline(b *bytes.Buffer) {
	for _, name := range slices.Sorted(maps.Keys(g.inline)) {
		if !g.written[name] {
			b.WriteString(g.inline[name])
			g.written[name] = true
		}
	}
}

// listFields are the fields of a list.
var listFields = []string{"data", "has_more", "next", "object", "searched_back_to"}

// listItem returns the schema of the items if a schema is a list, or nil.
func (g *generator) listItem(s *schema) *schema {
	data := s.Properties["data"]
	if data == nil || !data.Type.is("array") || s.Properties["has_more"] == nil {
		return nil
	}
	for name := range s.Properties {
		if !slices.Contains(listFields, name) {
			g.errs = append(g.errs, fmt.Errorf("a list has the field %s, which the type List of the client lacks", name))
		}
	}
	return data.Items
}
