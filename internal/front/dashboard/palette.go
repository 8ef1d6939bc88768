package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Limits of the palette.
const (
	paletteMax   = 200 // bytes of the text that is searched for
	paletteRows  = 6   // results of each kind
	paletteTime  = 400 * time.Millisecond
	domainsMatch = 500 // domains that are compared with the text
	docsLetters  = 2   // letters from which on the documentation is searched
)

// paletteGroup is a group of results.
type paletteGroup struct {
	Label string        `json:"label"`
	Items []paletteItem `json:"items"`
}

// paletteItem is a result: a page, an object, or something to do.
type paletteItem struct {
	Label string `json:"label"`
	Href  string `json:"href"`
	Aside string `json:"aside,omitzero"`
	scope teams.Scope
}

// mayOpen reports whether the visitor's team may open a page: a suspended team may open some. The pattern of a page is
// its path in the table of routes. Pages that are not in the table, such as those of the account, are open.
func (c *call) mayOpen(pattern string) bool {
	if !c.actor.Suspended {
		return true
	}
	for _, r := range c.routes() {
		if r.pattern == "GET "+pattern {
			return r.whileSuspended
		}
	}
	return true
}

// palettePages are the pages that the palette offers.
var palettePages = []paletteItem{
	{"Emails", "/app/emails", "", teams.EmailsRead}, {"Receiving", "/app/receiving", "", teams.ReceivingRead},
	{"Metrics", "/app/metrics", "", teams.EmailsRead}, {"Domains", "/app/domains", "", teams.DomainsRead},
	{"API keys", "/app/keys", "", teams.KeysRead}, {"Webhooks", "/app/webhooks", "", teams.WebhooksRead},
	{"Suppressions", "/app/suppressions", "", teams.SuppressionsRead}, {"Logs", "/app/logs", "", teams.LogsRead},
	{"People", "/app/people", "", teams.MembersRead}, {"Connected apps", "/app/apps", "", 0},
	{"Approvals", "/app/approvals", "", 0}, {"Exports", "/app/exports", "", 0}, {"Settings", "/app/settings", "", 0},
	{"First steps", "/app/start", "", 0},
	{"Account and security", "/app/account", "", 0}, {"Documentation", "/docs", "", 0},
}

// paletteActions are what the palette offers to do.
var paletteActions = []paletteItem{
	{"Send an email", "/app/emails/new", "", teams.EmailsSend},
	{"Add a domain", "/app/domains/new", "", teams.DomainsWrite},
	{"Create an API key", "/app/keys/new", "", teams.KeysWrite},
	{"Add a webhook", "/app/webhooks/new", "", teams.WebhooksWrite},
	{"Suppress an address", "/app/suppressions/add", "", teams.SuppressionsWrite},
}

// DocsSection is a heading of the documentation.
type DocsSection struct {
	Title  string
	Detail string // method and path of an operation, the section of a page, or ""
	Path   string // address of the section
}

// palette answers the script of the palette, which searches the documentation itself.
func (c *call) palette() error {
	groups, err := c.find(c.r.URL.Query().Get("q"), false)
	if err != nil {
		return err
	}
	return c.json(groups)
}

var searchPage = pageOf("search.html")

// search is the palette as a page, for visitors without scripts.
func (c *call) search() error {
	text := c.r.URL.Query().Get("q")
	groups, err := c.find(text, true)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, searchPage, struct {
		base
		Query  string
		Groups []paletteGroup
	}{c.base(), text, groups}, web.Crumbs(c.team.TeamName, "/app/emails", "Search"))
}

// find returns what matches a text: emails by id, address or subject, contacts by id, address or name, broadcasts and
// domains by name, pages, actions and, if docs is true, the documentation. After the sign >, the text selects actions only.
// Results that take longer than paletteTime are left out.
func (c *call) find(text string, docs bool) (groups []paletteGroup, err error) {
	text = strings.TrimSpace(text)
	if len(text) > paletteMax {
		return nil, fault.Invalidf("q", "The text is too long. Search for one address or a few words.")
	}
	lower, onlyActions := strings.CutPrefix(strings.ToLower(text), ">")
	lower = strings.TrimSpace(lower)
	ctx, cancel := context.WithTimeout(c.ctx(), paletteTime)
	defer cancel()
	add := func(label string, items []paletteItem) {
		if len(items) > 0 {
			groups = append(groups, paletteGroup{label, items})
		}
	}
	for _, x := range []struct {
		label string
		page  string // pattern of the pages of what is found
		scope teams.Scope
		find  func(ctx context.Context, text string) ([]paletteItem, error)
	}{
		{"Emails", "/app/emails/{id}", teams.EmailsRead, c.findEmails},
		{"Contacts", "/app/contacts/{id}", teams.ContactsRead, c.findContacts},
		{"Domains", "/app/domains/{id}", teams.DomainsRead, c.findDomains},
		{"Broadcasts", "/app/broadcasts/{id}", teams.BroadcastsRead, c.findBroadcasts},
	} {
		if text == "" || onlyActions || !c.actor.Scopes.Has(x.scope) || !c.mayOpen(x.page) {
			continue
		}
		items, err := x.find(ctx, text)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		add(x.label, items)
	}
	if !onlyActions {
		add("Pages", c.matching(palettePages, lower))
	}
	add("Do", c.matching(paletteActions, lower))
	if docs && !onlyActions {
		add("Documentation", c.findDocs(lower))
	}
	if len(groups) == 0 {
		groups = []paletteGroup{{Label: "Nothing found"}}
	}
	return groups, nil
}

