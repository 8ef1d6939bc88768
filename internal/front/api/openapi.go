package api

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"

	_ "embed"
)

// Media types of answers, as the document names them.
const (
	mediaJSON   = "application/json"
	mediaCSV    = "text/csv"
	mediaNDJSON = "application/x-ndjson"
	mediaEvents = "text/event-stream"
)

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// parameters describes the query parameters by name; any other is text.
func parameters(name string) *huma.Param {
	p := &huma.Param{Name: name, In: "query", Schema: &huma.Schema{Type: "string"}}
	switch name {
	case "limit":
		p.Description = "How many items, 1 to 100."
		p.Schema = &huma.Schema{Type: "integer", Minimum: new(1.0), Maximum: new(100.0)}
	case "after":
		p.Description, p.Schema.Format = "Id of the item after which the list goes on. Not together with before.", "uuid"
	case "before":
		p.Description, p.Schema.Format = "Id of the item up to which the list goes, without it. Not together with after. "+
			"Lists begin with the newest item, if nothing else is said. An email that is "+
			"accepted later has a greater id, so asking again with the newest one finds what is new. With PostgreSQL, emails "+
			"accepted at the "+
			"same moment may appear in another order: go back by a minute to be certain to see each.", "uuid"
	case "status":
		p.Description = "Of logs, a class of status codes such as 4xx, or a code; of webhook events, pending, attempting, " +
			"success or failed; of imports, queued, in_progress, completed or failed; of automations, enabled or disabled; of " +
			"runs, some of running, completed, failed and cancelled, with commas; of approvals, pending, approved, rejected, " +
			"expired or failed."
	case "endpoint":
		p.Description = "What the path begins with."
	case "user_agent":
		p.Description = "What the user agent has in it, in either case."
	case "actor_id":
		p.Description, p.Schema.Format = "Only what this key, user or program did.", "uuid"
	case "action":
		p.Description = "Only this action, such as domain.created."
	case "target_id":
		p.Description, p.Schema.Format = "Only what was done to this.", "uuid"
	case "api_key_id":
		p.Schema.Format = "uuid"
	case "segment_id":
		p.Description, p.Schema.Format = "Only contacts of this segment.", "uuid"
	case "from", "to":
		p.Description = "An ISO 8601 date or datetime; to is itself left out."
	case "thread_id":
		p.Description, p.Schema.Format = "Only emails of this conversation.", "uuid"
	case "html_format":
		p.Description = "data_uri puts inline images into the HTML; cid leaves their names as they were sent."
		p.Schema.Enum, p.Schema.Default = []any{"data_uri", "cid"}, "data_uri"
	case "type":
		p.Description, p.Required = "What happened.", true
		for _, t := range broadcasts.RecipientTypes {
			p.Schema.Enum = append(p.Schema.Enum, string(t))
		}
	case "bounce_type":
		p.Description = "Only with the type bounced."
		p.Schema.Enum = []any{"permanent", "transient", "undetermined"}
	case "email":
		p.Description = "Only the contact with this address."
	case "format":
		p.Description = "The form of the file."
		p.Schema.Enum, p.Schema.Default = []any{"csv", "ndjson"}, "csv"
	case "formulas":
		p.Description = "quote puts an apostrophe before texts in CSV that a spreadsheet would take for formulas; keep " +
			"writes them as they are, so that the file can be imported again."
		p.Schema.Enum, p.Schema.Default = []any{"keep", "quote"}, "keep"
	case "origin":
		p.Schema.Enum = []any{"bounce", "complaint", "manual"}
	}
	return p
}

// opaque reports whether the cursors of a list are not the ids of things.
func (o *op) opaque() bool {
	return strings.HasPrefix(o.path, "/broadcasts/") && o.method == http.MethodGet
}

// headers returns the request headers that an operation uses.
func headers(o *op) (list []*huma.Param) {
	if o.method == http.MethodPost && slices.Contains([]string{"/emails", "/emails/batch", "/approvals"}, o.path) {
		list = append(list, &huma.Param{Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: "string",
			MinLength: new(1), MaxLength: new(256)},
			Description: "For 24 hours, a second request with the same key and the same body sends nothing and has the " +
				"answer of the first."})
	}
	if o.path == "/emails/batch" {
		list = append(list, &huma.Param{Name: "x-batch-validation", In: "header",
			Schema: &huma.Schema{Type: "string", Enum: []any{"strict", "permissive"}, Default: "strict"},
			Description: "strict accepts all emails or none; permissive accepts those that are right and lists the others in " +
				"errors."})
	}
	return list
}

// quotaHeaders describes what showQuota adds to answers.
func quotaHeaders() map[string]*huma.Header {
	of := func(period string) *huma.Header {
		return &huma.Header{Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0)},
			Description: "Emails that the team has used of its quota of the " + period +
				", sent and received. Not there without such a quota."}
	}
	return map[string]*huma.Header{"x-resend-daily-quota": of("day"), "x-resend-monthly-quota": of("month")}
}

// openAPI makes the document from the operations and their types, with Huma's generator of schemas.
func (a *API) openAPI() *huma.OpenAPI {
	doc := &huma.OpenAPI{OpenAPI: "3.1.0", Info: &huma.Info{Title: "Postrider", Version: a.Version,
		Description: "The API of Postrider, an email platform that you run yourself. Send `Authorization: Bearer re_...` " +
			"with each request."},
		Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}},
		Security: []map[string][]string{{"bearer": {}}}, Paths: map[string]*huma.PathItem{}}
	for i := range a.ops {
		o := &a.ops[i]
		if o.tag == "" {
			continue // aliases, and operations that are not for clients
		}
		if doc.Paths[o.path] == nil {
			doc.Paths[o.path] = &huma.PathItem{}
		}
		item, d := doc.Paths[o.path], describe(doc.Components.Schemas, o)
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
	for _, s := range doc.Components.Schemas.Map() {
		loosen(s)
	}
	return doc
}

