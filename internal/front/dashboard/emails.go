package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

var emailsPage = pageOf("emails.html", "saved.html", "key_source.html")

// rowsShown is the number of rows on a page of a list.
const rowsShown = 50

// statesShown are the states by which the list of emails can be filtered, in the order of the menu.
var statesShown = []emails.State{emails.Queued, emails.Scheduled, emails.Sent, emails.Delivered, emails.Opened,
	emails.Clicked, emails.Delayed, emails.Bounced, emails.Complained, emails.Failed, emails.Suppressed, emails.Canceled}

// spans are the times by which lists can be filtered, by the value of the parameter in.
var spans = []struct {
	Value, Label string
	length       time.Duration
}{
	{"1h", "Last hour", time.Hour}, {"24h", "Last 24 hours", 24 * time.Hour}, {"7d", "Last 7 days", 7 * 24 * time.Hour},
	{"30d", "Last 30 days", 30 * 24 * time.Hour},
}

// emailList is the content of the page that lists the emails that the team sent.
type emailList struct {
	base
	Filter   emailFilter
	Rows     []emailRow
	Pager    pager
	Back     time.Time // how far the search went back, if its time was over; else zero
	First    bool      // whether the team has sent no email yet
	Snippets []snippet
	Export   string
	Saved    savedView
	Problem  string // why the search was refused; else ""

	Development bool // whether the node is for development, whose operator has seen a key
}

// emailFilter is the filter as the visitor set it.
type emailFilter struct {
	Query, Tag, In, From                   string
	Domain, Key, Template, Broadcast       string
	Status                                 []string
	States                                 []emails.State
	Domains, Keys                          []web.Choice
	DomainName, KeyName, SpanLabel         string
	Set                                    int // how many filters are set
	Clear                                  string
	NoStatus, NoDomain, NoKey, NoTag, NoIn string // addresses of the list without that filter
}

// Has reports whether a state is selected.
func (f emailFilter) Has(s emails.State) bool { return slices.Contains(f.Status, string(s)) }

// Spans returns the choices of time.
func (f emailFilter) Spans() any { return spanChoices(f.In) }

// spanChoices returns the choices of time, and the current period if it is not among them.
func spanChoices(in string) any {
	if from, to, ok := periodOf(in); ok {
		return append([]struct {
			Value, Label string
			length       time.Duration
		}{{Value: in, Label: periodLabel(from, to)}}, spans...)
	}
	return spans
}

// errSpan is answered to a time that cannot be read. A list or an export without it would have emails that were not
// asked for.
var errSpan = fault.Invalidf("in", "The time in the address of this page cannot be read. Open the list again, and "+
	"choose a time.")

// spanOf returns the span of time that the parameter in names, and its label. They are zero if the parameter is empty.
func spanOf(in string) (from, to time.Time, label string, err error) {
	if in == "" {
		return from, to, "", nil
	}
	for _, s := range spans {
		if s.Value == in {
			return time.Now().Add(-s.length), time.Time{}, s.Label, nil
		}
	}
	if from, to, ok := periodOf(in); ok {
		return from, to, periodLabel(from, to), nil
	}
	return time.Time{}, time.Time{}, "", errSpan
}

// emailRow is a row of the list.
type emailRow struct {
	ID, To, Subject string
	Href            string // its page, which knows the filter of the list
	More            int    // how many recipients there are besides To
	State           emails.State
	Said            string // the last event in words
	At              time.Time
	Next            time.Time // of the next attempt, or zero
	SendAt          time.Time // when a scheduled email is sent, or zero
}

