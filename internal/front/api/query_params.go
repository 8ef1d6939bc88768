package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/search"
)

// paramDescription describes a query parameter, which several operations may share.
type paramDescription struct {
	text     string
	schema   func() *huma.Schema // nil means a string
	required bool
}

// queryParam returns the OpenAPI description of a query parameter of an operation.
func queryParam(o *wire.Operation, name string) *huma.Param {
	d, ok := operationParams[o.Path][name]
	switch {
	case ok:
	case name == "limit" && slices.Contains(completeLists, o.Path):
		d = completeLimit
	case (name == "after" || name == "before") && opaqueCursors(o):
		d = paramDescription{text: queryParams[name].text}
	default:
		d = queryParams[name]
	}
	p := &huma.Param{Name: name, In: "query", Description: d.text, Required: d.required,
		Schema: &huma.Schema{Type: huma.TypeString}}
	if d.schema != nil {
		p.Schema = d.schema()
	}
	return p
}

// opaqueCursors reports whether the cursors of a list are not UUIDs.
func opaqueCursors(o *wire.Operation) bool {
	return o.Method == http.MethodGet && (strings.HasPrefix(o.Path, "/broadcasts/") ||
		strings.HasPrefix(o.Path, "/webhooks/{webhook_id}/events"))
}

// completeLists lists the paths of the lists that have all items if a request has no limit.
var completeLists = []string{"/api-keys", "/audiences", "/audiences/{audience_id}/contacts", "/broadcasts", "/contacts",
	"/domains", "/emails/{email_id}/attempts", "/emails/{email_id}/events", "/oauth/grants", "/segments",
	"/segments/{segment_id}/contacts", "/team/invitations", "/team/members"}

var completeLimit = paramDescription{text: "The maximum number of items. Without it, the list has all items.",
	schema: func() *huma.Schema {
		return &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(100.0)}
	}}

func uuidSchema() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "uuid"} }

func emailSchema() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "email"} }

// textSchema describes a text of at most n bytes.
func textSchema(n int) func() *huma.Schema {
	return func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, MaxLength: &n} }
}

func enumSchema(deflt any, values ...any) func() *huma.Schema {
	return func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Enum: values, Default: deflt} }
}

// enumOf describes one of some names.
func enumOf[T ~string](names []T) func() *huma.Schema {
	var values []any
	for _, n := range names {
		values = append(values, string(n))
	}
	return enumSchema(nil, values...)
}

// These texts end the descriptions of parameters.
const (
	listText  = ", separated by commas; at most 100."
	datesText = "as an ISO 8601 date or datetime, in UTC unless it has an offset."
)

// queryParams maps the names of query parameters to their descriptions.
var queryParams = map[string]paramDescription{
	"limit": {text: "The maximum number of items.", schema: func() *huma.Schema {
		return &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(100.0), Default: 20}
	}},
	"after": {schema: uuidSchema,
		text: "The ID of an item: the list continues after it. Only one of `after` and `before` can be used."},
	"before": {schema: uuidSchema, text: "The ID of an item: the list ends before it. Only one of `after` and `before` " +
		"can be used. Lists begin with the newest item unless stated otherwise."},
	"actor_id":   {schema: uuidSchema, text: "Only actions of this API key, user or grant."},
	"action":     {text: "Only this action, such as domain.created."},
	"target_id":  {text: "Only actions on the resource with this ID."},
	"segment_id": {schema: uuidSchema, text: "Only contacts of this segment."},
	"from":       {text: "The first moment, " + datesText},
	"to":         {text: "The end, which is excluded, " + datesText},
	"format":     {schema: enumSchema("csv", "csv", "ndjson"), text: "The format of the file."},
	"formulas": {schema: enumSchema("keep", "keep", "quote"),
		text: "quote puts an apostrophe before text in CSV that a spreadsheet would run as a formula; keep leaves the " +
			"text unchanged, so that the file can be imported again."},
	"origin": {schema: enumSchema(nil, "bounce", "complaint", "manual"),
		text: "Only suppressions with this origin: a bounce, a complaint, or the API or a page."},
}

// searchParams describes the query parameters that filter sent and received emails.
var searchParams = map[string]paramDescription{
	"q": {schema: textSchema(search.MaxQuery),
		text: "An email's ID, or texts separated by spaces. Each text is an address or its beginning, a domain after " +
			"an @, or the beginnings of words in the subject or an address. All of them must match. Upper case and accents " +
			"make no difference. Postrider only, as all filters of emails."},
	"to": {schema: textSchema(search.MaxQuery), text: "Only emails to this address, or to this domain: in to, cc or " +
		"bcc; for received emails, also in received_for."},
	"from": {schema: textSchema(search.MaxQuery), text: "Only emails from this address, or from this domain."},
	"subject": {schema: textSchema(search.MaxQuery),
		text: "Only emails whose subjects have words with these beginnings."},
	"created_after":  {text: "Only emails that were accepted at this moment or later, " + datesText},
	"created_before": {text: "Only emails that were accepted before this moment, " + datesText},
}

