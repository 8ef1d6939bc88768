package wire

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire/samples"
)

// Text describes an operation in words, with an example request and a recorded response.
type Text struct {
	Description string
	Repeat      string           // what a second, equal request does
	Errors      []ReferenceError // errors besides those that follow from the operation's type
	Example     samples.Request  // without method and path
	Response    string           // the recorded response to the example; "" if none was recorded
	Event       bool             // the response never ends, so that only its beginning was recorded
}

// ReferenceGroup is a group of operations in the API reference.
type ReferenceGroup struct {
	Tag         string
	ID          string // part of the group's address, such as api-keys
	Description string
	Operations  []ReferenceOperation
}

// ReferenceOperation describes an operation in the API reference.
type ReferenceOperation struct {
	ID, Method, Path, Summary string
	Description, Repeat       string
	Status                    int      // status of a successful response
	Scopes                    []string // scopes that an OAuth client or a role needs; empty if none is needed
	Roles                     []string // roles whose users may use the operation; empty if no scope is needed
	Action                    string   // action in the audit log; "" if the operation is not recorded
	RefusesApps               bool     // no OAuth client may use the operation
	Permission                string   // the permission that an API key needs
	Idempotent                bool     // whether the operation honors the header Idempotency-Key
	Paginated                 bool
	PathParams, Query         []ReferenceField
	Headers                   []ReferenceField // request headers that only some operations read
	Body, Response            []ReferenceField
	BodyType, ResponseType    string // types of the body and of the response, such as "object" or "CSV file"
	Errors                    []ReferenceError
	Examples                  []ReferenceExample
	ResponseExample           string
	BodyExample               string // the JSON body of the example request; "" if it has none
}

// CanTry reports whether a form of a page can send the request: it has no file, and its response ends.
func (o *ReferenceOperation) CanTry() bool {
	return !strings.HasPrefix(o.BodyType, "form") && !strings.HasPrefix(o.ResponseType, "stream")
}

// ReferenceField describes a field of a request or a response, or a parameter.
type ReferenceField struct {
	Name        string
	Type        string // such as "string", "list of objects" or "UUID or null"
	Required    bool
	Limits      string // such as "1 to 100"; empty if the field has none
	Description string
	Children    []ReferenceField // fields of an object, or of the objects in a list
}

// ReferenceError describes an error and its cause.
type ReferenceError struct {
	Status      int
	Name, Cause string
}

// ReferenceExample is an example request in a language. The languages are those of package samples.
type ReferenceExample struct{ Language, Code string }

// Label returns the name of the language for readers.
func (e ReferenceExample) Label() string { return samples.Labels[e.Language] }

// ReferenceGroups returns the API reference. It is built anew by each call, because it takes about a megabyte.
func (s *Server) ReferenceGroups() ([]ReferenceGroup, error) { return s.referenceGroups("") }

// ReferenceGroup returns the group with an ID. If no group has the ID, ok is false.
func (s *Server) ReferenceGroup(id string) (g ReferenceGroup, ok bool, err error) {
	groups, err := s.referenceGroups(id)
	if err != nil || len(groups) == 0 {
		return g, false, err
	}
	return groups[0], true, nil
}

// referenceGroups returns the group with an ID, or all groups if id is "".
func (s *Server) referenceGroups(id string) (all []ReferenceGroup, err error) {
	doc := s.openAPI()
	for i := range s.opts.Operations {
		o := &s.opts.Operations[i]
		if o.Tag == "" || id != "" && tagID(o.Tag) != id {
			continue
		}
		at := slices.IndexFunc(all, func(g ReferenceGroup) bool { return g.Tag == o.Tag })
		if at < 0 {
			at = len(all)
			all = append(all, ReferenceGroup{Tag: o.Tag, ID: tagID(o.Tag), Description: s.groupText(o.Tag)})
		}
		r, err := s.referenceOperation(doc, o)
		if err != nil {
			return nil, err
		}
		all[at].Operations = append(all[at].Operations, r)
	}
	return all, nil
}

func (s *Server) groupText(tag string) string {
	if s.opts.Description.GroupText == nil {
		return ""
	}
	return s.opts.Description.GroupText(tag)
}

// text returns the text of an operation, or an empty one.
func (s *Server) text(o *Operation) *Text {
	if s.opts.Description.OperationText != nil {
		if t := s.opts.Description.OperationText(o); t != nil {
			return t
		}
	}
	return &Text{}
}

