package dashboard

import (
	"net/url"
	"slices"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// emailFilters are the parameters of the list of emails that select emails. The addresses of emails that were opened
// from the list have them too, so that a visitor can go on to the next email of the list.
var emailFilters = []string{"q", "status", "domain", "key", "tag", "in", "from", "template", "broadcast"}

// listQuery returns the part of an address that selects emails, with a question mark, or "" if it selects all.
func listQuery(u *url.URL) string {
	q := u.Query()
	for name := range q {
		if !slices.Contains(emailFilters, name) {
			q.Del(name)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func (c *call) newerEmail() error { return c.neighbour(page.Page{Limit: 1, Before: c.id()}, "newest") }
func (c *call) olderEmail() error { return c.neighbour(page.Page{Limit: 1, After: c.id()}, "oldest") }

// neighbour leads to the email beside this one in the list that the address selects. At the end of the list, it leads
// back and says so. It looks for the email only after a click, because a search takes longer than the rest of a page.
func (c *call) neighbour(p page.Page, last string) error {
	f, _, err := c.emailFilter()
	if err != nil {
		return err
	}
	if err := c.Emails.Exists(c.ctx(), c.team.TeamID, c.id()); err != nil {
		return err
	}
	var found emails.Found
	if f.Empty() {
		found.Items, _, err = c.Emails.List(c.ctx(), c.team.TeamID, p)
	} else {
		found, err = c.Emails.Search(c.ctx(), c.actor, f, p)
	}
	if err != nil {
		return err
	}
	query := listQuery(c.r.URL)
	switch {
	case len(found.Items) > 0:
		return web.Redirect(c.w, c.r, emailPath(found.Items[0].ID)+query)
	case found.Next == "":
		return c.redirect(emailPath(c.id())+query, "This is the "+last+" email of the list.")
	}
	// The time for the search is over. The list goes on with it.
	at := &url.URL{Path: "/app/emails"}
	if query != "" {
		at.RawQuery = query[1:]
	}
	name := "after"
	if p.Before != "" {
		name = "before"
	}
	return web.Redirect(c.w, c.r, web.With(at, name, found.Next))
}