// sentParams describes the query parameters that filter sent emails only.
var sentParams = map[string]paramDescription{
	"before": {schema: uuidSchema,
		text: "The ID of an item: the list ends before it. Only one of `after` and `before` can be used. Emails that are " +
			"accepted later have greater IDs, so a request with the newest known ID returns newer emails. With PostgreSQL, " +
			"emails that are accepted at the same moment may appear in a different order. To be certain to see every email, " +
			"go back by a minute."},
	"status": {text: "Only emails with one of these states as last_event" + listText + " The states are scheduled, " +
		"queued, sent, delivery_delayed, delivered, opened, clicked, bounced, failed, suppressed, canceled and complained."},
	"tag": {schema: textSchema(search.MaxQuery),
		text: "Only emails with this tag, as name:value, or as name for any value."},
	"domain_id":    {schema: uuidSchema, text: "Only emails from this domain."},
	"api_key_id":   {schema: uuidSchema, text: "Only emails that were sent with this API key."},
	"template_id":  {schema: uuidSchema, text: "Only emails with this template."},
	"broadcast_id": {schema: uuidSchema, text: "Only emails of this broadcast."},
}

// logParams describes the query parameters that filter the request log.
var logParams = map[string]paramDescription{
	"status":     {text: "Only responses with this status, such as 429, or of this class, such as 4xx."},
	"method":     {schema: enumSchema(nil, "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), text: "Only this method."},
	"endpoint":   {schema: textSchema(1000), text: "Only paths with this beginning."},
	"user_agent": {schema: textSchema(500), text: "A part of the User-Agent header; upper and lower case are the same."},
	"api_key_id": {schema: uuidSchema, text: "Only requests with this API key."},
}

// operationParams maps paths to the descriptions of those query parameters that differ from queryParams.
var operationParams = map[string]map[string]paramDescription{
	"/emails":        merge(searchParams, sentParams),
	"/emails/export": merge(searchParams, sentParams),
	"/emails/receiving": merge(searchParams, map[string]paramDescription{
		"thread_id": {schema: uuidSchema, text: "Only emails of this conversation."}}),
	"/emails/receiving/{email_id}": {"html_format": {schema: enumSchema("data_uri", "data_uri", "cid"),
		text: "data_uri embeds inline images in the HTML; cid keeps their Content-IDs."}},
	"/emails/metrics": metricsParams,

	"/domains/{domain_id}/reports/dmarc": reportParams,
	"/domains/{domain_id}/reports/tls":   reportParams,

	"/logs":        logParams,
	"/logs/export": logParams,
	"/contacts/imports": {"status": {schema: enumSchema(nil, "queued", "in_progress", "completed", "failed"),
		text: "Only imports with this status."}},
	"/automations": {"status": {schema: enumSchema(nil, "enabled", "disabled"),
		text: "Only automations with this status."}},
	"/automations/{automation_id}/runs": {"status": {text: "Only runs with one of these statuses, separated by commas: " +
		"running, completed, failed, cancelled."}},
	"/approvals": {"status": {schema: enumOf(approvals.States), text: "Only approvals with this status."}},
	"/webhooks/{webhook_id}/events": {"status": {schema: enumSchema(nil, "pending", "attempting", "success", "failed"),
		text: "Only events with this status."},
		"after": {text: "The ID of an event: the list continues after it."}},
	"/webhooks/{webhook_id}/events/{webhook_event_id}/attempts": {
		"after": {text: "The ID of an attempt: the list continues after it."}},
	"/broadcasts/{broadcast_id}/recipients": {
		"type": {text: "The outcome of the recipients.", required: true, schema: enumOf(broadcasts.RecipientTypes)},
		"bounce_type": {schema: enumSchema(nil, "permanent", "transient", "undetermined"),
			text: "Only bounces of this type. Only with the type bounced."},
		"email": {schema: emailSchema, text: "Only the contact with this address."}},
}

// reportParams describes the query parameters of the DMARC and TLS reports about a domain.
var reportParams = map[string]paramDescription{
	"start_date": {schema: dateSchema, text: "The first day (UTC). Default: 14 days before the last one. At " +
		"most 31 days are allowed."},
	"end_date": {schema: dateSchema, text: "The last day (UTC), which is included. Default: today."},
}

func dateSchema() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "date"} }

// metricsParams describes the query parameters of metrics.
var metricsParams = map[string]paramDescription{
	"start_date": {text: "The first moment, as an ISO 8601 date or datetime, in the time zone unless it has an offset. " +
		"Without it, six days before the end."},
	"end_date": {text: "The end, which is excluded, as an ISO 8601 date or datetime, in the time zone unless it has an " +
		"offset. Without it, now."},
	"timezone": {schema: func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Default: "UTC"} },
		text: "The IANA time zone of the periods, such as America/New_York."},
	"granularity": {schema: enumSchema("daily", "hourly", "daily", "weekly", "monthly"),
		text: fmt.Sprintf("The length of a period, for the dimension period. Weeks begin on Monday. The span has at most %d "+
			"periods.", maxPeriods)},
	"metrics": {text: "The metrics" + listText + " Without it, all except " + strings.Join(botMetrics, ", ") +
		". The others are " + strings.Join(counterMetrics, ", ") + ", " + strings.Join(rateNames, ", ") + "."},
	"dimensions": {text: "The dimensions of the rows in data, separated by commas: period, domain, email, broadcast. " +
		"Without it, the response has only totals. The dimensions email and broadcast cannot be combined."},
	"domain_id":    {text: "Only emails from these domains, by their IDs" + listText},
	"email_id":     {text: "Only these emails, by their IDs" + listText},
	"broadcast_id": {text: "Only emails of these broadcasts, by their IDs" + listText},
}

// merge returns the descriptions of two maps.
func merge(a, b map[string]paramDescription) map[string]paramDescription {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
