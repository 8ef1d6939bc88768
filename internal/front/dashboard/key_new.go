package dashboard

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

var newKeyPage = pageOf("key_new.html")

// newKey is the content of the page that creates an API key, and of the page that shows the new key.
type newKey struct {
	base
	Form     *web.Form
	Token    string // of the key that was just created
	Name     string
	Snippets []snippet
}

// newKeyForm returns the form, with the team's domains to choose from.
func (c *call) newKeyForm() (*web.Form, error) {
	choices := []web.Choice{{Value: "", Label: "All domains"}}
	if c.actor.Scopes.Has(teams.DomainsRead) {
		all, _, err := c.Domains.List(c.ctx(), c.team.TeamID, page.Page{Limit: domainsMatch})
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			choices = append(choices, web.Choice{Value: d.ID, Label: d.Name})
		}
	}
	return web.NewForm(
		&web.Field{Name: "name", Label: "Name", Max: 50, Hint: "For example the service that uses the key."},
		&web.Field{Name: "permission", Label: "Access", Value: string(teams.SendingAccess),
			Options: []web.Choice{{Value: string(teams.FullAccess), Label: "Full access"},
				{Value: string(teams.SendingAccess), Label: "Sending only"}}},
		&web.Field{Name: "domain_id", Label: "Domain", Options: choices,
			Hint: "A key with sending access can be limited to one domain."}), nil
}

func (c *call) showNewKey() error {
	form, err := c.newKeyForm()
	if err != nil {
		return err
	}
	return c.newKeyPage(http.StatusOK, newKey{Form: form})
}

func (c *call) newKeyPage(status int, data newKey) error {
	data.base = c.base()
	return c.show(status, newKeyPage, data, web.Crumbs("API keys", "/app/keys", "Create an API key"), web.Class("form"))
}

// createKey creates a key and shows its token, which no later page shows.
func (c *call) createKey() error {
	form, err := c.newKeyForm()
	if err != nil {
		return err
	}
	form.Fill(c.form)
	k, token, err := c.Teams.CreateKey(c.ctx(), c.actor, teams.NewKey{Name: c.form.Get("name"),
		Permission: teams.Permission(c.form.Get("permission")), DomainID: c.form.Get("domain_id")})
	if err != nil {
		if fault.KindOf(err) == fault.Missing {
			err = fault.Invalidf("name", "Enter a name, for example the service that uses the key.").Because(err)
		}
		status, ours := c.refuse(form, err, "The key was not created.")
		if ours != nil {
			return ours
		}
		return c.newKeyPage(status, newKey{Form: form})
	}
	// The key exists, and no later page shows its token. Therefore, an error only makes the example more general.
	from, to, _ := c.sample(k.DomainID)
	return c.newKeyPage(http.StatusOK, newKey{Token: token, Name: k.Name,
		Snippets: snippetsFor(c.PublicURL, c.submissionAddress(), token, from, to)})
}

// sample returns the sender and the recipient of an example: an address at the given domain, or at the newest domain of
// the team, and the visitor's own address. After an error, the sender is the one that every team may use.
func (c *call) sample(domainID string) (from, to string, err error) {
	from, to = "onboarding@resend.dev", c.v.User.Email
	if strings.HasSuffix(to, ".localhost") {
		to = "you@example.org"
	}
	if !c.actor.Scopes.Has(teams.DomainsRead) {
		return from, to, nil
	}
	if domainID != "" {
		d, err := c.Domains.Get(c.ctx(), c.team.TeamID, domainID)
		if err != nil {
			return from, to, err
		}
		return "hello@" + d.Name, to, nil
	}
	domain, err := c.senderDomain()
	if domain != "" {
		from = "hello@" + domain
	}
	return from, to, err
}
