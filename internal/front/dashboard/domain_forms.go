package dashboard

import (
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/domains"
)

func (c *call) verifyDomain() error {
	if err := c.Domains.Verify(c.ctx(), c.team.TeamID, c.id()); err != nil {
		return err
	}
	return c.redirect(domainPath(c.id()), "The records are looked up now.")
}

func (c *call) verifyClaim() error {
	if _, err := c.Domains.VerifyClaim(c.ctx(), c.team.TeamID, c.id()); err != nil {
		if text, ok := refused(err); ok {
			return c.domainPage(http.StatusUnprocessableEntity, domainView{Refused: text})
		}
		return err
	}
	return c.redirect(domainPath(c.id()), "The record is looked up now.")
}

// settingsForm returns the form with a domain's settings.
func settingsForm(d *domains.Domain) (*web.Form, []tick) {
	return web.NewForm(
		&web.Field{Name: "tls", Label: "Encrypt emails", Value: d.TLS, Options: tlsChoices,
			Hint: "Without a verified certificate, an enforced email waits and then bounces."},
		&web.Field{Name: "tracking_subdomain", Label: "Tracking subdomain", Value: d.TrackingSubdomain,
			Max: 63, Optional: true,
			Hint: "The first label of the host of tracked links, such as links. Links of earlier subdomains go on working."},
	), domainTicks(d.Sending, d.Receiving, d.OpenTracking, d.ClickTracking)
}

func (c *call) saveDomain() error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	form, ticks := settingsForm(&d)
	form.Fill(c.form)
	for i := range ticks {
		ticks[i].On = c.form.Get(ticks[i].Name) != ""
	}
	tls, tracking := c.form.Get("tls"), c.form.Get("tracking_subdomain")
	err = c.Domains.Update(c.ctx(), c.team.TeamID, d.ID, domains.Change{OpenTracking: &ticks[2].On,
		ClickTracking: &ticks[3].On, TLS: &tls, TrackingSubdomain: &tracking,
		Capabilities: domains.Capabilities{Sending: &ticks[0].On, Receiving: &ticks[1].On}})
	if err != nil {
		status, ours := c.refuse(form, err, "The settings were not saved.")
		if ours != nil {
			return ours
		}
		view := domainView{Settings: true, Form: form, Ticks: ticks}
		if fieldOf(err) == "capabilities" {
			view.UseError, form.Problem = "Choose at least one use.", "The settings were not saved."
		}
		return c.domainPage(status, view)
	}
	return c.redirect(domainPath(d.ID)+"/settings", "Settings saved.")
}

// confirmError returns the error beside a typed confirmation that does not match.
func confirmError(name string) string { return "Type " + name + " exactly as it is shown." }

func (c *call) deleteDomain() error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	if !web.Confirms(c.form.Get("confirm"), d.Name) {
		return c.domainPage(http.StatusUnprocessableEntity, domainView{Deleting: true, Confirm: c.form.Get("confirm"),
			Refused: confirmError(d.Name)})
	}
	if err := c.Domains.Delete(c.ctx(), c.team.TeamID, d.ID); err != nil {
		return err
	}
	return c.redirect("/app/domains", "Domain "+d.Name+" deleted.")
}
