// Package dashboard serves the pages under /app/, on which the members of a team see what happened to its emails and
// set up what they need for sending.
//
// # Invariants
//
// A page calls the same services as the API, as the signed-in user in the user's current team. The table of routes
// names the scope that each page and form needs; package teams decides which roles have it. Only POST requests make
// changes. A form contains the id of the team for which it was shown, because the visitor may have chosen another team
// in another window since then. The response to a POST is a redirect, except for a secret that is shown once and for a
// form with errors, which keeps what was typed.
//
// Every filter and every place in a list is a query parameter, so that each view has an address. The number of
// statements of a page does not depend on the number of its rows. Mail is shown only in sandboxed frames, whose
// responses allow no scripts.
//
// # Failures
//
// The id of another team's object, or of no object, leads to the error page 404. If the database is away, the error
// page says so; open pages keep what they show and say that they reconnect.
//
// # Out of scope
//
// Package dashboard contains no SQL and no business rules. Sign-in and the account are in package signin.
package dashboard

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/exportruns"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/explain"
	"github.com/postrider/postrider/internal/sending/metrics"
	"github.com/postrider/postrider/internal/sending/preflight"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

//go:embed pages
var texts embed.FS

// pageOf returns the template from files in the folder pages.
func pageOf(names ...string) *web.Template {
	all := ""
	for _, name := range names {
		text, err := texts.ReadFile("pages/" + name)
		if err != nil {
			panic(err)
		}
		all += string(text)
	}
	return web.Page(all)
}

// Deps holds the dependencies of the dashboard.
type Deps struct {
	Site    *web.Site
	Members *members.Service
	Teams   *teams.Service
	Emails  *emails.Service
	Domains *domains.Service

	ServedPolicies *servedpolicies.Service

	Live    *eventstream.Service
	Reports *domainreports.Service

	Forwards     *forwards.Service
	Webhooks     *webhooks.Service
	Suppressions *suppressions.Service
	Logs         *requestlog.Service
	Exports      *exports.Service
	ExportRuns   *exportruns.Service
	Audit        *audit.Log

	// ScopeOf returns the scope of the API's operation that serves a method and a path, if one does.
	ScopeOf func(method, path string) (scope teams.Scope, ok bool)

	// AcquireExport reserves one of a team's exports under way, which the API counts too. The caller must call release.
	AcquireExport func(teamID string) (release func(), err error)

	SavedFilters *savedfilters.Service

	// ReserveMemory reserves a number of bytes of the memory for large responses, which the API uses too. The caller must
	// call release.
	ReserveMemory func(ctx context.Context, teamID string, bytes int64) (release func(), err error)

	// Checker checks sent emails.
	Checker preflight.Checker

	Metrics    *metrics.Service
	Quotas     *quotas.Service
	Contacts   *contacts.Service
	Broadcasts *broadcasts.Service
	Receiving  *receiving.Service

	// Keeps returns the installation's retention periods.
	Keeps     func() teams.Retention
	RateLimit func() int // default limit on a team's requests per second; 0 means no limit

	// Docs returns the pages of the documentation and the headings of the API reference. The script of the palette finds
	// all headings: it reads the index of the documentation.
	Docs func() []DocsSection

	// Explain explains the delivery of a team's email.
	Explain func(ctx context.Context, by teams.Actor, emailID string) (explain.Answer, error)

	Now       func() time.Time
	PublicURL string

	// Submission returns the ports at which apps submit emails by SMTP. The first one works with most programs.
	Submission func() []SubmissionPort

	// MailHosts returns the hosts that receive mail with their TLSA records, or none for teams other than the operator's.
	MailHosts func(ctx context.Context, teamID string) ([]MailHost, error)
}

// Pages serves the dashboard.
type Pages struct {
	Deps
	feeds *feeds
}

// New returns the dashboard, or an error if a dependency is missing.
func New(d Deps) (*Pages, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Pages{d, &feeds{live: d.Live, teams: map[string]*feed{}}}, nil
}

// call is one request for a page by a signed-in member of a team.
type call struct {
	*Pages
	w     http.ResponseWriter
	r     *http.Request
	v     web.Visitor
	team  members.Membership
	actor teams.Actor
	form  url.Values // of a POST request

	saving savingForm // zero unless the list shows a refused form
}

