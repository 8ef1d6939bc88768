package dashboard

import (
	"net/http"
	"net/url"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/front/web"
)

// savedView is what a list shows of the visitor's saved filters.
type savedView struct {
	Path, TeamID string
	Filters      []savedLink
	Query        string // the filter that is set, as it would be saved; "" if none is set or it is saved already
	Name, Error  string // what was typed when saving was refused
}

// savedLink is a saved filter as a link.
type savedLink struct {
	ID, Name, Href string
	Current        bool
}

// filterQuery returns the parameters of a list's address that make its filter.
func filterQuery(q url.Values) url.Values {
	f := url.Values{}
	for name, values := range q {
		switch name {
		case "after", "before", "removed", "undo":
			continue
		}
		for _, v := range values {
			if v != "" {
				f.Add(name, v)
			}
		}
	}
	return f
}

// listPath returns the address of a list with a filter.
func listPath(of savedfilters.List, filter url.Values) string {
	path := "/app/" + string(of)
	if len(filter) > 0 {
		path += "?" + filter.Encode()
	}
	return path
}

// saved returns the visitor's saved filters of the list that the request shows.
func (c *call) saved(of savedfilters.List) (savedView, error) {
	v := savedView{Path: listPath(of, nil), TeamID: c.team.TeamID, Query: filterQuery(c.r.URL.Query()).Encode(),
		Name: c.saving.name, Error: c.saving.refused}
	all, err := c.SavedFilters.All(c.ctx(), c.actor, of)
	for _, f := range all {
		link := savedLink{ID: f.ID, Name: f.Name, Href: listPath(of, f.Query), Current: f.Query.Encode() == v.Query}
		v.Filters = append(v.Filters, link)
	}
	for _, f := range v.Filters {
		if f.Current && v.Error == "" {
			v.Query = ""
		}
	}
	return v, err
}

// savingForm is a form that saves a filter and that was refused.
type savingForm struct{ name, refused string }

// lists holds the functions that show the lists whose filters can be saved.
var lists = map[savedfilters.List]func(*call) error{savedfilters.Emails: (*call).emails,
	savedfilters.Receiving: (*call).receiving, savedfilters.Logs: (*call).logs,
	savedfilters.Suppressions: (*call).suppressions}

// saveFilter returns the handler of the form that saves a filter of a list. If the form is refused, the handler shows
// the list with the filter and the form.
func saveFilter(of savedfilters.List) func(*call) error {
	return func(c *call) error {
		query, err := url.ParseQuery(c.form.Get("query"))
		if err != nil || !web.Storable(query) {
			return errNoPlace
		}
		f := savedfilters.Filter{List: of, Name: c.form.Get("name"), Query: filterQuery(query)}
		saved, err := c.SavedFilters.Save(c.ctx(), c.actor, f)
		if text, ok := refused(err); ok {
			c.saving = savingForm{f.Name, text}
			c.standAt(listPath(of, nil), f.Query.Encode())
			return lists[of](c)
		}
		if err != nil {
			return err
		}
		return c.redirect(listPath(of, saved.Query), "The filter “"+saved.Name+"” is saved.")
	}
}

// deleteFilter returns the handler of the form that deletes a saved filter of a list. The list shows the filter
// afterwards, so that the visitor can save it again.
func deleteFilter(of savedfilters.List) func(*call) error {
	return func(c *call) error {
		f, err := c.SavedFilters.Delete(c.ctx(), c.actor, of, c.id())
		if err != nil {
			return err
		}
		return c.redirect(listPath(of, f.Query), "The saved filter “"+f.Name+"” is deleted. It is still set here, so you "+
			"can save it again.")
	}
}

// statusWith returns the status of a list that also shows a refused form.
func (c *call) statusWith(status int) int {
	if c.saving.refused != "" && status == http.StatusOK {
		return http.StatusUnprocessableEntity
	}
	return status
}
