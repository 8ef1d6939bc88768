package dashboard

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/sending/domains"
)

var forwardingPage = pageOf("forwarding.html")

// forwardingView is the content of the page with a domain's forwarding rules.
type forwardingView struct {
	base
	Domain domains.Domain
	Rows   []forwards.Rule
	Pager  pager
	Form   *web.Form
	May    bool // whether the visitor may create and change rules
}

func forwardingPath(domainID string) string { return domainPath(domainID) + "/forwarding" }

func forwardingForm() *web.Form {
	return web.NewForm(
		&web.Field{Name: "match", Label: "Mail for", Max: 64,
			Hint: "The part of the address before the @, such as sales, or * for all addresses."},
		&web.Field{Name: "address", Label: "Forward to", Max: 2000,
			Hint: "An address, whose owner must confirm it, or the URL of a webhook."})
}

func (c *call) forwarding() error { return c.forwardingPage(http.StatusOK, forwardingForm()) }

func (c *call) forwardingPage(status int, f *web.Form) error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	all, more, err := c.Forwards.List(c.ctx(), c.team.TeamID, d.ID, p)
	if err != nil {
		return err
	}
	data := forwardingView{base: c.base(), Domain: d, Rows: all, Form: f, May: c.mayForward()}
	var ids []string
	for i, r := range all {
		ids = append(ids, r.ID)
		if !c.actor.Scopes.Has(teams.DomainsWrite) {
			all[i] = r.HideURL()
		}
	}
	data.Pager = c.pager(p, ids, more)
	return c.show(status, forwardingPage, data, web.Crumbs("Domains", "/app/domains", d.Name,
		domainPath(d.ID), "Forwarding"))
}

// mayForward reports whether the visitor may create rules. Rules disclose received mail, so they need receiving:read.
func (c *call) mayForward() bool {
	return c.actor.Scopes.Has(teams.DomainsWrite) && c.actor.Scopes.Has(teams.ReceivingRead)
}

func (c *call) addForward() error {
	if err := c.actor.Require(teams.ReceivingRead); err != nil {
		return err
	}
	f := forwardingForm().Fill(c.form)
	in := forwards.NewRule{Local: c.form.Get("match"), Address: strings.TrimSpace(c.form.Get("address"))}
	if strings.Contains(in.Address, "://") {
		in.Address, in.URL = "", in.Address
	}
	var r forwards.Rule
	status, err := saveForm(f, func() (err error) {
		r, err = c.Forwards.Create(c.ctx(), c.team.TeamID, c.id(), in)
		return err
	})
	if err != nil {
		return err
	}
	if status != 0 {
		return c.forwardingPage(status, f)
	}
	switch {
	case r.URL != "":
		return c.forwardSecretPage(r.Secret, "Rule created",
			"The rule is active. Check with this secret that requests come from Postrider.")
	case r.State() == forwards.Waiting:
		return c.redirect(forwardingPath(c.id()),
			"The owner of "+r.Address+" gets an email with a link for confirming.")
	}
	return c.redirect(forwardingPath(c.id()), "The rule is active.")
}

// forwardSecretPage shows the signing secret of a rule once.
func (c *call) forwardSecretPage(secret, title, text string) error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, secretPage, secretView{c.base(), title, text, secret, "the page of the rules",
		forwardingPath(d.ID), "Back to rules", verifySnippets}, web.Crumbs("Domains", "/app/domains", d.Name,
		domainPath(d.ID), "Forwarding", forwardingPath(d.ID), title), web.Class("form"))
}

func (c *call) showForwardSecret() error {
	r, err := c.Forwards.GetSecret(c.ctx(), c.team.TeamID, c.id(), c.ruleID())
	if err != nil {
		return err
	}
	if r.Secret == "" { // a rule with an address, whose page has no button for this
		return c.redirect(forwardingPath(c.id()), "")
	}
	if err := c.readAction("domain.forward_secret_shown", r.DomainID); err != nil {
		return err
	}
	return c.forwardSecretPage(r.Secret, "Signing secret", "Check with this secret that requests come from Postrider.")
}

func (c *call) askRotateForward() error {
	r, err := c.Forwards.Get(c.ctx(), c.team.TeamID, c.id(), c.ruleID())
	if err != nil {
		return err
	}
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, r.DomainID)
	if err != nil {
		return err
	}
	back := forwardingPath(d.ID)
	return c.ask(http.StatusOK, question{Title: "Rotate the signing secret?", Button: "Rotate secret",
		Keep: "Keep secret", Back: back, Text: []string{
			"It signs the requests of the rule for " + r.Local + "@" + d.Name + " to " + r.URL + ".",
			"The next page shows a new secret. For 24 hours, each request is signed with the new and the old secret, " +
				"so your server can change over without missing an email. An even older secret becomes invalid at once."}},
		"Domains", "/app/domains", d.Name, domainPath(d.ID), "Forwarding", back)
}

func (c *call) rotateForward() error {
	secret, err := c.Forwards.Rotate(c.ctx(), c.team.TeamID, c.id(), c.ruleID())
	if text, ok := refused(err); ok {
		f := forwardingForm()
		f.Problem = text
		return c.forwardingPage(http.StatusUnprocessableEntity, f)
	}
	if err != nil {
		return err
	}
	return c.forwardSecretPage(secret, "New signing secret", "Replace the old secret in your server within 24 hours. "+
		"Until then, requests are signed with both.")
}

// ruleID returns the id of the rule in the path.
func (c *call) ruleID() string { return validID(c.r.PathValue("rule")) }

func (c *call) switchForward() error {
	if err := c.actor.Require(teams.ReceivingRead); err != nil {
		return err
	}
	on := c.form.Get("enabled") == "1"
	done := "The rule is switched off."
	if on {
		done = "The rule is switched on."
	}
	return c.changeForward(done, func() error {
		_, err := c.Forwards.Update(c.ctx(), c.team.TeamID, c.id(), c.ruleID(), forwards.Change{Enabled: &on})
		return err
	})
}

func (c *call) deleteForward() error {
	return c.changeForward("The rule is deleted.", func() error {
		return c.Forwards.Delete(c.ctx(), c.team.TeamID, c.id(), c.ruleID())
	})
}

func (c *call) askForward() error {
	return c.changeForward("The owner gets another email. An address gets at most one a day.", func() error {
		_, err := c.Forwards.Ask(c.ctx(), c.team.TeamID, c.id(), c.ruleID())
		return err
	})
}

// changeForward changes a rule and redirects to the list, which shows the message done.
func (c *call) changeForward(done string, change func() error) error {
	if err := change(); err != nil {
		text, ok := refused(err)
		if !ok {
			return err
		}
		f := forwardingForm()
		f.Problem = text
		return c.forwardingPage(http.StatusUnprocessableEntity, f)
	}
	return c.redirect(forwardingPath(c.id()), done)
}