// route is one row of the table of pages and forms.
type route struct {
	pattern string
	scope   teams.Scope // what the visitor's role must allow; 0 for every member

	// action is the name of the action in the audit log. It is "" for pages, for forms that change nothing, and, as in the
	// API, for forms that send an email: the email itself is the record.
	action string

	// own marks a form that changes only what the visitor alone sees, such as a saved filter. Everyone who may see the
	// page may submit it, and it has no action.
	own bool

	// whileSuspended allows the page or form to the members of a suspended team, as the API does for reading and
	// stopping emails.
	whileSuspended bool

	stream bool // see [Route.Stream]
	frame  bool // a page shows the response in a frame
	large  bool // the form may have up to 1 MB

	searches bool // the page has a form for searching, whose empty fields stay out of the address

	serve func(c *call) error
}

// Register adds the pages to a mux.
func (p *Pages) Register(mux *http.ServeMux) {
	for _, x := range p.routes() {
		handle := p.Site.HandleSignedIn
		if x.frame {
			handle = p.Site.HandleFrame
		}
		handle(mux, x.pattern, func(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
			return p.serve(w, r, v, &x)
		})
	}
	p.Site.HandleSignedIn(mux, "POST /app/appearance", func(w http.ResponseWriter, r *http.Request, _ web.Visitor) error {
		return p.Site.Appearance(w, r)
	})
	p.Site.HandleSignedIn(mux, "/app/", func(http.ResponseWriter, *http.Request, web.Visitor) error {
		return errNoPage
	})
}

var (
	errNoPage    = fault.NotFoundf("This page does not exist. Choose another from the navigation.")
	errNoPlace   = fault.NotFoundf("The cursor in the address of this page is invalid. Open the list again.")
	errRole      = fault.Forbiddenf("", "Your role in this team does not allow this. Ask an owner or admin.")
	errSuspended = fault.New(fault.Suspended, "", "This team is suspended: it can look at its emails and stop them, and "+
		"nothing else. Ask the operator of this installation.")
	errOtherTeam = fault.Forbiddenf("", "You chose another team after this page was shown, so nothing was changed. Go "+
		"back, reload the page and try again.")
)

// serve handles a request in the visitor's current team, if the visitor's role allows it.
func (p *Pages) serve(w http.ResponseWriter, r *http.Request, v web.Visitor, x *route) error {
	team, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/app/account/team")
	}
	if x.searches {
		if clean := withoutEmpty(r.URL); clean != "" {
			return web.Redirect(w, r, clean)
		}
	}
	c := &call{Pages: p, w: w, r: r, v: v, team: team}
	var err error
	if c.actor, err = p.Members.Actor(r.Context(), v.User.ID, team.TeamID); err != nil {
		return err
	}
	if x.scope != 0 {
		if err := c.actor.Require(x.scope); err != nil {
			return errRole.Because(err)
		}
	}
	if c.actor.Suspended && !x.whileSuspended {
		return errSuspended
	}
	if r.Method == http.MethodPost {
		read := p.Site.Form
		if x.large {
			read = p.Site.LargeForm
		}
		if c.form, err = read(w, r); err != nil {
			return err
		}
		if c.form.Get("team") != team.TeamID {
			return errOtherTeam
		}
		if x.action != "" {
			c.r = r.WithContext(audit.With(r.Context(), c.entry(x.action, r.PathValue("id"))))
		}
	}
	return x.serve(c)
}

