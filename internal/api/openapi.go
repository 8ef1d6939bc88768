package api

import (
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	_ "embed"
)

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// openAPI makes the document from the operations and their types, with Huma's generator of schemas.
func (a *API) openAPI() *huma.OpenAPI {
	doc := &huma.OpenAPI{OpenAPI: "3.1.0", Info: &huma.Info{Title: "Postrider", Version: a.Version,
		Description: "The API of Postrider, an email platform that you run yourself. Send `Authorization: Bearer re_...` with each request."},
		Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}},
		Security: []map[string][]string{{"bearer": {}}}, Paths: map[string]*huma.PathItem{}}
	schemas := doc.Components.Schemas
	failure := &huma.Response{Description: "What is wrong, and what to do.", Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemas.Schema(reflect.TypeFor[envelope](), true, "Error")}}}
	for _, o := range a.ops {
		if o.tag == "" {
			continue // aliases and what is not for clients
		}
		d := &huma.Operation{OperationID: operationID(o), Summary: o.summary, Tags: []string{o.tag}, Responses: map[string]*huma.Response{
			strconv.Itoa(o.status): {Description: "Done.", Content: map[string]*huma.MediaType{
				"application/json": {Schema: schemas.Schema(o.out, true, operationID(o)+"Response")}}},
			"default": failure}}
		for _, m := range pathParam.FindAllStringSubmatch(o.path, -1) {
			d.Parameters = append(d.Parameters, &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
		}
		for _, q := range o.query {
			d.Parameters = append(d.Parameters, &huma.Param{Name: q, In: "query", Schema: &huma.Schema{Type: "string"}})
		}
		if o.in != reflect.TypeFor[none]() {
			d.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
				"application/json": {Schema: schemas.Schema(o.in, true, operationID(o)+"Request")}}}
		}
		if doc.Paths[o.path] == nil {
			doc.Paths[o.path] = &huma.PathItem{}
		}
		item := doc.Paths[o.path]
		switch o.method {
		case http.MethodGet:
			item.Get = d
		case http.MethodPost:
			item.Post = d
		case http.MethodPatch:
			item.Patch = d
		case http.MethodDelete:
			item.Delete = d
		}
	}
	return doc
}

// schemaName names generic lists after what they hold.
func schemaName(t reflect.Type, hint string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if i := strings.IndexByte(name, '['); i >= 0 {
		inner := name[strings.LastIndexAny(name, "./")+1:]
		name = "ListOf" + strings.Trim(inner, "[]")
	}
	if name == "" {
		return hint
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// operationID is made of the summary: "Send an email" is sendAnEmail.
func operationID(o op) string {
	words := strings.FieldsFunc(o.summary, func(r rune) bool { return r < 'A' || r > 'z' })
	for i, w := range words {
		if w = strings.ToLower(w); i > 0 {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		words[i] = w
	}
	return strings.Join(words, "")
}

// document is the OpenAPI document, made once.
func (a *API) document() []byte {
	text, err := a.openAPI().MarshalJSON()
	if err != nil {
		text, _ = json.Marshal(envelope{500, "The document could not be made: " + err.Error(), "application_error"})
	}
	return text
}

// Document serves the OpenAPI document.
func (a *API) Document(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, a.doc()) }

//go:embed docs.html
var docsText string

type docsOp struct {
	Method, Path, Summary, ID string
	Params                    []string
	Body, Answer              string
}

type docsPage struct {
	Version string
	Tags    []string
	Ops     map[string][]docsOp
}

// Docs serves a page for people, made from the same operations.
func (a *API) Docs(w http.ResponseWriter, r *http.Request) {
	p := docsPage{Version: a.Version, Ops: map[string][]docsOp{}}
	schemas := a.openAPI().Components.Schemas
	for _, o := range a.ops {
		if o.tag == "" {
			continue
		}
		if !slices.Contains(p.Tags, o.tag) {
			p.Tags = append(p.Tags, o.tag)
		}
		d := docsOp{Method: o.method, Path: o.path, Summary: o.summary, ID: operationID(o), Params: o.query, Answer: outline(schemas, o.out)}
		if o.in != reflect.TypeFor[none]() {
			d.Body = outline(schemas, o.in)
		}
		p.Ops[o.tag] = append(p.Ops[o.tag], d)
	}
	t, err := template.New("docs").Parse(docsText)
	if err == nil {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		err = t.Execute(w, p)
	}
	if err != nil {
		a.Log.Error("could not show the documentation", "error", err)
	}
}

// outline writes a schema as people read it: a line for each field.
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
