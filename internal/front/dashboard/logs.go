package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/page"
)

var (
	logsPage = pageOf("logs.html", "saved.html")
	logPage  = pageOf("log.html")
)

// statusClasses are the classes of status by which requests can be filtered.
var statusClasses = []web.Choice{{Value: "2xx", Label: "2xx Done"}, {Value: "3xx", Label: "3xx Redirected"},
	{Value: "4xx", Label: "4xx Refused"}, {Value: "5xx", Label: "5xx Failed"}}

// methods are the methods by which requests can be filtered.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}

// logRow is a request as the pages show it.
type logRow struct {
	requestlog.Entry
	Glyph, By string
}

// logList is the content of the page that lists requests.
type logList struct {
	base
	Filter  logFilter
	Rows    []logRow
	Pager   pager
	Further string // the address that continues a search that found few requests, or ""
	Problem string // why the search was refused; else ""
	First   bool   // whether the team has made no request
	Export  string
	URL     string
	Saved   savedView

	PathWrong bool // whether the problem is the path
}

// logFilter is the filter as the visitor set it.
type logFilter struct {
	Path, Status, Method, Key, In   string
	KeyName, SpanLabel              string
	Keys                            []web.Choice
	Classes                         []web.Choice
	Methods                         []string
	Set                             int
	NoStatus, NoMethod, NoKey, NoIn string
}

// Spans returns the choices of time.
func (f logFilter) Spans() any { return spans }

// logFilter reads the filter from the request's query.
func (c *call) logFilter() (f requestlog.Filter, shown logFilter, err error) {
	q := c.r.URL.Query()
	shown = logFilter{Path: strings.TrimSpace(q.Get("path")), Status: q.Get("status"), Method: q.Get("method"),
		Key: q.Get("key"), In: q.Get("in"), Classes: statusClasses, Methods: methods}
	f = requestlog.Filter{Endpoint: shown.Path, Status: shown.Status, Method: strings.ToUpper(shown.Method)}
	if shown.Key != "" {
		f.KeyID = validID(shown.Key)
	}
	for _, s := range spans {
		if s.Value == shown.In {
			f.From, shown.SpanLabel = c.Now().Add(-s.length), s.Label
		}
	}
	if shown.In != "" && shown.SpanLabel == "" {
		return f, shown, errSpan
	}
	for _, set := range []bool{shown.Path != "", shown.Status != "", shown.Method != "", shown.Key != "",
		shown.SpanLabel != ""} {
		if set {
			shown.Set++
		}
	}
	without := func(name string) string { return web.With(c.r.URL, name, "", "after", "", "before", "") }
	shown.NoStatus, shown.NoMethod = without("status"), without("method")
	shown.NoKey, shown.NoIn = without("key"), without("in")
	return f, shown, nil
}

func (c *call) logs() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	f, shown, err := c.logFilter()
	if err != nil {
		return err
	}
	names, err := c.keyMenu()
	if err != nil {
		return err
	}
	shown.Keys, shown.KeyName = names, names.label(shown.Key)
	data := logList{base: c.base(), Filter: shown, Export: c.exportPath(), URL: strings.TrimSuffix(c.PublicURL, "/")}
	if data.Saved, err = c.saved(savedfilters.Logs); err != nil {
		return err
	}
	some, more, next, err := c.Logs.List(c.ctx(), c.team.TeamID, f, p)
	status := http.StatusOK
	if text, ok := searchProblem(err, "status", "status"); ok {
		data.Problem, data.PathWrong, status, err = text, fieldOf(err) == "endpoint", http.StatusUnprocessableEntity, nil
	}
	if err != nil {
		return err
	}
	var ids []string
	for i := range some {
		data.Rows = append(data.Rows, logRowOf(&some[i], names))
		ids = append(ids, some[i].ID)
	}
	data.Pager = c.pager(p, ids, more)
	switch {
	case next != "" && p.Before != "":
		data.Further, data.Pager.Newer = web.With(c.r.URL, "before", next, "after", ""), ""
	case next != "":
		data.Further, data.Pager.Older = web.With(c.r.URL, "after", next, "before", ""), ""
	}
	data.First = len(ids) == 0 && shown.Set == 0 && p == (page.Page{Limit: rowsShown})
	return c.show(status, logsPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Logs"))
}

func logRowOf(e *requestlog.Entry, names menu) logRow {
	row := logRow{Entry: *e}
	switch {
	case e.Status >= http.StatusInternalServerError:
		row.Glyph = "failed"
	case e.Status >= http.StatusBadRequest:
		row.Glyph = "warning"
	default:
		row.Glyph = "passed"
	}
	switch e.Actor.Kind {
	case teams.KeyActor:
		if row.By = names.label(e.Actor.ID); row.By == "" {
			row.By = "an API key"
		}
	case teams.UserActor:
		row.By = "a person"
	case teams.GrantActor:
		row.By = "a connected app"
	default:
		row.By = string(e.Actor.Kind)
	}
	return row
}

// logView is the content of the page of a request.
type logView struct {
	base
	Row               logRow
	Says              string
	Request, Response string
	Hidden            bool // whether the visitor may not read the bodies
	Emails            []string
	Took              time.Duration
	OfPath, OfKey     string // addresses of the lists of similar requests
}

func (c *call) log() error {
	e, err := c.Logs.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	names, err := c.keyMenu()
	if err != nil {
		return err
	}
	data := logView{base: c.base(), Row: logRowOf(&e, names), Says: http.StatusText(e.Status), Took: e.Duration,
		OfPath: "/app/logs?path=" + url.QueryEscape(e.Endpoint)}
	if e.Actor.Kind == teams.KeyActor {
		data.OfKey = "/app/logs?key=" + e.Actor.ID
	}
	if c.mayReadBodies(&e) {
		data.Request, data.Response, data.Emails = pretty(e.RequestBody), pretty(e.ResponseBody), emailsOf(&e)
	} else {
		data.Hidden = true
	}
	return c.show(http.StatusOK, logPage, data, web.Crumbs("Logs", "/app/logs", e.Method+" "+e.Endpoint))
}

// mayReadBodies reports whether the visitor may read the bodies of a request. As in the API, the visitor needs the
// scope of the operation, because the bodies contain what it reads and writes.
func (c *call) mayReadBodies(e *requestlog.Entry) bool {
	scope, ok := c.ScopeOf(e.Method, e.Endpoint)
	return !ok || c.actor.Require(scope) == nil
}

// emailsShown is the maximum number of emails to which the page of a request links.
const emailsShown = 20

// emailsOf returns the ids of the emails that a request made, as its response names them.
func emailsOf(e *requestlog.Entry) (ids []string) {
	if e.Method != http.MethodPost || e.Status >= http.StatusBadRequest || !strings.HasPrefix(e.Endpoint, "/emails") {
		return nil
	}
	type item struct {
		ID string `json:"id"`
	}
	var made struct {
		item
		Data []item `json:"data"`
	}
	if json.Unmarshal([]byte(e.ResponseBody), &made) != nil {
		return nil
	}
	for _, x := range append([]item{made.item}, made.Data...) {
		if id.Valid(x.ID) && len(ids) < emailsShown {
			ids = append(ids, x.ID)
		}
	}
	return ids
}
