package wire

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsText string

// docsOperation represents an operation on the documentation page.
type docsOperation struct {
	Method, Path, Summary, ID string
	Params                    []string
	Body, Response            string
}

// docsData holds the data for the documentation page, with operations grouped by tag.
type docsData struct {
	Version    string
	Tags       []string
	Operations map[string][]docsOperation
}

// makeDocsPage returns the API documentation page as HTML.
func (s *Server) makeDocsPage() ([]byte, error) {
	p := docsData{Version: s.opts.Version, Operations: map[string][]docsOperation{}}
	schemas := s.openAPI().Components.Schemas
	for i := range s.opts.Operations {
		o := &s.opts.Operations[i]
		if o.Tag == "" {
			continue
		}
		if !slices.Contains(p.Tags, o.Tag) {
			p.Tags = append(p.Tags, o.Tag)
		}
		d := docsOperation{Method: o.Method, Path: o.Path, Summary: o.Summary, ID: operationID(o), Params: o.Query,
			Response: outline(schemas, o.out)}
		if o.TakesBody() {
			d.Body = outline(schemas, o.in)
		}
		p.Operations[o.Tag] = append(p.Operations[o.Tag], d)
	}
	t, err := template.New("docs").Funcs(template.FuncMap{"id": tagID}).Parse(docsText)
	if err != nil {
		return nil, fmt.Errorf("parse the documentation page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("render the documentation page: %w", err)
	}
	return b.Bytes(), nil
}

// Section is a heading of the documentation page.
type Section struct {
	Title  string
	Detail string // method and path of an operation, or "" for a group of operations
	Path   string // address of the section
}

// Sections returns the headings of the documentation page, in the order of the page.
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

// tagID returns the id of a group's heading on the documentation page.
func tagID(tag string) string { return "group-" + strings.ReplaceAll(strings.ToLower(tag), " ", "-") }

// serveDocsPage serves the API documentation page.
func (s *Server) serveDocsPage(w http.ResponseWriter, r *http.Request) {
	page, err := s.docsPage()
	if err != nil {
		s.fail(w.(*recorder), r, err)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"text/html; charset=utf-8"}
	h["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'unsafe-inline'"}
	w.Write(page)
}

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
