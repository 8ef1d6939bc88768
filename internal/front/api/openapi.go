package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/api/wire"
)

// description returns the API's description for the OpenAPI document.
func description() wire.Description {
	return wire.Description{Title: "Postrider",
		Text: "The API of Postrider, an email platform that you run yourself. Send `Authorization: Bearer re_...` " +
			"with each request.",
		QueryParam: queryParam, RequestHeaders: requestHeaders,
		ResponseHeaders: responseHeaders}
}

// responseHeaders describes the headers in an operation's responses, except for those that the responses of all
// operations may have.
func responseHeaders(o *wire.Operation, success bool) map[string]*huma.Header {
	switch {
	case hasQuotaHeaders(o):
		return quotaHeaders()
	case success && (o.Method == http.MethodPost && o.Path == "/domains" ||
		o.Method == http.MethodPatch && o.Path == "/domains/{domain_id}"):
		return map[string]*huma.Header{wire.WarningHeader: {Schema: &huma.Schema{Type: huma.TypeString},
			Description: "Why opens and clicks are not tracked although tracking is on, and what to do. Otherwise absent. " +
				"Postrider only."}}
	case success && o.TakesFilters():
		return map[string]*huma.Header{wire.WarningHeader: {Schema: &huma.Schema{Type: huma.TypeString},
			Description: "One line for each unknown query parameter, which was ignored. Otherwise absent. Postrider only."}}
	}
	return nil
}

// queryParam returns the OpenAPI description of a query parameter. A parameter that is not in queryParams is described
// as a string.
func queryParam(o *wire.Operation, name string) *huma.Param {
	p := &huma.Param{Name: name, In: "query", Schema: &huma.Schema{Type: "string"}}
	d, ok := queryParams[name]
	if o.Path == "/emails" || o.Path == "/emails/export" {
		if special, found := emailsParams[name]; found {
			d, ok = special, true
		}
	}
	if ok {
		p.Description, p.Required = d.text, d.required
		if d.schema != nil {
			p.Schema = d.schema()
		}
	}
	// The pagination cursors for a broadcast's recipients and links are not UUIDs.
	if (name == "after" || name == "before") && o.Method == http.MethodGet && strings.HasPrefix(o.Path, "/broadcasts/") {
		p.Description = "The `id` of an item in the list. Only one of `after` and `before` can be used."
		p.Schema.Format = ""
	}
	return p
}

// paramDescription describes a query parameter, which several operations may share.
type paramDescription struct {
	text     string
	schema   func() *huma.Schema // nil means a string
	required bool
}

func uuidSchema() *huma.Schema { return &huma.Schema{Type: "string", Format: "uuid"} }

func enumSchema(deflt any, values ...any) func() *huma.Schema {
	return func() *huma.Schema { return &huma.Schema{Type: "string", Enum: values, Default: deflt} }
}