func (c *call) emails() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	data := emailList{base: c.base(), Export: c.exportPath()}
	f, filter, err := c.emailFilter()
	if err != nil {
		return err
	}
	data.Filter = filter
	if data.Saved, err = c.saved(savedfilters.Emails); err != nil {
		return err
	}
	var found emails.Found
	if f.Empty() {
		found.Items, found.HasMore, err = c.Emails.List(c.ctx(), c.team.TeamID, p)
	} else {
		found, err = c.Emails.Search(c.ctx(), c.actor, f, p)
	}
	status := http.StatusOK
	if text, ok := searchProblem(err); ok {
		data.Problem, status, err = text, http.StatusUnprocessableEntity, nil
	}
	if err != nil {
		return err
	}
	some := found.Items
	data.Back = found.SearchedBackTo
	var ids []string
	for i := range some {
		ids = append(ids, some[i].ID)
	}
	latest, err := c.Emails.Latest(c.ctx(), c.team.TeamID, ids)
	if err != nil {
		return err
	}
	for i := range some {
		row := rowOf(&some[i])
		row.Href = emailPath(row.ID) + listQuery(c.r.URL, emailFilters)
		newest := latest[row.ID]
		if row.State == emails.Delivered && newest.Host == events.OutboxHost {
			row.State = capturedState
		}
		row.Said, row.Next = lastEvent(newest)
		data.Rows = append(data.Rows, row)
	}
	data.Pager = c.searchPager(p, ids, found.HasMore, found.Next)
	data.First = len(ids) == 0 && f.Empty() && p == (page.Page{Limit: rowsShown})
	if data.First {
		data.Development = c.Site.Development()
		if data.Snippets, err = c.snippets(); err != nil {
			return err
		}
	}
	return c.show(status, emailsPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Emails"),
		web.Live("/app/live"), web.HTMX())
}

// rowOf returns the row of an email.
func rowOf(e *emails.Email) emailRow {
	row := emailRow{ID: e.ID, Subject: e.Subject, State: e.LastEvent, At: e.CreatedAt, More: -1}
	for _, list := range [][]string{e.To, e.Cc, e.Bcc} {
		row.More += len(list)
		if row.To == "" && len(list) > 0 {
			row.To = addressOnly(list[0])
		}
	}
	if e.LastEvent == emails.Scheduled {
		row.SendAt = e.ScheduledAt
	}
	return row
}

// addressOnly returns the address of a mailbox without the name.
func addressOnly(mailbox string) string {
	if i := strings.LastIndexByte(mailbox, '<'); i >= 0 {
		return strings.TrimSuffix(mailbox[i+1:], ">")
	}
	return mailbox
}

// emailFilter reads the filter from the request's query, and the choices that it offers.
func (c *call) emailFilter() (f emails.Filter, shown emailFilter, err error) {
	q := c.r.URL.Query()
	shown = emailFilter{Query: strings.TrimSpace(q.Get("q")), Tag: q.Get("tag"), In: q.Get("in"), From: q.Get("from"),
		Domain: q.Get("domain"), Key: q.Get("key"), Template: q.Get("template"), Broadcast: q.Get("broadcast"),
		States: statesShown, Clear: c.r.URL.Path}
	f = emails.Filter{Query: shown.Query, From: shown.From}
	for _, s := range q["status"] {
		if s != "" && !slices.Contains(shown.Status, s) {
			shown.Status = append(shown.Status, s)
		}
	}
	f.Status = shown.Status
	f.TagName, f.TagValue, _ = strings.Cut(shown.Tag, ":")
	for _, x := range []struct {
		from string
		into *string
	}{{shown.Domain, &f.DomainID}, {shown.Key, &f.KeyID}, {shown.Template, &f.TemplateID},
		{shown.Broadcast, &f.BroadcastID}} {
		if x.from != "" {
			*x.into = validID(x.from)
		}
	}
	if f.CreatedAfter, f.CreatedBefore, shown.SpanLabel, err = spanOf(shown.In); err != nil {
		return f, shown, err
	}
	for _, set := range []bool{shown.Query != "", shown.Tag != "", shown.SpanLabel != "", shown.Domain != "",
		shown.Key != "", shown.Template != "", shown.Broadcast != "", len(shown.Status) > 0, shown.From != ""} {
		if set {
			shown.Set++
		}
	}
	without := func(name string) string { return web.With(c.r.URL, name, "", "after", "", "before", "") }
	shown.NoStatus, shown.NoDomain, shown.NoKey = without("status"), without("domain"), without("key")
	shown.NoTag, shown.NoIn = without("tag"), without("in")
	if err := c.choices(&shown); err != nil {
		return f, shown, err
	}
	return f, shown, nil
}

// choices adds the team's domains and keys to the filter's menus.
func (c *call) choices(f *emailFilter) error {
	domains, err := c.domainMenu()
	if err != nil {
		return err
	}
	keys, err := c.keyMenu()
	f.Domains, f.DomainName = domains, domains.label(f.Domain)
	f.Keys, f.KeyName = keys, keys.label(f.Key)
	return err
}

// emailPath returns the address of an email's page.
func emailPath(id string) string { return "/app/emails/" + url.PathEscape(id) }
