package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

var (
	suppressionsPage    = pageOf("suppressions.html", "saved.html")
	suppressionPage     = pageOf("suppression.html")
	addSuppressionsPage = pageOf("suppressions_add.html")
)

// origins are the reasons by which the list can be filtered, in the order of the menu.
var origins = []suppressions.Origin{suppressions.Bounce, suppressions.Complaint, suppressions.Manual}

const wholeAddress = "Enter a whole address, for example laura@acme.example."

// suppressionList is the content of the page that lists suppressed addresses.
type suppressionList struct {
	base
	Query     string
	Origin    suppressions.Origin
	Origins   []suppressions.Origin
	NoOrigin  string
	Rows      []suppressions.Suppression
	Pager     pager
	Problem   string
	First     bool // whether the team suppresses no address
	Export    string
	Saved     savedView
	Unmatched bool   // whether a search found nothing
	Removed   string // the address that was just removed and can be added again, or ""
	URL       string // of this installation, for the example
}

func (c *call) suppressions() error {
	q := c.r.URL.Query()
	data := suppressionList{base: c.base(), Query: strings.TrimSpace(q.Get("q")), Origins: origins,
		Origin:   suppressions.Origin(q.Get("origin")),
		NoOrigin: web.With(c.r.URL, "origin", "", "after", "", "before", ""), Export: c.exportPath(),
		URL: strings.TrimSuffix(c.PublicURL, "/")}
	data.Removed = c.removedSuppression(q.Get("removed"), q.Get("undo"))
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	if data.Saved, err = c.saved(savedfilters.Suppressions); err != nil {
		return err
	}
	status := http.StatusOK
	if data.Query != "" {
		status, err = c.findSuppression(&data)
	} else {
		var more bool
		if data.Rows, more, err = c.Suppressions.List(c.ctx(), c.team.TeamID, data.Origin, p); err == nil {
			var ids []string
			for _, s := range data.Rows {
				ids = append(ids, s.ID)
			}
			data.Pager = c.pager(p, ids, more)
			data.First = len(ids) == 0 && data.Origin == "" && p == (page.Page{Limit: rowsShown})
		}
	}
	if text, ok := searchProblem(err); ok {
		data.Problem, status, err = text, http.StatusUnprocessableEntity, nil
	}
	if err != nil {
		return err
	}
	return c.show(status, suppressionsPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Suppressions"))
}

// removal names the removal of an address from the team's suppressions.
func (c *call) removal(address string) string { return "suppression " + c.team.TeamID + " " + address }

// removedSuppression returns an address that the visitor removed and that is still not suppressed, or "". A link from
// someone else, which has another code, does not make the page offer to suppress an address.
func (c *call) removedSuppression(address, undo string) string {
	if address == "" || !c.Site.MayUndo(c.r, c.removal(address), undo) {
		return ""
	}
	if _, err := c.Suppressions.Get(c.ctx(), c.team.TeamID, address); fault.KindOf(err) != fault.NotFound {
		return ""
	}
	return address
}

// findSuppression looks for the address of the search.
func (c *call) findSuppression(data *suppressionList) (status int, err error) {
	s, err := c.Suppressions.Get(c.ctx(), c.team.TeamID, data.Query)
	switch fault.KindOf(err) {
	case fault.NotFound:
		data.Unmatched = err != nil
	case fault.Invalid, fault.BadID:
		data.Problem = wholeAddress
		return http.StatusUnprocessableEntity, nil
	}
	if err != nil && !data.Unmatched {
		return 0, err
	}
	if err == nil && (data.Origin == "" || s.Origin == data.Origin) {
		data.Rows = append(data.Rows, s)
	}
	data.Unmatched = len(data.Rows) == 0
	return http.StatusOK, nil
}

func (c *call) suppression() error { return c.suppressionPage(http.StatusOK, "") }

func (c *call) suppressionPage(status int, problem string) error {
	s, err := c.Suppressions.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	return c.show(status, suppressionPage, struct {
		base
		Entry   suppressions.Suppression
		Problem string
	}{c.base(), s, problem}, web.Crumbs("Suppressions", "/app/suppressions", s.Address), web.Class("form"))
}

func (c *call) removeSuppression() error {
	s, err := c.Suppressions.Remove(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		if text, ok := refused(err); ok {
			return c.suppressionPage(http.StatusUnprocessableEntity, text)
		}
		return err
	}
	undo := url.Values{"removed": {s.Address}, "undo": {c.Site.UndoToken(c.r, c.removal(s.Address))}}
	return c.redirect("/app/suppressions?"+undo.Encode(), "")
}

func addressesForm() *web.Form {
	return web.NewForm(&web.Field{Name: "addresses", Label: "Addresses", Type: "textarea", Max: 32000,
		Hint: "Up to 100, one on each line or separated by commas."})
}

func (c *call) addSuppressionsPage(status int, f *web.Form) error {
	return c.show(status, addSuppressionsPage, struct {
		base
		Form *web.Form
	}{c.base(), f}, web.Crumbs("Suppressions", "/app/suppressions", "Suppress addresses"), web.Class("form"))
}

func (c *call) showAddSuppressions() error {
	return c.addSuppressionsPage(http.StatusOK, addressesForm())
}

func (c *call) addSuppressions() error {
	f := addressesForm().Fill(c.form)
	all := strings.FieldsFunc(c.form.Get("addresses"), func(r rune) bool {
		return r == ',' || r == ';' || unicode.IsSpace(r)
	})
	if problem := checkAddresses(all); problem != "" {
		f.Fields[0].Error = problem
		return c.addSuppressionsPage(http.StatusUnprocessableEntity, f)
	}
	status, err := saveForm(f, func() error {
		_, err := c.Suppressions.Add(c.ctx(), c.team.TeamID, all)
		return err
	})
	if err != nil {
		return err
	}
	if status != 0 {
		return c.addSuppressionsPage(status, f)
	}
	done := all[0] + " is suppressed."
	if len(all) > 1 {
		done = web.Number(len(all)) + " addresses are suppressed."
	}
	return c.redirect("/app/suppressions", done)
}

// checkAddresses says which of several addresses the service would refuse, because the service's error does not name
// it. The result is "" if it refuses none.
func checkAddresses(all []string) string {
	switch {
	case len(all) == 0:
		return wholeAddress
	case len(all) > suppressions.MaxBatch:
		return "These are " + web.Number(len(all)) + " addresses. Add at most " + web.Number(suppressions.MaxBatch) +
			" at a time."
	}
	for _, text := range all {
		if _, err := message.ParseAddress(text); err != nil {
			return "“" + text[:min(len(text), 100)] +
				"” is no whole address. Write it like laura@acme.example. Nothing was added."
		}
	}
	return ""
}
