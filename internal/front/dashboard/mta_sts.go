package dashboard

import (
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// mtaSTSView is the part of a domain's page about its MTA-STS policy.
type mtaSTSView struct {
	servedpolicies.Policy
	Choice  *web.Field
	Refused string // why a change was refused
	Due     bool   // the next check is due
}

// mtaSTSChoices are the modes of a policy.
var mtaSTSChoices = []web.Choice{{Value: string(servedpolicies.Off), Label: "Off"},
	{Value: string(servedpolicies.Testing), Label: "Testing: senders deliver in any case, and report failures"},
	{Value: string(servedpolicies.Enforce), Label: "Enforce: senders deliver only to verified hosts"}}

// mtaSTS returns the part about the policy of a domain. It returns nil if the domain does not receive mail and has no
// policy.
func (c *call) mtaSTS(d *domains.Domain, refused string) (*mtaSTSView, error) {
	p, err := c.ServedPolicies.Get(c.ctx(), c.team.TeamID, d.ID)
	if err != nil {
		return nil, err
	}
	if d.Placeholder || !d.Receiving && p.State == servedpolicies.Inactive {
		return nil, nil
	}
	hint := ""
	switch {
	case p.EnforceAdvised:
		hint = "The policy was tested for two weeks without failures. You can enforce it now."
	case p.EnforceBlocked != "":
		hint = web.InWords("mode", p.EnforceBlocked, map[string]string{"enforce": "Enforce"})
	case p.State == servedpolicies.Inactive && d.Served():
		hint = "Begin with Testing. The name servers of this installation publish the records."
	case p.State == servedpolicies.Inactive:
		hint = "Begin with Testing. Then publish the records that this page shows."
	}
	return &mtaSTSView{Policy: p, Refused: refused, Due: !p.NextCheckAt.After(time.Now()), Choice: &web.Field{Name: "mode",
		Label: "MTA-STS policy", Value: string(p.Mode), Options: mtaSTSChoices, Hint: hint}}, nil
}

// saveMTASTS changes the mode of a domain's policy. If the mode stays, so does the lifetime that the API has set.
func (c *call) saveMTASTS() error {
	change := servedpolicies.Change{Mode: servedpolicies.Mode(c.form.Get("mode")), KeepAge: true}
	p, err := c.ServedPolicies.Set(c.ctx(), c.team.TeamID, c.id(), change)
	if text, ok := refusedAsIs(err); err != nil && ok {
		text = web.InWords("mode", text, map[string]string{"enforce": "Enforce", "off": "Off"})
		return c.domainPage(http.StatusUnprocessableEntity, domainView{Settings: true, PolicyRefused: text})
	}
	if err != nil {
		return err
	}
	return c.redirect(domainPath(c.id())+"/settings", policySaved(&p))
}

// policySaved says what the domain's owner has to do after a change of the policy.
func policySaved(p *servedpolicies.Policy) string {
	done, next := "Policy saved.", ""
	switch {
	case p.State == servedpolicies.Ending:
		done = "The policy is being withdrawn."
		if !p.Automatic && !p.NewIDAt.IsZero() {
			next = " Publish the new id when it appears here, and keep both records for now."
		}
	case p.Automatic:
	case !p.NewIDAt.IsZero():
		next = " Publish the new id when it appears here."
	case p.State == servedpolicies.Pending:
		next = " Publish its records."
	}
	return done + next
}
