package dashboard

import (
	"math"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/outbound/exportruns"
)

var exportsPage = pageOf("exports.html")

// exportLists are the lists that can be exported: their names in package exports, in words, and their pages.
var exportLists = []struct {
	Name, Label, One, Many, Href string
	scope                        teams.Scope
	whileSuspended               bool
}{
	{"emails", "Emails", "email", "emails", "/app/emails", teams.EmailsRead, true},
	{"suppressions", "Suppressions", "suppression", "suppressions", "/app/suppressions", teams.SuppressionsRead, false},
	{"logs", "Requests", "request", "requests", "/app/logs", teams.LogsRead, false},
}

// exportRow is an export as the page shows it.
type exportRow struct {
	exportruns.Run
	Label, Href string // of the list
	One, Many   string // nouns for its items
	Percent     int
	Took        time.Duration
	Width       string // of the bar
}

// exportRuns shows the visitor's exports of the last day, and the lists that can be exported.
func (c *call) exportRuns() error {
	all, err := c.ExportRuns.List(c.ctx(), c.actor.Ref(), c.team.TeamID)
	if err != nil {
		return err
	}
	data := struct {
		base
		Rows  []exportRow
		Lists []web.Choice
	}{base: c.base()}
	for _, x := range exportLists {
		if c.actor.Scopes.Has(x.scope) && (!c.actor.Suspended || x.whileSuspended) {
			data.Lists = append(data.Lists, web.Choice{Value: x.Href, Label: x.Label})
		}
	}
	for _, r := range all {
		row := exportRow{Run: r, Took: r.UpdatedAt.Sub(r.StartedAt), Label: r.List, One: "row", Many: "rows",
			Percent: int(math.Floor(100 * r.Progress())), Width: web.Percent(r.Progress(), 1, 1)}
		for _, x := range exportLists {
			if x.Name == r.List {
				row.Label, row.One, row.Many, row.Href = x.Label, x.One, x.Many, x.Href
			}
		}
		data.Rows = append(data.Rows, row)
	}
	opts := []web.Option{web.Crumbs(c.team.TeamName, "/app/emails", "Exports")}
	if c.actor.Scopes.Has(teams.EmailsRead) {
		opts = append(opts, web.Live("/app/live"))
	}
	return c.show(http.StatusOK, exportsPage, data, opts...)
}
