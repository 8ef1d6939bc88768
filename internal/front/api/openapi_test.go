package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// public lists the operations of the public API that Postrider implements, without parameter names.
const public = `
DELETE /api-keys/{}
DELETE /audiences/{}
DELETE /automations/{}
DELETE /contact-properties/{}
DELETE /contacts/{}
DELETE /contacts/{}/segments/{}
DELETE /domains/{}
DELETE /segments/{}
DELETE /suppressions/{}
DELETE /templates/{}
DELETE /topics/{}
GET /api-keys
GET /audiences
GET /audiences/{}
GET /automations
GET /automations/{}
GET /automations/{}/runs
GET /automations/{}/runs/{}
GET /contact-properties
GET /contact-properties/{}
GET /contacts
GET /contacts/{}
GET /contacts/{}/segments
GET /contacts/{}/topics
GET /contacts/imports
GET /contacts/imports/{}
GET /domains
GET /domains/{}
GET /domains/{}/claim
GET /emails
GET /emails/metrics
GET /emails/receiving
GET /emails/receiving/{}
GET /emails/receiving/{}/attachments
GET /emails/receiving/{}/attachments/{}
GET /emails/{}
GET /emails/{}/attachments
GET /emails/{}/attachments/{}
GET /segments
GET /segments/{}
GET /suppressions
GET /suppressions/{}
GET /templates
GET /templates/{}
GET /topics
GET /topics/{}
PATCH /api-keys/{}
PATCH /automations/{}
PATCH /contact-properties/{}
PATCH /contacts/{}
PATCH /contacts/{}/topics
PATCH /domains/{}
PATCH /emails/{}
PATCH /templates/{}
PATCH /topics/{}
POST /api-keys
POST /audiences
POST /automations
POST /automations/{}/duplicate
POST /automations/{}/stop
POST /contact-properties
POST /contacts
POST /contacts/{}/segments/{}
POST /contacts/imports
POST /domains
POST /domains/claim
POST /domains/{}/claim/verify
POST /domains/{}/verify
POST /emails
POST /emails/batch
POST /emails/{}/cancel
POST /emails/{}/share
POST /segments
POST /suppressions
POST /suppressions/batch/add
POST /suppressions/batch/remove
POST /templates
POST /templates/{}/duplicate
POST /templates/{}/publish
POST /topics
`

// undocumented lists the aliases and the operations for load balancers.
var undocumented = []string{"GET /", "GET /healthz", "GET /readyz", "POST /email", "POST /email/sending",
	"POST /emails/sending",
	"POST /domains/claims", "GET /domains/{domain_id}/claims", "POST /domains/{domain_id}/claims/verify"}

type docSchema struct {
	Ref                  string               `json:"$ref"`
	Type                 any                  `json:"type"`
	Properties           map[string]docSchema `json:"properties"`
	Required             []string             `json:"required"`
	Items                *docSchema           `json:"items"`
	AdditionalProperties any                  `json:"additionalProperties"`
	OneOf                []docSchema          `json:"oneOf"`
	MaxItems             int                  `json:"maxItems"`
	MaxProperties        int                  `json:"maxProperties"`
	Enum                 []any                `json:"enum"`
	Format               string               `json:"format"`
	Minimum              *int                 `json:"minimum"`
	Maximum              *int                 `json:"maximum"`
	MaxLength            *int                 `json:"maxLength"`
}

type docContent map[string]struct {
	Schema docSchema `json:"schema"`
}

