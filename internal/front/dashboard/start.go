package dashboard

import (
	"net/http"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/page"
)

var startPage = pageOf("start.html", "key_source.html")

// startView is the content of the page with the first steps of a team.
type startView struct {
	base
	Steps    []firstStep
	Done     int
	Snippets []snippet
	MaySend  bool // whether the visitor may send emails

	Development bool // whether the node is for development, whose operator has seen a key
}

// firstStep is one of the first steps, with its next action.
type firstStep struct {
	State        string // passed, or the state of what waits
	Title, Says  string
	Href, Action string
}

func (c *call) start() error {
	data := startView{base: c.base(), MaySend: c.actor.Scopes.Has(teams.EmailsSend),
		Development: c.Site.Development()}
	for _, x := range []struct {
		scope teams.Scope
		read  func() (firstStep, error)
	}{{teams.DomainsRead, c.domainStep}, {teams.KeysRead, c.keyStep}, {teams.EmailsRead, c.emailStep},
		{teams.WebhooksRead, c.webhookStep}} {
		if !c.actor.Scopes.Has(x.scope) {
			continue
		}
		s, err := x.read()
		if err != nil {
			return err
		}
		if s.State == "passed" {
			data.Done++
		}
		data.Steps = append(data.Steps, s)
	}
	var err error
	if data.Snippets, err = c.snippets(); err != nil {
		return err
	}
	return c.show(http.StatusOK, startPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "First steps"),
		web.Live("/app/live"))
}

// addPath returns the address of the form that adds an object to a list, or that of the list if the visitor's role may
// not add objects.
func (c *call) addPath(list string, scope teams.Scope) string {
	if c.actor.Scopes.Has(scope) {
		return list + "/new"
	}
	return list
}

func (c *call) domainStep() (firstStep, error) {
	all, _, err := c.Domains.List(c.ctx(), c.team.TeamID, page.Page{Limit: choicesShown})
	if err != nil || len(all) == 0 {
		return firstStep{"draft", "Add a domain", "You send emails from addresses at your domain.",
			c.addPath("/app/domains", teams.DomainsWrite), "Add domain"}, err
	}
	for i := range all {
		if all[i].MaySend() {
			return firstStep{"passed", "Domain " + all[i].Name + " is verified", "", "/app/domains/" + all[i].ID,
				"Open domain"}, nil
		}
	}
	return firstStep{"queued", "Verify " + all[0].Name,
		"Add its records at your DNS provider. Postrider looks for them repeatedly.",
		"/app/domains/" + all[0].ID, "Show records"}, nil
}

func (c *call) keyStep() (firstStep, error) {
	all, _, err := c.Teams.ListKeys(c.ctx(), c.team.TeamID, page.Page{Limit: 1})
	if err != nil || len(all) == 0 {
		return firstStep{"draft", "Create an API key", "Your code identifies itself with the key.",
			c.addPath("/app/keys", teams.KeysWrite), "Create key"}, err
	}
	return firstStep{"passed", "API key " + all[0].Name + " exists", "", "/app/keys", "Open keys"}, nil
}

func (c *call) emailStep() (firstStep, error) {
	all, _, err := c.Emails.List(c.ctx(), c.team.TeamID, page.Page{Limit: 1})
	if err != nil || len(all) == 0 {
		return firstStep{"queued", "Send the first email", "Run the example below. This page notices it.", "/app/emails/new",
			"Send test email"}, err
	}
	return firstStep{"passed", "An email was sent", "", emailPath(all[0].ID), "Open the newest"}, nil
}

func (c *call) webhookStep() (firstStep, error) {
	all, _, err := c.Webhooks.List(c.ctx(), c.team.TeamID, page.Page{Limit: 1})
	if err != nil || len(all) == 0 {
		return firstStep{"draft", "Add a webhook", "Your code learns at once that an email was delivered, bounced or opened.",
			c.addPath("/app/webhooks", teams.WebhooksWrite), "Add webhook"}, err
	}
	return firstStep{"passed", "A webhook receives events", all[0].URL, "/app/webhooks/" + all[0].ID, "Open webhook"}, nil
}
