package dashboard

import (
	"context"
	"net/http"
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

// palettePages are the pages that the palette offers.
var palettePages = []paletteItem{
	{"Emails", "/app/emails", "", teams.EmailsRead}, {"Receiving", "/app/receiving", "", teams.ReceivingRead},
	{"Metrics", "/app/metrics", "", teams.EmailsRead}, {"Domains", "/app/domains", "", teams.DomainsRead},
	{"API keys", "/app/keys", "", teams.KeysRead}, {"Webhooks", "/app/webhooks", "", teams.WebhooksRead},
	{"Suppressions", "/app/suppressions", "", teams.SuppressionsRead}, {"Logs", "/app/logs", "", teams.LogsRead},
	{"People", "/app/people", "", teams.MembersRead}, {"Connected apps", "/app/apps", "", 0},
	{"Approvals", "/app/approvals", "", 0}, {"Settings", "/app/settings", "", 0}, {"First steps", "/app/start", "", 0},
	{"Account and security", "/app/account", "", 0}, {"Documentation", "/docs", "", 0},
	{"Send an email", "/app/emails/new", "Do", teams.EmailsSend},
	{"Add a domain", "/app/domains/new", "Do", teams.DomainsWrite},
	{"Create an API key", "/app/keys/new", "Do", teams.KeysWrite},
	{"Add a webhook", "/app/webhooks/new", "Do", teams.WebhooksWrite},
}

// palette answers the script of the palette.
func (c *call) palette() error {
	groups, err := c.find(c.r.URL.Query().Get("q"))
	if err != nil {
		return err
	}
	return c.json(groups)
}

var searchPage = pageOf("search.html")

// search is the palette as a page, for visitors without scripts.
func (c *call) search() error {
	text := c.r.URL.Query().Get("q")
	groups, err := c.find(text)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, searchPage, struct {
		base
		Query  string
		Groups []paletteGroup
	}{c.base(), text, groups}, web.Crumbs(c.team.TeamName, "/app/emails", "Search"))
}

// find returns what matches a text: pages by their names, emails by id, address or subject, and domains by name. What
// takes longer than paletteTime is left out.
func (c *call) find(text string) (groups []paletteGroup, err error) {
	text = strings.TrimSpace(text)
	if len(text) > paletteMax {
		return nil, fault.Invalidf("q", "The text is too long. Search for one address or a few words.")
	}
	lower := strings.ToLower(text)
	ctx, cancel := context.WithTimeout(c.ctx(), paletteTime)
	defer cancel()
	if text != "" {
		some, err := c.findEmails(ctx, text)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if len(some) > 0 {
			groups = append(groups, paletteGroup{"Emails", some})
		}
		if some, err = c.findDomains(ctx, lower); err != nil && ctx.Err() == nil {
			return nil, err
		}
		if len(some) > 0 {
			groups = append(groups, paletteGroup{"Domains", some})
		}
	}
	var pages []paletteItem
	for _, p := range palettePages {
		if (p.scope == 0 || c.actor.Scopes.Has(p.scope)) && strings.Contains(strings.ToLower(p.Label), lower) {
			pages = append(pages, p)
		}
	}
	if len(pages) > 0 {
		groups = append(groups, paletteGroup{"Pages", pages})
	}
	if len(groups) == 0 {
		groups = []paletteGroup{{Label: "Nothing found"}}
	}
	return groups, nil
}

func (c *call) findEmails(ctx context.Context, text string) (items []paletteItem, err error) {
	if !c.actor.Scopes.Has(teams.EmailsRead) {
		return nil, nil
	}
	var some []emails.Email
	if id.Valid(strings.ToLower(text)) {
		e, err := c.Emails.Get(ctx, c.team.TeamID, strings.ToLower(text))
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

func (c *call) findDomains(ctx context.Context, lower string) (items []paletteItem, err error) {
	if !c.actor.Scopes.Has(teams.DomainsRead) {
		return nil, nil
	}
	all, _, err := c.Domains.List(ctx, c.team.TeamID, page.Page{Limit: domainsMatch})
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if strings.Contains(d.Name, lower) && len(items) < paletteRows {
			items = append(items, paletteItem{Label: d.Name, Href: "/app/domains/" + d.ID})
		}
	}
	return items, nil
}
