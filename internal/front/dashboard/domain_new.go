package dashboard

import (
	"errors"
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/domains"
)

var newDomainPage = pageOf("domain_new.html")

// newDomain is the content of the page that adds a domain.
type newDomain struct {
	base
	Form  *web.Form
	Ticks []tick
	Claim bool // whether the domain belongs to another team, and can be claimed
}

// Name returns the field for the name, which stands above the settings.
func (n newDomain) Name() *web.Field { return n.Form.Fields[0] }

// More returns the fields for settings.
func (n newDomain) More() []*web.Field { return n.Form.Fields[1:] }

// Open reports whether the settings are shown: one of them may be wrong.
func (n newDomain) Open() bool {
	return n.Form.Problem != "" && n.Name().Error == ""
}

// tlsChoices are the values of the setting tls.
var tlsChoices = []web.Choice{{Value: domains.Opportunistic, Label: "If the receiving server offers TLS"},
	{Value: domains.Enforced, Label: "Only with TLS and a verified certificate"}}

// regionChoices are the regions that the API accepts.
var regionChoices = []web.Choice{{Value: "us-east-1", Label: "us-east-1"}, {Value: "eu-west-1", Label: "eu-west-1"},
	{Value: "sa-east-1", Label: "sa-east-1"}, {Value: "ap-northeast-1", Label: "ap-northeast-1"}}

func newDomainForm() (*web.Form, []tick) {
	return web.NewForm(
		&web.Field{Name: "name", Label: "Domain", Max: 253, Hint: "Such as news.acme.example. Use a subdomain if another " +
			"service sends from the domain already."},
		&web.Field{Name: "region", Label: "Region", Value: "us-east-1", Options: regionChoices},
		&web.Field{Name: "custom_return_path", Label: "Return path", Max: 63, Optional: true,
			Hint: "The first label of the host that receives bounces. Empty: send. It cannot be changed later."},
		&web.Field{Name: "tls", Label: "Encrypt emails", Value: domains.Opportunistic, Options: tlsChoices},
		&web.Field{Name: "tracking_subdomain", Label: "Tracking subdomain", Max: 63, Optional: true,
			Hint: "The first label of the host of tracked links, such as links. Empty: none."},
	), domainTicks(true, false, false, false)
}

// domainTicks returns the checkboxes of a domain's settings.
func domainTicks(sending, receiving, opens, clicks bool) []tick {
	return []tick{{"sending", "Send emails from this domain", "", sending},
		{"receiving", "Receive emails at this domain", "All mail to the domain comes here.", receiving},
		{"open_tracking", "Track opens", "Adds an invisible image to HTML emails.", opens},
		{"click_tracking", "Track clicks", "Links lead through the tracking subdomain.", clicks}}
}

func (c *call) showNewDomain() error {
	form, ticks := newDomainForm()
	form.Fields[0].Value = c.r.URL.Query().Get("name")
	return c.newDomainPage(http.StatusOK, newDomain{Form: form, Ticks: ticks})
}

func (c *call) newDomainPage(status int, data newDomain) error {
	data.base = c.base()
	return c.show(status, newDomainPage, data, web.Crumbs("Domains", "/app/domains", "Add a domain"), web.Class("form"))
}

// typedDomain reads the form for a new domain.
func (c *call) typedDomain() (domains.NewDomain, newDomain) {
	form, ticks := newDomainForm()
	form.Fill(c.form)
	for i := range ticks {
		ticks[i].On = c.form.Get(ticks[i].Name) != ""
	}
	return domains.NewDomain{Name: c.form.Get("name"), Region: c.form.Get("region"),
		ReturnPath: c.form.Get("custom_return_path"), TrackingSubdomain: c.form.Get("tracking_subdomain"),
		TLS: c.form.Get("tls"), OpenTracking: ticks[2].On, ClickTracking: ticks[3].On,
		Capabilities: domains.Capabilities{Sending: &ticks[0].On, Receiving: &ticks[1].On},
	}, newDomain{Form: form, Ticks: ticks}
}

func (c *call) addDomain() error {
	n, data := c.typedDomain()
	d, err := c.Domains.Create(c.ctx(), c.team.TeamID, n)
	if err != nil {
		data.Claim = errors.Is(err, domains.ErrRegistered)
		status, ours := c.refuse(data.Form, err, "The domain was not added.")
		if ours != nil {
			return ours
		}
		if fieldOf(err) == "capabilities" {
			data.Form.Problem = "The domain was not added. Choose at least one use: sending or receiving."
		}
		if data.Claim {
			data.Name().Error = "Another team has this domain."
			data.Form.Problem = ""
		}
		return c.newDomainPage(status, data)
	}
	return c.redirect(domainPath(d.ID), "Domain added.")
}

func (c *call) claimDomain() error {
	n, data := c.typedDomain()
	claim, _, err := c.Domains.Claim(c.ctx(), c.team.TeamID, n)
	if err != nil {
		if text, ok := refusedAsIs(err); ok {
			data.Name().Error = web.InWords("name", text, nil)
			data.Form.Problem = "The domain was not claimed."
			return c.newDomainPage(http.StatusUnprocessableEntity, data)
		}
		return err
	}
	return c.redirect(domainPath(claim.DomainID), "Domain claimed.")
}
