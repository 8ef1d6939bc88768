package dashboard

import (
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// choicesShown is the maximum number of items in the menu of a filter.
const choicesShown = 100

// menu is the choices of a filter. The values are ids, and the labels are names.
type menu []web.Choice

// label returns the name of the item with an id, or "" if the menu does not have it.
func (m menu) label(id string) string {
	for _, x := range m {
		if x.Value == id {
			return x.Label
		}
	}
	return ""
}

// menuOf returns a menu of the items that list returns, or an empty one if the visitor lacks the scope.
func menuOf[T any](c *call, scope teams.Scope, list func(p page.Page) ([]T, bool, error),
	choice func(*T) web.Choice) (m menu, err error) {
	if !c.actor.Scopes.Has(scope) {
		return nil, nil
	}
	all, _, err := list(page.Page{Limit: choicesShown})
	for i := range all {
		m = append(m, choice(&all[i]))
	}
	return m, err
}

// domainMenu returns the team's domains.
func (c *call) domainMenu() (menu, error) {
	return menuOf(c, teams.DomainsRead, func(p page.Page) ([]domains.Domain, bool, error) {
		return c.Domains.List(c.ctx(), c.team.TeamID, p)
	}, func(d *domains.Domain) web.Choice { return web.Choice{Value: d.ID, Label: d.Name} })
}

// keyMenu returns the team's API keys.
func (c *call) keyMenu() (menu, error) {
	return menuOf(c, teams.KeysRead, func(p page.Page) ([]teams.Key, bool, error) {
		return c.Teams.ListKeys(c.ctx(), c.team.TeamID, p)
	}, func(k *teams.Key) web.Choice { return web.Choice{Value: k.ID, Label: k.Name} })
}

// memberMenu returns the team's members.
func (c *call) memberMenu() (menu, error) {
	return menuOf(c, teams.MembersRead, func(p page.Page) ([]members.Membership, bool, error) {
		return c.Members.List(c.ctx(), c.team.TeamID, p)
	}, func(m *members.Membership) web.Choice { return web.Choice{Value: m.UserID, Label: m.Email} })
}
