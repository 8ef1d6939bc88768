package wire

import (
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Media types of responses.
const (
	MediaJSON   = "application/json"
	MediaCSV    = "text/csv"
	MediaNDJSON = "application/x-ndjson"
	MediaEvents = "text/event-stream"
)

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// Description holds the parts of the OpenAPI document that are not derived from the operations and their types.
type Description struct {
	Title, Text string
	// QueryParam describes one of an operation's query parameters.
	QueryParam func(o *Operation, name string) *huma.Param
	// RequestHeaders returns the request headers that an operation reads, or nil if it does not read any.
	RequestHeaders func(o *Operation) []*huma.Param
	// ResponseHeaders returns the headers in an operation's successful responses, or in its error responses.
	ResponseHeaders func(o *Operation, success bool) map[string]*huma.Header
}

// openAPI builds the OpenAPI document from the operations and their types.
func (s *Server) openAPI() *huma.OpenAPI {
	doc := &huma.OpenAPI{OpenAPI: "3.1.0", Info: &huma.Info{Title: s.opts.Description.Title,
		Version: s.opts.Version, Description: s.opts.Description.Text},
		Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}},
		Security: []map[string][]string{{"bearer": {}}}, Paths: map[string]*huma.PathItem{}}
	for i := range s.opts.Operations {
		o := &s.opts.Operations[i]
		if o.Tag == "" {
			continue // aliases and operations for load balancers are undocumented
		}
		if doc.Paths[o.Path] == nil {
			doc.Paths[o.Path] = &huma.PathItem{}
		}
		item, d := doc.Paths[o.Path], s.describe(doc.Components.Schemas, o)
		switch o.Method {
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
	for _, schema := range doc.Components.Schemas.Map() {
		relax(schema)
	}
	return doc
}

// describe returns the OpenAPI description of one operation, and adds the schemas of the operation's types to schemas.
func (s *Server) describe(schemas huma.Registry, o *Operation) *huma.Operation {
	content := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{MediaJSON: {Schema: schemas.Schema(t, true, operationID(o)+t.Name())}}
	}
	response := content(o.out)
	for i, media := range o.media {
		if i == 0 {
			response = map[string]*huma.MediaType{}
		}
		response[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		if media != MediaCSV {
			response[media] = content(o.out)[MediaJSON]
		}
	}
	d := &huma.Operation{OperationID: operationID(o), Summary: o.Summary, Tags: []string{o.Tag},
		Responses: map[string]*huma.Response{
			strconv.Itoa(o.Status): {Description: "Success.", Content: response},
			"default": {Description: "An error. The message says what is wrong and how to fix it.",
				Content: content(reflect.TypeFor[ErrorBody]())}}}
	for status, r := range d.Responses {
		r.Headers = s.opts.Description.ResponseHeaders(o, status != "default")
	}
	if teams.SendingAccess.Scopes().Has(o.Scope) {
		d.Description = "An API key with sending_access is sufficient."
	}
	for _, m := range pathParam.FindAllStringSubmatch(o.Path, -1) {
		p := &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}
		if strings.HasSuffix(m[1], "_id") && m[1] != "webhook_event_id" {
			p.Schema.Format = "uuid"
		}
		d.Parameters = append(d.Parameters, p)
	}
	for _, q := range o.Query {
		d.Parameters = append(d.Parameters, s.opts.Description.QueryParam(o, q))
	}
	d.Parameters = append(d.Parameters, s.opts.Description.RequestHeaders(o)...)
	if o.TakesBody() {
		d.RequestBody = &huma.RequestBody{Content: content(o.in)}
		schema := d.RequestBody.Content[MediaJSON].Schema
		if o.form {
			d.RequestBody.Content = map[string]*huma.MediaType{mediaForm: {Schema: schema}}
		}
		if schema.Ref != "" {
			schema = schemas.SchemaFromRef(schema.Ref)
		}
		relax(schema)
		d.RequestBody.Required = schema.Type == huma.TypeArray || len(schema.Required) > 0
	}
	return d
}

// relax corrects two of Huma's defaults in a schema: the API does not refuse unknown fields, and its lists are never
// null.
func relax(s *huma.Schema) {
	if s == nil {
		return
	}
	if closed, ok := s.AdditionalProperties.(bool); ok && !closed {
		s.AdditionalProperties = nil
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
		relax(s.Items)
	}
	for _, p := range s.Properties {
		relax(p)
	}
}

// schemaName returns a type's name in the OpenAPI document. For example, emailWire becomes Email, and sendEmailIn
// becomes SendEmailRequest. List types are named after their elements.
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
	case t == reflect.TypeFor[ErrorBody]():
		return "Error"
	case t == reflect.TypeFor[ReadOnly]():
		return "Elsewhere" // the type's name in earlier versions of the OpenAPI document
	case strings.HasSuffix(name, "Wire"):
		name = strings.TrimSuffix(name, "Wire")
	case strings.HasSuffix(name, "In"):
		name = strings.TrimSuffix(name, "In") + "Request"
	case strings.HasSuffix(name, "Out"):
		name = strings.TrimSuffix(name, "Out") + "Response"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// operationID returns the ID of an operation. If the operation has no explicit ID, the ID is derived from the summary:
// "Send an email" becomes sendAnEmail.
func operationID(o *Operation) string {
	if o.ID != "" {
		return o.ID
	}
	words := strings.FieldsFunc(strings.ReplaceAll(o.Summary, "'", ""), func(r rune) bool { return r < 'A' || r > 'z' })
	for i, w := range words {
		if w = strings.ToLower(w); i > 0 {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		words[i] = w
	}
	return strings.Join(words, "")
}

// makeDocument returns the OpenAPI document as JSON.
func (s *Server) makeDocument() []byte {
	text, err := s.openAPI().MarshalJSON()
	if err != nil {
		text, _ = json.Marshal(ErrorBody{500, "The document could not be made: " + err.Error(), "application_error"})
	}
	return text
}

// serveDocument serves the OpenAPI document.
func (s *Server) serveDocument(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, s.document())
}