// queryParams maps the names of query parameters to their descriptions.
var queryParams = map[string]paramDescription{
	"limit": {text: "The number of items, 1 to 100.", schema: func() *huma.Schema {
		return &huma.Schema{Type: "integer", Minimum: new(1.0), Maximum: new(100.0)}
	}},
	"after": {schema: uuidSchema,
		text: "The ID of an item: the list continues after it. Only one of `after` and `before` can be used."},
	"before": {schema: uuidSchema,
		text: "The ID of an item: the list ends before it. Only one of `after` and `before` can be used. Lists begin " +
			"with the newest item unless stated otherwise. Emails that are accepted later have greater IDs, so a request " +
			"with the newest known ID returns newer emails. With PostgreSQL, emails that are accepted at the same moment " +
			"may appear in a different order. To be certain to see every email, go back by a minute."},
	"status": {text: "Logs: a status code, or a class of them such as 4xx. Webhook events: pending, attempting, success " +
		"or failed. Imports: queued, in_progress, completed or failed. Automations: enabled or disabled. Runs: a " +
		"comma-separated list of running, completed, failed and cancelled. Approvals: pending, approved, rejected, " +
		"expired or failed."},
	"endpoint":   {text: "The beginning of the path."},
	"user_agent": {text: "A part of the User-Agent header; upper and lower case are the same."},
	"actor_id":   {schema: uuidSchema, text: "Only actions of this API key, user or grant."},
	"action":     {text: "Only this action, such as domain.created."},
	"target_id":  {schema: uuidSchema, text: "Only actions on the resource with this ID."},
	"api_key_id": {schema: uuidSchema, text: "Only requests with this API key."},
	"segment_id": {schema: uuidSchema, text: "Only contacts of this segment."},
	"from":       {text: "The first moment, as an ISO 8601 date or datetime."},
	"to":         {text: "The end, which is excluded, as an ISO 8601 date or datetime."},
	"thread_id":  {schema: uuidSchema, text: "Only emails of this conversation."},
	"html_format": {schema: enumSchema("data_uri", "data_uri", "cid"),
		text: "data_uri embeds inline images in the HTML; cid keeps their Content-IDs."},
	"type": {text: "What happened to the recipients.", required: true, schema: func() *huma.Schema {
		s := &huma.Schema{Type: "string"}
		for _, t := range broadcasts.RecipientTypes {
			s.Enum = append(s.Enum, string(t))
		}
		return s
	}},
	"bounce_type": {schema: enumSchema(nil, "permanent", "transient", "undetermined"),
		text: "Only with the type bounced."},
	"email":  {text: "Only the contact with this address."},
	"format": {schema: enumSchema("csv", "csv", "ndjson"), text: "The format of the file."},
	"formulas": {schema: enumSchema("keep", "keep", "quote"),
		text: "quote puts an apostrophe before text in CSV that a spreadsheet would run as a formula; keep leaves the " +
			"text unchanged, so that the file can be imported again."},
	"origin": {schema: enumSchema(nil, "bounce", "complaint", "manual")},
}

// emailsParams maps the names of the query parameters that filter sent emails to their descriptions, where these differ
// from queryParams.
var emailsParams = map[string]paramDescription{
	"q": {text: "An email's ID, or texts separated by spaces. Each text is an address or its beginning, a domain after " +
		"an @, or the beginnings of words in the subject or an address. All of them must match. Upper case and accents " +
		"make no difference. Postrider only, as all filters of emails."},
	"to":      {text: "Only emails to this address, or to this domain: in to, cc or bcc."},
	"from":    {text: "Only emails from this address, or from this domain."},
	"subject": {text: "Only emails whose subjects have words with these beginnings."},
	"status": {text: "Only emails with one of these states as last_event, separated by commas: scheduled, queued, sent, " +
		"delivery_delayed, delivered, opened, clicked, bounced, failed, suppressed, canceled, complained."},
	"tag":            {text: "Only emails with this tag, as name:value, or as name for any value."},
	"domain_id":      {schema: uuidSchema, text: "Only emails from this domain."},
	"api_key_id":     {schema: uuidSchema, text: "Only emails that were sent with this API key."},
	"template_id":    {schema: uuidSchema, text: "Only emails with this template."},
	"broadcast_id":   {schema: uuidSchema, text: "Only emails of this broadcast."},
	"created_after":  {text: "The first moment, as an ISO 8601 date or datetime."},
	"created_before": {text: "The end, which is excluded, as an ISO 8601 date or datetime."},
}

// requestHeaders describes the request headers that an operation reads.
func requestHeaders(o *wire.Operation) (list []*huma.Param) {
	if o.Method == http.MethodPost && slices.Contains([]string{"/emails", "/emails/batch", "/approvals", "/events/send"},
		o.Path) || creations[o.Method+" "+o.Path] != nil {
		list = append(list, &huma.Param{Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: "string",
			MinLength: new(1), MaxLength: new(256)},
			Description: "A second request with the same key and the same body within 24 hours has no effect and returns " +
				"the first response."})
	}
	if o.Path == "/emails/batch" {
		list = append(list, &huma.Param{Name: "x-batch-validation", In: "header",
			Schema: &huma.Schema{Type: "string", Enum: []any{"strict", "permissive"}, Default: "strict"},
			Description: "strict accepts all emails or none. permissive accepts the valid emails and lists the others in " +
				"`errors`."})
	}
	return list
}
