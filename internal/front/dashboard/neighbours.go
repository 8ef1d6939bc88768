package dashboard

import (
	"net/url"
	"slices"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/search"
)

// emailFilters and receivedFilters are the parameters of the lists of emails that select emails. The addresses of
// emails that were opened from a list have them too, so that a visitor can go on to the next email of the list.
var (
	emailFilters    = []string{"q", "status", "domain", "key", "tag", "in", "from", "template", "broadcast"}
	receivedFilters = []string{"q", "from", "to", "in", "thread"}
)

// listQuery returns the part of an address that selects emails by the given filters, with a question mark, or "" if it
// selects all.
func listQuery(u *url.URL, filters []string) string {
	q := u.Query()
	for name := range q {
		if !slices.Contains(filters, name) {
			q.Del(name)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// listLinks are addresses on the page of an email: the list from which it was opened, and the emails beside it there.
type listLinks struct{ Back, Newer, Older string }

// linksOf returns the links of the email at a path, which was opened from a list with filters.
func (c *call) linksOf(list, path string, filters []string) listLinks {
	query := listQuery(c.r.URL, filters)
	return listLinks{list + query, path + "/newer" + query, path + "/older" + query}
}

func (c *call) newerEmail() error {
	return c.emailBeside(page.Page{Limit: 1, Before: c.id()}, "newest")
}
func (c *call) olderEmail() error { return c.emailBeside(page.Page{Limit: 1, After: c.id()}, "oldest") }

func (c *call) newerReceived() error {
	return c.receivedBeside(page.Page{Limit: 1, Before: c.id()}, "newest")
}

func (c *call) olderReceived() error {
	return c.receivedBeside(page.Page{Limit: 1, After: c.id()}, "oldest")
}

// emailBeside leads to the email beside this one in the list that the address selects. It looks for the email only
// after a click, because a search takes longer than the rest of a page.
func (c *call) emailBeside(p page.Page, last string) error {
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
	next := ""
	if len(found.Items) > 0 {
		next = found.Items[0].ID
	}
	return c.goBeside("/app/emails", emailPath, emailFilters, next, found.Next, p, last)
}

// receivedBeside is like emailBeside for received emails.
func (c *call) receivedBeside(p page.Page, last string) error {
	f, _, err := c.receivedFilter()
	if err != nil {
		return err
	}
	if err := c.Receiving.Exists(c.ctx(), c.team.TeamID, c.id()); err != nil {
		return err
	}
	var found receiving.Found
	if f.Query == (search.Query{}) {
		found.Items, _, err = c.Receiving.List(c.ctx(), c.team.TeamID, f.ThreadID, p)
	} else {
		found, err = c.Receiving.Search(c.ctx(), c.team.TeamID, f, p)
	}
	if err != nil {
		return err
	}
	next := ""
	if len(found.Items) > 0 {
		next = found.Items[0].ID
	}
	return c.goBeside("/app/receiving", receivedPath, receivedFilters, next, found.Next, p, last)
}

// goBeside leads to the email with the id next. At the end of the list, next is "", and goBeside leads back and says
// so.
// If the time for the search was over before, the list goes on with the search at the cursor.
func (c *call) goBeside(list string, path func(id string) string, filters []string, next, cursor string, p page.Page,
	last string) error {
	query := listQuery(c.r.URL, filters)
	switch {
	case next != "":
		return web.Redirect(c.w, c.r, path(next)+query)
	case cursor == "":
		return c.redirect(path(c.id())+query, "This is the "+last+" email of the list.")
	}
	at := &url.URL{Path: list}
	if query != "" {
		at.RawQuery = query[1:]
	}
	name := "after"
	if p.Before != "" {
		name = "before"
	}
	return web.Redirect(c.w, c.r, web.With(at, name, cursor))
}
