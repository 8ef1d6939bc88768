package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

var domainsPage = pageOf("domains.html")

// domainStates are the states by which the list of domains can be filtered, in the order of the menu.
var domainStates = []domains.Status{domains.Verified, domains.PartiallyVerified, domains.Pending, domains.NotStarted,
	domains.PartiallyFailed, domains.Failed}

// domainList is the content of the page that lists the team's domains.
type domainList struct {
	base
	Query    string
	Status   []string
	States   []domains.Status
	Set      int // how many filters are set
	NoStatus string
	Rows     []domainRow
	Pager    pager
	First    bool // whether the team has no domain yet
}

// Has reports whether a state is selected.
func (l domainList) Has(s domains.Status) bool { return slices.Contains(l.Status, string(s)) }

// domainRow is a row of the list.
type domainRow struct {
	ID, Name, State, Uses, Region string
	At                            time.Time
}

func (c *call) domains() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	q := c.r.URL.Query()
	data := domainList{base: c.base(), Query: strings.TrimSpace(q.Get("q")), States: domainStates,
		NoStatus: web.With(c.r.URL, "status", "", "after", "", "before", "")}
	f := domains.Filter{Name: data.Query}
	for _, s := range domainStates {
		if slices.Contains(q["status"], string(s)) {
			data.Status = append(data.Status, string(s))
			f.Statuses = append(f.Statuses, s)
		}
	}
	if data.Query != "" {
		data.Set++
	}
	if len(data.Status) > 0 {
		data.Set++
	}
	all, more, err := c.Domains.Find(c.ctx(), c.team.TeamID, f, p)
	if err != nil {
		return err
	}
	var ids []string
	for i := range all {
		d := &all[i]
		ids = append(ids, d.ID)
		data.Rows = append(data.Rows, domainRow{ID: d.ID, Name: d.Name, State: shownStatus(d), Uses: uses(d),
			Region: d.Region, At: d.CreatedAt})
	}
	data.Pager = c.pager(p, ids, more)
	data.First = len(ids) == 0 && data.Set == 0 && p == (page.Page{Limit: rowsShown})
	return c.show(http.StatusOK, domainsPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Domains"),
		web.Live("/app/live"))
}

// shownStatus returns the state of a domain. A domain of another team that this team has claimed is shown as a claim.
func shownStatus(d *domains.Domain) string {
	if d.Placeholder {
		return "claimed"
	}
	return string(d.Status)
}

// uses says what a domain is for.
func uses(d *domains.Domain) string {
	switch {
	case d.Sending && d.Receiving:
		return "Sending, receiving"
	case d.Receiving:
		return "Receiving"
	}
	return "Sending"
}

// domainPath returns the address of a domain's page.
func domainPath(id string) string { return "/app/domains/" + url.PathEscape(id) }