// withoutEmpty returns the address without the fields that a form for searching left empty, such as "tag=", or "" if
// the address has none. Browsers without scripts submit such fields too. A name without a value is a flag, and stays.
func withoutEmpty(u *url.URL) string {
	var kept []string
	all := strings.Split(u.RawQuery, "&")
	for _, field := range all {
		if name, value, ok := strings.Cut(field, "="); !ok || name == "" || value != "" { // "=" may be part of a value
			kept = append(kept, field)
		}
	}
	switch len(kept) {
	case len(all):
		return ""
	case 0:
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + strings.Join(kept, "&")
}

// entry returns an entry of the audit log for the visitor's team.
func (c *call) entry(action, target string) audit.Entry {
	return audit.Entry{TeamID: c.team.TeamID, Action: action, Target: target}
}

func (c *call) ctx() context.Context { return c.r.Context() }

// id returns the id in the request's path, or [db.NoID], which matches no object.
func (c *call) id() string { return validID(c.r.PathValue("id")) }

func validID(text string) string {
	if text = strings.ToLower(text); id.Valid(text) {
		return text
	}
	return string(db.NoID)
}

// show responds with a page. Data of type *T may embed [base].
func (c *call) show(status int, t *web.Template, data any, opts ...web.Option) error {
	return c.Site.Show(c.w, c.r, c.statusWith(status), t, data, opts...)
}

// redirect leads to a page after a form. The message is shown there.
func (c *call) redirect(path, done string) error {
	if done != "" {
		c.Site.SetCookie(c.w, doneCookie, encodeDone(done), doneFor)
	}
	return web.Redirect(c.w, c.r, path)
}

// standAt makes the links of the page that is shown lead to a path with a query. It is for a page that is shown in
// response to a form whose own address has no page.
func (c *call) standAt(path, query string) {
	c.r = c.r.WithContext(c.ctx())
	c.r.URL = &url.URL{Path: path, RawQuery: query}
	c.r.RequestURI = c.r.URL.RequestURI()
}

// json responds to a script of a page.
func (c *call) json(with any) error {
	text, err := json.Marshal(with)
	if err != nil {
		return fmt.Errorf("encode the response to a script: %w", err)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Write(text)
	return nil
}

// base is what all pages of the dashboard have.
type base struct {
	TeamID   string
	TeamName string
	Done     string // what the form on the page before has done
	May      map[string]bool
}

// base returns the common part of a page, and clears the message of the form before.
func (c *call) base() base {
	return base{TeamID: c.team.TeamID, TeamName: c.team.TeamName, Done: c.done(), May: c.may()}
}

// may returns which scopes the visitor has, by name, so that a template leaves out forms that would be refused.
func (c *call) may() map[string]bool {
	all := map[string]bool{}
	for _, s := range []teams.Scope{teams.EmailsSend, teams.EmailsWrite, teams.EmailsShare, teams.DomainsWrite,
		teams.KeysWrite, teams.SuppressionsWrite, teams.WebhooksWrite, teams.MembersWrite, teams.UsageRead} {
		all[s.String()] = c.actor.Scopes.Has(s)
	}
	return all
}

// pager is the place in a list: where the pages before and after it are.
type pager struct{ Newer, Older, Said string }

// page reads the place in a list from the request. A cursor that is no id is refused.
func (c *call) page(limit int) (page.Page, error) {
	p := page.Page{Limit: limit}
	q := c.r.URL.Query()
	for name, into := range map[string]*string{"after": &p.After, "before": &p.Before} {
		if text := q.Get(name); text != "" {
			if !id.Valid(strings.ToLower(text)) {
				return p, errNoPlace
			}
			*into = strings.ToLower(text)
		}
	}
	if p.After != "" {
		p.Before = ""
	}
	return p, nil
}

// pager returns the links to the pages before and after a page with rows of the given ids.
func (c *call) pager(p page.Page, ids []string, more bool) pager {
	var at pager
	if len(ids) == 0 {
		return at
	}
	first, last := ids[0], ids[len(ids)-1]
	if p.After != "" || p.Before != "" && more {
		at.Newer = web.With(c.r.URL, "before", first, "after", "")
	}
	if p.Before != "" || more {
		at.Older = web.With(c.r.URL, "after", last, "before", "")
	}
	return at
}

// searchPager is like pager, for a page of a search. If the search ended early, next is the cursor from which the next
// page continues.
func (c *call) searchPager(p page.Page, ids []string, more bool, next string) pager {
	at := c.pager(p, ids, more)
	switch {
	case next == "":
	case p.Before != "":
		at.Newer = web.With(c.r.URL, "before", next, "after", "")
	default:
		at.Older = web.With(c.r.URL, "after", next, "before", "")
	}
	return at
}
