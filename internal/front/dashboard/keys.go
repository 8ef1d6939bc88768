package dashboard

import (
	"net/http"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/page"
)

var keysPage = pageOf("keys.html")

// keyList is the content of the page that lists the team's API keys.
type keyList struct {
	base
	Rows  []keyRow
	Pager pager
	First bool // whether the team has no key yet
	SMTP  bool // whether the installation takes emails by SMTP
}

// keyRow is a row of the list.
type keyRow struct {
	ID, Name, Permission, Domain, Hint string
	CreatedAt, LastUsedAt              time.Time
}

func (c *call) keys() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	all, more, err := c.Teams.ListKeys(c.ctx(), c.team.TeamID, p)
	if err != nil {
		return err
	}
	names, err := c.domainNames()
	if err != nil {
		return err
	}
	data := keyList{base: c.base(), SMTP: len(c.Submission()) > 0}
	var ids []string
	for i := range all {
		ids = append(ids, all[i].ID)
		data.Rows = append(data.Rows, keyRowOf(&all[i], names))
	}
	data.Pager = c.pager(p, ids, more)
	data.First = len(ids) == 0 && p == (page.Page{Limit: rowsShown})
	return c.show(http.StatusOK, keysPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "API keys"))
}

func keyRowOf(k *teams.Key, names map[string]string) keyRow {
	row := keyRow{ID: k.ID, Name: k.Name, Permission: permissions[k.Permission], Domain: "All domains", Hint: k.Hint,
		CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt}
	if k.DomainID != "" {
		if row.Domain = names[k.DomainID]; row.Domain == "" {
			row.Domain = "a deleted domain"
		}
	}
	return row
}

// permissions names the permissions of keys.
var permissions = map[teams.Permission]string{teams.FullAccess: "Full access", teams.SendingAccess: "Sending only"}

// domainNames returns the names of the team's domains by their ids.
func (c *call) domainNames() (map[string]string, error) {
	names := map[string]string{}
	if !c.actor.Scopes.Has(teams.DomainsRead) {
		return names, nil
	}
	all, _, err := c.Domains.List(c.ctx(), c.team.TeamID, page.Page{Limit: domainsMatch})
	for _, d := range all {
		names[d.ID] = d.Name
	}
	return names, err
}

// keyPath returns the address of a key's page.
func keyPath(id string) string { return "/app/keys/" + url.PathEscape(id) }
