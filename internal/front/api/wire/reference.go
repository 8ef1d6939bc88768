package wire

import (
	_ "embed"
	"fmt"
	"html/template"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed reference.html
var referenceText string

// docsOperation represents an operation in the API reference.
type docsOperation struct {
	Method, Path, Summary, ID string
	Params                    []docsParam
	Body, Response            string
}

// docsParam represents a query parameter in the API reference.
type docsParam struct {
	Name, Type, Text string
	Required         bool
}

func (s *Server) docsParams(o *Operation) (all []docsParam) {
	for _, name := range o.Query {
		p := s.opts.Description.QueryParam(o, name)
		all = append(all, docsParam{p.Name, typeOf(p.Schema), p.Description, p.Required})
	}
	return all
}

// typeOf describes the type and the limits of a query parameter, such as "integer, 1 to 100, default 20".
func typeOf(s *huma.Schema) string {
	text := s.Type
	switch {
	case len(s.Enum) > 0:
		names := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			names[i] = fmt.Sprint(v)
		}
		text = strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	case s.Format == "uuid":
		text = "UUID"
	case s.Format != "":
		text = s.Format
	}
	if s.Minimum != nil && s.Maximum != nil {
		text += fmt.Sprintf(", %v to %v", *s.Minimum, *s.Maximum)
	}
	if s.MaxLength != nil {
		text += fmt.Sprintf(", at most %d bytes", *s.MaxLength)
	}
	if s.Default != nil {
		text += fmt.Sprintf(", default %v", s.Default)
	}
	return text
}

// docsData holds the data for the API reference, with operations grouped by tag.
type docsData struct {
	Tags       []string
	Operations map[string][]docsOperation
}

// Reference returns the API reference as HTML that a page contains. Its classes are those of the pages' style sheet.
func (s *Server) Reference() (template.HTML, error) { return s.reference() }

func (s *Server) makeReference() (template.HTML, error) {
	p := docsData{Operations: map[string][]docsOperation{}}
	schemas := s.openAPI().Components.Schemas
	for i := range s.opts.Operations {
		o := &s.opts.Operations[i]
		if o.Tag == "" {
			continue
		}
		if !slices.Contains(p.Tags, o.Tag) {
			p.Tags = append(p.Tags, o.Tag)
		}
		d := docsOperation{Method: o.Method, Path: o.Path, Summary: o.Summary, ID: operationID(o), Params: s.docsParams(o),
			Response: outline(schemas, o.out)}
		if o.TakesBody() {
			d.Body = outline(schemas, o.in)
		}
		p.Operations[o.Tag] = append(p.Operations[o.Tag], d)
	}
	t, err := template.New("reference").Funcs(template.FuncMap{"id": tagID}).Parse(referenceText)
	if err != nil {
		return "", fmt.Errorf("parse the API reference: %w", err)
	}
	var b strings.Builder
	if err := t.Execute(&b, p); err != nil {
		return "", fmt.Errorf("render the API reference: %w", err)
	}
	return template.HTML(b.String()), nil
}

// Section is a heading of the API reference.
type Section struct {
	Title  string
	Detail string // method and path of an operation, or "" for a group of operations
	Path   string // address of the section
}

// Sections returns the headings of the API reference, in their order.
func (s *Server) Sections() (all []Section) {
	for i := range s.opts.Operations {
		o := &s.opts.Operations[i]
		if o.Tag == "" {
			continue
		}
		if !slices.ContainsFunc(all, func(x Section) bool { return x.Title == o.Tag && x.Detail == "" }) {
			all = append(all, Section{Title: o.Tag, Path: "/docs#" + tagID(o.Tag)})
		}
		all = append(all, Section{Title: o.Summary, Detail: o.Method + " " + o.Path, Path: "/docs#" + operationID(o)})
	}
	return all
}

// tagID returns the id of a group's heading in the API reference.
func tagID(tag string) string { return "group-" + strings.ReplaceAll(strings.ToLower(tag), " ", "-") }

// outline formats a type's JSON schema as text with one line per field.
func outline(r huma.Registry, t reflect.Type) string {
	var b strings.Builder
	s := r.Schema(t, true, t.Name())
	writeOutline(&b, r, s, 0)
	return b.String()
}

func writeOutline(b *strings.Builder, r huma.Registry, s *huma.Schema, depth int) {
	if s.Ref != "" {
		s = r.SchemaFromRef(s.Ref)
	}
	if s == nil || depth > 4 {
		return
	}
	if s.Type == "array" && s.Items != nil {
		writeOutline(b, r, s.Items, depth)
		return
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		if rx, ry := slices.Contains(s.Required, x), slices.Contains(s.Required, y); rx != ry {
			if rx {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
	for _, name := range names {
		p := s.Properties[name]
		typ := p.Type
		if typ == "" {
			typ = "any"
		}
		b.WriteString(strings.Repeat("    ", depth) + name + "  " + typ)
		if slices.Contains(s.Required, name) {
			b.WriteString("  required")
		}
		if p.Description != "" {
			b.WriteString("  — " + p.Description)
		}
		b.WriteByte('\n')
		writeOutline(b, r, p, depth+1)
	}
}
