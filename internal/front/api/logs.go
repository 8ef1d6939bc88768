package api

import (
	"context"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/requestlog"
)

// logsQuery lists the query parameters that filter the request log. The public API does not have these parameters.
var logsQuery = []string{"status", "method", "endpoint", "user_agent", "api_key_id", "from", "to"}

// LogItem represents a request in a list of request log entries.
type LogItem struct {
	ID             string      `json:"id"`
	CreatedAt      wire.DBTime `json:"created_at"`
	Endpoint       string      `json:"endpoint" doc:"The path without host and query."`
	Method         string      `json:"method"`
	ResponseStatus int         `json:"response_status"`
	UserAgent      *string     `json:"user_agent"`
}

// logList is a page of request log entries. A page can have fewer requests than the limit even if more requests match,
// because a search reads a limited number of rows.
type logList struct {
	Object  string    `json:"object"`
	HasMore bool      `json:"has_more"`
	Data    []LogItem `json:"data"`
	Next    string    `json:"next,omitzero" doc:"Present if few entries match and there may be more. Pass it as after (or before) to continue the search."`
}

type logWire struct {
	Object string `json:"object"`
	LogItem
	RequestBody  verbatim `json:"request_body" doc:"The body without secrets and the content of attachments. Null if the request had no body, if the actor lacks the scope of the logged operation, or for operations on approvals. The html and the text of a sent email are null once its content is deleted."`
	ResponseBody verbatim `json:"response_body"`
}

// verbatim is JSON that is written unchanged. An empty verbatim is written as null.
type verbatim string

// MarshalJSONTo writes the text, or null if the text is not valid JSON.
func (v verbatim) MarshalJSONTo(e *jsontext.Encoder) error {
	text := jsontext.Value(v)
	if !text.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		text = jsontext.Value("null")
	}
	return e.WriteValue(text)
}

// Schema allows any JSON value.
func (verbatim) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

func logToItem(e requestlog.Entry) LogItem {
	return LogItem{e.ID, wire.DBTime(e.CreatedAt), e.Endpoint, e.Method, e.Status, orNull(e.UserAgent)}
}

// LoggedRequest returns a request as the request log takes it.
func LoggedRequest(r RequestRecord) requestlog.Request {
	logged := requestlog.Request{TeamID: r.TeamID, Actor: r.Actor.Ref(), RequestID: r.ID, Method: r.Method, Path: r.Path,
		UserAgent: r.UserAgent, Status: r.Status, Duration: r.Duration, Body: r.Body, Answer: r.Answer,
		LongAnswer: r.Long}
	for _, e := range r.Emails {
		logged.Emails = append(logged.Emails, requestlog.StoredEmail(e))
	}
	return logged
}

func (a *API) listLogs(ctx context.Context, c *wire.Call, _ wire.None) (logList, error) {
	p, err := c.Page(20)
	if err != nil {
		return logList{}, err
	}
	f, err := logFilter(c.Query())
	if err != nil {
		return logList{}, err
	}
	all, more, next, err := a.Services.Logs.List(ctx, c.TeamID, f, p)
	l := wire.ListOf(all, more, logToItem)
	return logList{l.Object, l.HasMore, l.Data, next}, err
}

func (a *API) getLog(ctx context.Context, c *wire.Call, _ wire.None) (logWire, error) {
	logID, err := c.ID("log_id")
	if err != nil {
		return logWire{}, err
	}
	e, err := a.Services.Logs.Get(ctx, c.TeamID, logID)
	if err == nil && !a.mayReadBodies(c, &e) {
		e.RequestBody, e.ResponseBody = "", ""
	}
	return logWire{"log", logToItem(e), verbatim(e.RequestBody), verbatim(e.ResponseBody)}, err
}

// mayReadBodies reports whether an actor may read the bodies of a logged request. The actor needs the scope of the
// logged operation, because the bodies contain what the operation reads and writes. An OAuth client may not read the
// bodies of requests to paths without an operation.
func (a *API) mayReadBodies(c *wire.Call, e *requestlog.Entry) bool {
	scope, ok := a.ScopeOf(e.Method, e.Endpoint)
	if !ok {
		return c.Kind != teams.GrantActor
	}
	return c.Require(scope) == nil
}

func logFilter(q url.Values) (f requestlog.Filter, err error) {
	f = requestlog.Filter{Status: q.Get("status"), Method: strings.ToUpper(q.Get("method")), Endpoint: q.Get("endpoint"),
		UserAgent: q.Get("user_agent"), KeyID: strings.ToLower(q.Get("api_key_id"))}
	if f.KeyID != "" && !id.Valid(f.KeyID) {
		return f, fault.Invalidf("api_key_id", "The `api_key_id` parameter must be a valid UUID.")
	}
	return f, readSpan(q, &f.From, &f.To)
}
