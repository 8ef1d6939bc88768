package dashboard

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/front/web"
)

var contactPage = pageOf("contact.html")

// contactView is the content of the page of a contact.
type contactView struct {
	base
	contacts.Profile
	Name       string
	Names      []string // of the properties that have a value
	Engagement contacts.Engagement
	Emails     bool // whether the visitor may see the team's emails
	Docs       string
}

func contactPath(contactID string) string { return "/app/contacts/" + contactID }

// contact shows a contact. Changes are made by the API.
func (c *call) contact() error {
	one, err := c.Contacts.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	profile, engagement, err := c.Contacts.Profile(c.ctx(), one)
	if err != nil {
		return err
	}
	slices.SortFunc(profile.Topics, func(a, b contacts.ChosenTopic) int { return cmp.Compare(a.Name, b.Name) })
	return c.show(http.StatusOK, contactPage, contactView{base: c.base(), Profile: profile, Name: fullName(&one),
		Names: slices.Sorted(maps.Keys(profile.Properties)), Engagement: engagement,
		Emails: c.actor.Scopes.Has(teams.EmailsRead), Docs: c.docsOf("GET /contacts/{contact}")},
		web.Crumbs(c.team.TeamName, "/app/emails", one.Address), web.Class("form"))
}

// fullName returns the contact's name, or "".
func fullName(c *contacts.Contact) string { return strings.TrimSpace(c.FirstName + " " + c.LastName) }