func describe(schemas huma.Registry, o *op) *huma.Operation {
	content := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{mediaJSON: {Schema: schemas.Schema(t, true, operationID(*o)+t.Name())}}
	}
	answer := content(o.out)
	for i, media := range o.media {
		if i == 0 {
			answer = map[string]*huma.MediaType{}
		}
		answer[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		if media != mediaCSV {
			answer[media] = content(o.out)[mediaJSON]
		}
	}
	d := &huma.Operation{OperationID: operationID(*o), Summary: o.summary, Tags: []string{o.tag},
		Responses: map[string]*huma.Response{
			strconv.Itoa(o.status): {Description: "Done.", Content: answer},
			"default": {Description: "What is wrong, and what to do.",
				Content: content(reflect.TypeFor[envelope]())}}}
	if o.showsQuota() {
		for _, r := range d.Responses {
			r.Headers = quotaHeaders()
		}
	}
	if teams.SendingAccess.Scopes().Has(o.scope) {
		d.Description = "A key with sending_access is enough."
	}
	for _, m := range pathParam.FindAllStringSubmatch(o.path, -1) {
		p := &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}
		if strings.HasSuffix(m[1], "_id") && m[1] != "webhook_event_id" {
			p.Schema.Format = "uuid"
		}
		d.Parameters = append(d.Parameters, p)
	}
	for _, q := range o.query {
		p := parameters(q)
		if (q == "after" || q == "before") && o.opaque() {
			p.Description, p.Schema.Format = "The id of an item in the list. Not both of after and before.", ""
		}
		d.Parameters = append(d.Parameters, p)
	}
	d.Parameters = append(d.Parameters, headers(o)...)
	if o.takesBody() {
		d.RequestBody = &huma.RequestBody{Content: content(o.in)}
		s := d.RequestBody.Content["application/json"].Schema
		if o.form {
			d.RequestBody.Content = map[string]*huma.MediaType{mediaForm: {Schema: s}}
		}
		if s.Ref != "" {
			s = schemas.SchemaFromRef(s.Ref)
		}
		loosen(s)
		d.RequestBody.Required = s.Type == huma.TypeArray || len(s.Required) > 0
	}
	return d
}

// loosen removes what Huma assumes of types by default and is not so here: that unknown members are refused, and that
// lists may be null.
func loosen(s *huma.Schema) {
	if s == nil {
		return
	}
	if closed, ok := s.AdditionalProperties.(bool); ok && !closed {
		s.AdditionalProperties = nil
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
		loosen(s.Items)
	}
	for _, p := range s.Properties {
		loosen(p)
	}
}

// schemaName returns the public names of types: emailWire is Email, sendEmailIn SendEmailRequest, and lists are named
// after their elements.
func schemaName(t reflect.Type, hint string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if i := strings.IndexByte(name, '['); i >= 0 {
		inner := name[strings.LastIndexAny(name, "./")+1:]
		name = "listOf" + strings.ToUpper(inner[:1]) + strings.Trim(inner[1:], "[]")
	}
	switch {
	case name == "":
		return hint
	case name == "envelope":
		return "Error"
	case strings.HasSuffix(name, "Wire"):
		name = strings.TrimSuffix(name, "Wire")
	case strings.HasSuffix(name, "In"):
		name = strings.TrimSuffix(name, "In") + "Request"
	case strings.HasSuffix(name, "Out"):
		name = strings.TrimSuffix(name, "Out") + "Response"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// operationID is made of the summary: "Send an email" is sendAnEmail.
func operationID(o op) string {
	words := strings.FieldsFunc(strings.ReplaceAll(o.summary, "'", ""), func(r rune) bool { return r < 'A' || r > 'z' })
	for i, w := range words {
		if w = strings.ToLower(w); i > 0 {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		words[i] = w
	}
	return strings.Join(words, "")
}

// document makes the OpenAPI document; it runs once.
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

// docsHTML makes the documentation page from the same operations; it runs once.
func (a *API) docsHTML() ([]byte, error) {
	p := docsPage{Version: a.Version, Ops: map[string][]docsOp{}}
	schemas := a.openAPI().Components.Schemas
	for _, o := range a.ops {
		if o.tag == "" {
			continue
		}
		if !slices.Contains(p.Tags, o.tag) {
			p.Tags = append(p.Tags, o.tag)
		}
		d := docsOp{Method: o.method, Path: o.path, Summary: o.summary, ID: operationID(o), Params: o.query,
			Answer: outline(schemas, o.out)}
		if o.takesBody() {
			d.Body = outline(schemas, o.in)
		}
		p.Ops[o.tag] = append(p.Ops[o.tag], d)
	}
	t, err := template.New("docs").Parse(docsText)
	if err != nil {
		return nil, fmt.Errorf("parse the page of the documentation: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("write the page of the documentation: %w", err)
	}
	return b.Bytes(), nil
}

// Docs serves the documentation page.
func (a *API) Docs(w http.ResponseWriter, r *http.Request) {
	page, err := a.docs()
	if err != nil {
		a.fail(w.(*recorder), r, err)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"text/html; charset=utf-8"}
	h["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'unsafe-inline'"}
	w.Write(page)
}

// outline returns a schema in a readable form: a line for each field.
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