// documented returns the OpenAPI description of an operation.
func documented(doc *huma.OpenAPI, o *Operation) *huma.Operation {
	item := doc.Paths[o.Path]
	switch o.Method {
	case http.MethodPost:
		return item.Post
	case http.MethodPut:
		return item.Put
	case http.MethodPatch:
		return item.Patch
	case http.MethodDelete:
		return item.Delete
	}
	return item.Get
}

func (s *Server) referenceOperation(doc *huma.OpenAPI, o *Operation) (ReferenceOperation, error) {
	d, text, schemas := documented(doc, o), s.text(o), doc.Components.Schemas
	r := ReferenceOperation{ID: operationID(o), Method: o.Method, Path: o.Path, Summary: o.Summary,
		Description: text.Description, Repeat: text.Repeat, Status: o.Status, Permission: permission(o),
		Scopes: o.scopes(), Roles: o.roles(), Action: o.Audit.Name, RefusesApps: o.RefusesApps,
		Paginated: slices.Contains(o.Query, "limit"), Errors: s.errorsOf(o), ResponseExample: text.Response}
	for _, p := range d.Parameters {
		f := field(schemas, p.Name, p.Schema, p.Required)
		f.Description = p.Description
		switch {
		case p.In == "path":
			r.PathParams = append(r.PathParams, f)
		case p.In == "query":
			f.Limits = strings.Replace(f.Limits, " characters", " bytes", 1)
			r.Query = append(r.Query, f)
		case p.Name == idempotencyHeader:
			r.Idempotent = true
		default:
			r.Headers = append(r.Headers, f)
		}
	}
	if d.RequestBody != nil {
		r.BodyType, r.Body = content(schemas, d.RequestBody.Content)
	}
	r.ResponseType, r.Response = content(schemas, d.Responses[strconv.Itoa(o.Status)].Content)
	if text.Example.Body != nil {
		var err error
		if r.BodyExample, err = samples.Format(text.Example.Body); err != nil {
			return r, fmt.Errorf("format the body of the example: %w", err)
		}
	}
	example := text.Example
	example.Method, example.Path = o.Method, o.Path
	printed, err := samples.Print(example)
	if err != nil {
		return r, fmt.Errorf("print the example: %w", err)
	}
	for _, e := range printed {
		r.Examples = append(r.Examples, ReferenceExample(e))
	}
	return r, nil
}

const idempotencyHeader = "Idempotency-Key"

// permission returns the permission of API keys that an operation needs.
func permission(o *Operation) string {
	switch {
	case o.Scope == Open:
		return "none"
	case teams.SendingAccess.Scopes().Has(o.Scope):
		return string(teams.SendingAccess)
	}
	return string(teams.FullAccess)
}

//go:embed reference.html
var referenceText string

var referenceTemplate = sync.OnceValues(func() (*template.Template, error) {
	return template.New("reference").Parse(referenceText)
})

// RenderReferenceGroup returns a group of the API reference as HTML for a page. Each operation's section has the
// operation's ID as its HTML ID. If tryIt is true, each section has a form that sends a request from the browser.
func (s *Server) RenderReferenceGroup(id string, tryIt bool) (page template.HTML, ok bool, err error) {
	g, ok, err := s.ReferenceGroup(id)
	if err != nil || !ok {
		return "", ok, err
	}
	page, err = RenderGroup(&g, tryIt)
	return page, true, err
}

// RenderGroup is RenderReferenceGroup for a group that the caller has.
func RenderGroup(g *ReferenceGroup, tryIt bool) (template.HTML, error) {
	return render("group", struct {
		*ReferenceGroup
		TryIt bool
	}{g, tryIt})
}

func render(name string, data any) (template.HTML, error) {
	t, err := referenceTemplate()
	if err != nil {
		return "", fmt.Errorf("parse the template of the API reference: %w", err)
	}
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
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
		page := "/docs/api/" + tagID(o.Tag)
		if !slices.ContainsFunc(all, func(x Section) bool { return x.Title == o.Tag && x.Detail == "" }) {
			all = append(all, Section{Title: o.Tag, Path: page})
		}
		all = append(all, Section{Title: o.Summary, Detail: o.Method + " " + o.Path, Path: page + "#" + operationID(o)})
	}
	return all
}

// tagID returns the ID of a group, which is a part of its address.
func tagID(tag string) string { return strings.ReplaceAll(strings.ToLower(tag), " ", "-") }

// byStatus orders errors by status, and errors with the same status by name.
func byStatus(a, b ReferenceError) int {
	return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Name, b.Name))
}