// matching returns the items whose label contains a text and that the visitor may open.
func (c *call) matching(all []paletteItem, lower string) (items []paletteItem) {
	for _, p := range all {
		if (p.scope == 0 || c.actor.Scopes.Has(p.scope)) && c.mayOpen(p.Href) &&
			strings.Contains(strings.ToLower(p.Label), lower) {
			items = append(items, p)
		}
	}
	return items
}

func (c *call) findEmails(ctx context.Context, text string) (items []paletteItem, err error) {
	var some []emails.Email
	if id.Valid(strings.ToLower(text)) {
		e, _, err := c.Emails.GetWithin(ctx, c.team.TeamID, strings.ToLower(text), 0) // the palette shows no content
		if fault.KindOf(err) == fault.NotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		some = append(some, e)
	} else {
		found, err := c.Emails.Search(ctx, c.actor, emails.Filter{Query: text}, page.Page{Limit: paletteRows})
		if err != nil && fault.KindOf(err) != fault.Invalid {
			return nil, err
		}
		some = found.Items
	}
	for i := range some {
		row := rowOf(&some[i])
		label := row.To
		if row.Subject != "" {
			label += " · " + row.Subject
		}
		items = append(items, paletteItem{Label: label, Href: emailPath(row.ID), Aside: web.Label(string(row.State))})
	}
	return items, nil
}

func (c *call) findContacts(ctx context.Context, text string) (items []paletteItem, err error) {
	all, err := c.Contacts.Find(ctx, c.team.TeamID, text, paletteRows)
	for i := range all {
		label := all[i].Address
		if name := fullName(&all[i]); name != "" {
			label += " · " + name
		}
		state := "subscribed"
		if all[i].Unsubscribed {
			state = "unsubscribed"
		}
		items = append(items, paletteItem{Label: label, Href: contactPath(all[i].ID), Aside: web.Label(state)})
	}
	return items, err
}

func (c *call) findDomains(ctx context.Context, text string) (items []paletteItem, err error) {
	all, _, err := c.Domains.List(ctx, c.team.TeamID, page.Page{Limit: domainsMatch})
	for _, d := range all {
		if strings.Contains(d.Name, strings.ToLower(text)) && len(items) < paletteRows {
			items = append(items, paletteItem{Label: d.Name, Href: "/app/domains/" + d.ID})
		}
	}
	return items, err
}

func (c *call) findBroadcasts(ctx context.Context, text string) (items []paletteItem, err error) {
	all, err := c.Broadcasts.Find(ctx, c.team.TeamID, text, paletteRows)
	for _, b := range all {
		items = append(items, paletteItem{Label: b.Name, Href: broadcastPath(b.ID),
			Aside: web.Label(broadcastState(b.Status))})
	}
	return items, err
}

// findDocs returns the pages of the documentation and the headings of the API reference that contain each word of a text.
// Those that contain the whole text come first.
func (c *call) findDocs(lower string) []paletteItem {
	if len(lower) < docsLetters {
		return nil
	}
	words := strings.Fields(lower)
	var whole, rest []paletteItem
	for _, s := range c.Docs() {
		item := paletteItem{Label: s.Title, Href: s.Path, Aside: s.Detail}
		in := strings.ToLower(s.Title + " " + s.Detail)
		switch {
		case strings.Contains(in, lower):
			whole = append(whole, item)
		case !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(in, word) }):
			rest = append(rest, item)
		}
	}
	all := append(whole, rest...)
	return all[:min(len(all), paletteRows)]
}

// docsOf returns the address at which the documentation describes an operation, such as "GET /emails".
func (c *call) docsOf(operation string) string {
	for _, s := range c.Docs() {
		if s.Detail == operation {
			return s.Path
		}
	}
	return "/docs"
}
