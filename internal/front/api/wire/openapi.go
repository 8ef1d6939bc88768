package wire

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Media types of responses.
const (
	MediaJSON   = "application/json"
	MediaCSV    = "text/csv"
	MediaNDJSON = "application/x-ndjson"
	MediaEvents = "text/event-stream"
	MediaFile   = "application/*" // a file whose type the response says
)

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// Description holds the parts of the OpenAPI document that are not derived from the operations and their types.
type Description struct {
	Title, Text string
	// QueryParam describes one of an operation's query parameters.
	QueryParam func(o *Operation, name string) *huma.Param
	// RequestHeaders returns the request headers that an operation reads, or nil if it does not read any.
	RequestHeaders func(o *Operation) []*huma.Param
	// OperationText describes an operation in words; nil for none.
	OperationText func(o *Operation) *Text
	// GroupText describes a group of operations.
	GroupText func(tag string) string
	// FieldText describes a field of a schema that has no description of its own, because many types share the field.
	FieldText func(schema, field string) string
	// ResponseHeaders returns the headers in an operation's successful responses, or in its error responses.
	ResponseHeaders func(o *Operation, success bool) map[string]*huma.Header
}

// openAPI builds the OpenAPI document from the operations and their types.
func (s *Server) openAPI() *huma.OpenAPI {
	doc := &huma.OpenAPI{OpenAPI: "3.1.0", Info: &huma.Info{Title: s.opts.Description.Title,
		Version: s.opts.Version, Description: s.opts.Description.Text},
		Components: &huma.Components{Schemas: newRegistry(),
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}},
		Security: []map[string][]string{{"bearer": {}}}, Paths: map[string]*huma.PathItem{},
		Servers: []*huma.Server{{URL: cmp.Or(s.opts.PublicURL, "/"), Description: "This installation."}}}
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
		case http.MethodPut:
			item.Put = d
		case http.MethodPatch:
			item.Patch = d
		case http.MethodDelete:
			item.Delete = d
		}
	}
	for name, schema := range doc.Components.Schemas.Map() {
		relax(schema)
		s.describeFields(name, schema)
	}
	for _, tag := range s.tags() {
		doc.Tags = append(doc.Tags, &huma.Tag{Name: tag, Description: s.groupText(tag)})
	}
	return doc
}

// anyObject is the type of raw JSON in the OpenAPI document: an object whose fields the type does not know.
type anyObject struct{}

// Schema describes the object.
func (anyObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// newRegistry returns an empty registry of schemas. Raw JSON is an object in all types that have it.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", schemaName)
	r.RegisterTypeAlias(reflect.TypeFor[jsontext.Value](), reflect.TypeFor[anyObject]())
	return r
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
		if media != MediaCSV && media != MediaFile {
			response[media] = content(o.out)[MediaJSON]
		}
	}
	text := s.text(o)
	d := &huma.Operation{OperationID: operationID(o), Summary: o.Summary, Tags: []string{o.Tag},
		Description: s.describeOperation(o, text), Responses: map[string]*huma.Response{
			strconv.Itoa(o.Status): {Description: "Success.", Content: response},
			"default": {Description: "An error. The message says what is wrong and how to fix it.",
				Content: content(reflect.TypeFor[ErrorBody]())}}}
	for status, r := range d.Responses {
		r.Headers = s.opts.Description.ResponseHeaders(o, status != "default")
	}
	if json := response[MediaJSON]; json != nil && text.Response != "" && !text.Event {
		json.Example = jsontext.Value(text.Response)
	}
	for _, m := range pathParam.FindAllStringSubmatch(o.Path, -1) {
		p := &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: "string"},
			Description: s.fieldText("", m[1])}
		if isID(m[1]) {
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
		if m := d.RequestBody.Content[MediaJSON]; m != nil && text.Example.Body != nil {
			m.Example = jsontext.Value(text.Example.Body)
		}
		d.RequestBody.Required = schema.Type == huma.TypeArray || len(schema.Required) > 0
	}
	return d
}

// describeOperation returns the description of an operation: what it does, what a second request does, the permission
// that it needs, and its errors.
func (s *Server) describeOperation(o *Operation, text *Text) string {
	var b strings.Builder
	for _, sentence := range []string{text.Description, text.Repeat} {
		if sentence != "" {
			b.WriteString(sentence + "\n\n")
		}
	}
	if teams.SendingAccess.Scopes().Has(o.Scope) {
		b.WriteString("An API key with sending_access is sufficient.")
	} else if o.Scope != Open {
		b.WriteString("The API key needs full_access.")
	}
	switch names := o.scopes(); {
	case len(names) == 0:
	case o.RefusesApps:
		b.WriteString(" OAuth clients cannot use this operation.")
	default:
		b.WriteString(" An OAuth client needs the " + scopeList(names) + ".")
	}
	if len(text.Errors) > 0 {
		b.WriteString("\n\nErrors:\n")
		for _, e := range text.Errors {
			fmt.Fprintf(&b, "\n- %d %s: %s", e.Status, e.Name, e.Cause)
		}
	}
	return b.String()
}

// scopeList returns the names of scopes for a sentence.
func scopeList(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return "scope " + names[0]
	}
	return "scopes " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// describeFields adds descriptions to fields that have none.
func (s *Server) describeFields(name string, schema *huma.Schema) {
	if schema == nil {
		return
	}
	for field, p := range schema.Properties {
		if p.Description == "" {
			p.Description = s.fieldText(name, field)
		}
		s.describeFields(name+"."+field, p)
	}
	s.describeFields(name, schema.Items)
	if further, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		s.describeFields(name, further)
	}
	for _, one := range schema.OneOf {
		s.describeFields(name, one)
	}
}

func (s *Server) fieldText(schema, field string) string {
	if s.opts.Description.FieldText == nil {
		return ""
	}
	return s.opts.Description.FieldText(schema, field)
}

// tags returns the groups of operations in their order.
func (s *Server) tags() (all []string) {
	for i := range s.opts.Operations {
		if tag := s.opts.Operations[i].Tag; tag != "" && !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	return all
}

// requires reports whether the body of an operation has a required field.
func (s *Server) requires(o *Operation) bool {
	schemas := newRegistry()
	schema := resolve(schemas, schemas.Schema(o.in, true, operationID(o)+o.in.Name()))
	if schema.Type == huma.TypeArray {
		schema = resolve(schemas, schema.Items)
	}
	return schema != nil && len(schema.Required) > 0
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

// Document returns the OpenAPI document as JSON.
func (s *Server) Document() []byte { return s.document() }

// serveDocument serves the OpenAPI document.
func (s *Server) serveDocument(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, s.document())
}