type docOperation struct {
	Description string   `json:"description"`
	OperationID string   `json:"operationId"`
	Summary     string   `json:"summary"`
	Tags        []string `json:"tags"`
	Parameters  []struct {
		Name        string    `json:"name"`
		In          string    `json:"in"`
		Description string    `json:"description"`
		Required    bool      `json:"required"`
		Schema      docSchema `json:"schema"`
	} `json:"parameters"`
	RequestBody *struct {
		Content docContent `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Description string     `json:"description"`
		Content     docContent `json:"content"`
		Headers     map[string]struct {
			Description string    `json:"description"`
			Schema      docSchema `json:"schema"`
		} `json:"headers"`
	} `json:"responses"`
}

type openAPIDoc struct {
	OpenAPI    string                             `json:"openapi"`
	Info       map[string]any                     `json:"info"`
	Paths      map[string]map[string]docOperation `json:"paths"`
	Components struct {
		Schemas         map[string]docSchema `json:"schemas"`
		SecuritySchemes map[string]any       `json:"securitySchemes"`
	} `json:"components"`
}

func readDoc(t *testing.T) (openAPIDoc, string) {
	t.Helper()
	return readDocOf(t, newFixture(t, dbtest.SQLite(t), Options{}))
}

func readDocOf(t *testing.T, f *fixture) (openAPIDoc, string) {
	t.Helper()
	w := f.do(t, "GET /openapi.json\nAuthorization: -")
	var doc openAPIDoc
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != 200 {
		t.Fatalf("%d, error %v", w.Code, err)
	}
	return doc, w.Body.String()
}

// The OpenAPI document describes every operation completely.
func TestDocument(t *testing.T) {
	t.Parallel()
	doc, text := readDoc(t)
	if doc.OpenAPI != "3.1.0" || doc.Info["title"] == "" || doc.Info["version"] != "test" ||
		doc.Components.SecuritySchemes["bearer"] == nil {
		t.Errorf("the document's head: %s %v", doc.OpenAPI, doc.Info)
	}
	ids := map[string]bool{}
	found := 0
	for _, o := range (&API{}).operations() {
		name := o.Method + " " + o.Path
		d, ok := doc.Paths[o.Path][strings.ToLower(o.Method)]
		if ok == slices.Contains(undocumented, name) {
			t.Errorf("%s: documented %v", name, ok)
		}
		if !ok {
			continue
		}
		found++
		if d.Summary == "" || len(d.Tags) != 1 || d.OperationID == "" || ids[d.OperationID] {
			t.Errorf("%s: summary %q, tags %q, id %q, which must be its own", name, d.Summary, d.Tags, d.OperationID)
		}
		ids[d.OperationID] = true
		if d.RequestBody == nil == o.TakesBody() {
			t.Errorf("%s: body documented %v", name, d.RequestBody != nil)
		}
		for _, status := range []string{strconv.Itoa(o.Status), "default"} {
			medias := o.MediaTypes()
			if medias == nil || status == "default" {
				medias = []string{wire.MediaJSON}
			}
			for _, media := range medias {
				if r := d.Responses[status]; r.Description == "" || reflect.DeepEqual(r.Content[media].Schema, docSchema{}) {
					t.Errorf("%s: no schema of the answer %s as %s", name, status, media)
				}
			}
		}
		declared := map[string]bool{}
		for _, p := range d.Parameters {
			declared[p.In+" "+p.Name] = true
		}
		for _, m := range pathParam.FindAllStringSubmatch(o.Path, -1) {
			if !declared["path "+m[1]] {
				t.Errorf("%s: parameter %s is not declared", name, m[1])
			}
		}
	}
	for _, methods := range doc.Paths {
		found -= len(methods)
	}
	if found != 0 {
		t.Errorf("%d operations of the document are not in the routes", -found)
	}
	for _, m := range regexp.MustCompile(`"\$ref":"#/components/schemas/(\w+)"`).FindAllStringSubmatch(text, -1) {
		if _, ok := doc.Components.Schemas[m[1]]; !ok {
			t.Errorf("there is no schema %s", m[1])
		}
	}
	for name, s := range doc.Components.Schemas {
		if s.AdditionalProperties == false {
			t.Errorf("%s says that unknown members are refused", name)
		}
	}
	if e := doc.Components.Schemas["Error"]; len(e.Properties) != 3 || len(e.Required) != 3 {
		t.Errorf("the schema of errors: %+v", e)
	}
}

// In the OpenAPI document, all responses to operations that send emails have quota headers, including error responses.
// No other responses have quota headers.
func TestDocumentHasQuotaHeaders(t *testing.T) {
	t.Parallel()
	doc, _ := readDoc(t)
	var have []string
	for path, methods := range doc.Paths {
		for method, o := range methods {
			described := 0
			for status, r := range o.Responses {
				for name, h := range r.Headers {
					quota := strings.HasPrefix(name, "x-resend-")
					if h.Description == "" || quota != (h.Schema.Type == "integer") {
						t.Errorf("%s %s, %s: the header %s is %+v", method, path, status, name, h)
					}
					if name == "x-resend-daily-quota" || name == "x-resend-monthly-quota" {
						described++
					}
				}
			}
			if described == 2*len(o.Responses) && described > 0 {
				have = append(have, method+" "+path)
			} else if described != 0 {
				t.Errorf("%s %s: described %d times", method, path, described)
			}
		}
	}
	slices.Sort(have)
	want := []string{"post /approvals", "post /broadcasts/{broadcast_id}/send", "post /emails", "post /emails/batch",
		"post /emails/checks"}
	if !slices.Equal(have, want) {
		t.Errorf("described for %q, want %q", have, want)
	}
}

// commonHeaders are the response headers that any operation may have, or that belong to a format of its responses.
var commonHeaders = []string{"Allow", "Cache-Control", "Content-Disposition", "Content-Length", "Content-Type",
	"Ratelimit-Limit", "Ratelimit-Policy", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After", "Vary",
	"Www-Authenticate", "X-Accel-Buffering", "X-Content-Type-Options", "X-Request-Id"}

// wantDocumentedHeaders checks that a response has only headers that all operations share or that the OpenAPI document
// describes for the operation.
func (f *fixture) wantDocumentedHeaders(t *testing.T, request string, w *httptest.ResponseRecorder) {
	t.Helper()
	var own []string
	for name := range w.Header() {
		if !slices.Contains(commonHeaders, name) {
			own = append(own, name)
		}
	}
	if len(own) == 0 {
		return // most responses; finding the operation takes long
	}
	head, _, _ := strings.Cut(request, "\n")
	method, path, _ := strings.Cut(head, " ")
	path, _, _ = strings.Cut(path, "?")
	var documented []string
	for _, o := range f.operations() {
		if o.Method == method && regexp.MustCompile("^"+pathParam.ReplaceAllString(o.Path, `[^/]+`)+"/?$").MatchString(path) {
			for name := range responseHeaders(&o, w.Code < 300) {
				documented = append(documented, http.CanonicalHeaderKey(name))
			}
		}
	}
	for _, name := range own {
		if !slices.Contains(documented, name) {
			t.Errorf("%s: the OpenAPI document does not describe the header %s", head, name)
		}
	}
}

// nullIsAValue lists required request fields whose value may be null.
var nullIsAValue = []string{"UpdatePropertyRequest.fallback_value", "UpdateEventRequest.schema"}

// Every schema in the OpenAPI document is a valid JSON Schema. Required request fields do not allow null, because a
// null value is treated as an absent field.
func TestDocumentHasValidSchemas(t *testing.T) {
	t.Parallel()
	_, text := readDoc(t)
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	checked := 0
	var inAll func(at string, v any)
	var check func(at string, v any)
	check = func(at string, v any) {
		checked++
		s, ok := v.(map[string]any)
		if !ok {
			t.Errorf("%s is no schema: %v", at, v)
			return
		}
		if typ, given := s["type"]; given {
			all, list := typ.([]any)
			if !list {
				all = []any{typ}
			}
			for i, name := range all {
				if !slices.Contains([]any{"array", "boolean", "integer", "null", "number", "object", "string"}, name) ||
					slices.Contains(all[:i], name) {
					t.Errorf("%s has the type %v", at, typ)
				}
			}
		}
		for _, name := range []string{"items", "additionalProperties", "not"} {
			if _, yesOrNo := s[name].(bool); s[name] != nil && !yesOrNo {
				check(at+"."+name, s[name])
			}
		}
		for _, name := range []string{"oneOf", "anyOf", "allOf"} {
			all, _ := s[name].([]any)
			if s[name] != nil && len(all) == 0 {
				t.Errorf("%s has the %s %v", at, name, s[name])
			}
			for i, of := range all {
				check(fmt.Sprintf("%s.%s[%d]", at, name, i), of)
			}
		}
		members, _ := s["properties"].(map[string]any)
		for name, p := range members {
			check(at+"."+name, p)
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			p, ok := members[name.(string)].(map[string]any)
			if !ok {
				t.Errorf("%s requires %s, which it does not describe", at, name)
			} else if strings.HasSuffix(at, "Request") && admitsNull(p) && !slices.Contains(nullIsAValue, at+"."+name.(string)) {
				t.Errorf("%s requires %s and says that it may be null", at, name)
			}
		}
	}
	inAll = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for i, e := range v {
				inAll(fmt.Sprintf("%s[%d]", at, i), e)
			}
		case map[string]any:
			for name, e := range v {
				if name == "schema" {
					check(at, e)
				} else {
					inAll(at+" "+name, e)
				}
			}
		}
	}
	inAll("", doc["paths"])
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, s := range schemas {
		check(name, s)
	}
	if checked < 500 {
		t.Errorf("%d schemas were checked", checked)
	}
	patch := schemas["UpdateTemplateRequest"].(map[string]any)["properties"].(map[string]any)
	for name, want := range map[string]bool{"name": false, "html": false, "variables": false, "alias": true, "from": true,
		"subject": true, "text": true, "reply_to": true} {
		if admitsNull(patch[name].(map[string]any)) != want {
			t.Errorf("a change of a template may set %s to null: not %v: %v", name, want, patch[name])
		}
	}
}

// admitsNull reports whether a schema allows null.
func admitsNull(s map[string]any) bool {
	types, list := s["type"].([]any)
	if list && slices.Contains(types, any("null")) || s["type"] == "null" {
		return true
	}
	for _, name := range []string{"oneOf", "anyOf"} {
		all, _ := s[name].([]any)
		for _, of := range all {
			if admitsNull(of.(map[string]any)) {
				return true
			}
		}
	}
	return false
}

func TestPublicOperations(t *testing.T) {
	t.Parallel()
	var have []string
	for _, o := range (&API{}).operations() {
		have = append(have, o.Method+" "+pathParam.ReplaceAllString(o.Path, "{}"))
	}
	for _, name := range strings.Split(strings.TrimSpace(public), "\n") {
		if !slices.Contains(have, name) {
			t.Errorf("there is no %s", name)
		}
	}
}

// Responses have exactly the fields that the OpenAPI document describes.
func TestDocumentTellsTheTruth(t *testing.T) {
	t.Parallel()
	doc, _ := readDoc(t)
	resolve := func(s docSchema) docSchema {
		if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
			return doc.Components.Schemas[name]
		}
		return s
	}
	checked := 0
	for _, o := range (&API{}).operations() {
		d, ok := doc.Paths[o.Path][strings.ToLower(o.Method)]
		if !ok {
			continue
		}
		media := wire.MediaJSON
		if o.MediaTypes() != nil {
			described := slices.DeleteFunc(slices.Clone(o.MediaTypes()), func(m string) bool { return m == wire.MediaCSV })
			if len(described) == 0 {
				continue // a CSV file whose columns depend on the imported file
			}
			media = described[0]
		}
		s := resolve(d.Responses[strconv.Itoa(o.Status)].Content[media].Schema)
		out := reflect.New(o.ResponseType()).Elem()
		if out.Kind() != reflect.Struct {
			continue // a file
		}
		if data := out.FieldByName("Data"); data.IsValid() && data.Kind() == reflect.Slice {
			data.Set(reflect.MakeSlice(data.Type(), 1, 1))
		}
		text, err := json.Marshal(out.Interface())
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
		compare := func(what string, members map[string]any, s docSchema) {
			checked++
			for m := range members {
				if _, ok := s.Properties[m]; !ok {
					t.Errorf("%s %s answers with %s%s, which is not in the document", o.Method, o.Path, what, m)
				}
			}
			for _, m := range s.Required {
				if _, ok := members[m]; !ok {
					t.Errorf("%s %s: the document requires %s%s, which is not in the answer", o.Method, o.Path, what, m)
				}
			}
		}
		compare("", members, s)
		if data, ok := members["data"].([]any); ok && len(data) == 1 {
			compare("data[].", data[0].(map[string]any), resolve(*s.Properties["data"].Items))
		}
	}
	if checked < 30 {
		t.Errorf("%d schemas compared", checked)
	}
}

// No successful response has a field named statusCode, because clients would treat the response as an error.
func TestNoStatusCodeInSuccess(t *testing.T) {
	t.Parallel()
	doc, _ := readDoc(t)
	for name, s := range doc.Components.Schemas {
		if _, ok := s.Properties["statusCode"]; ok && name != "Error" {
			t.Errorf("%s has a statusCode", name)
		}
	}
}
