package dashboard

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/exportruns"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// exportWriteTime is the maximum time that a browser may take for a batch of an export.
const exportWriteTime = time.Minute

// exportTime is the maximum time that an export may take. In an hour, an export reads tens of millions of rows.
const exportTime = time.Hour

// exportFilters lists the parameters of the lists that can be exported.
var exportFilters = map[string][]string{
	"/app/emails":       emailFilters,
	"/app/suppressions": {"q", "origin"},
	"/app/logs":         {"path", "status", "method", "key", "in"},
	"/app/metrics":      {"domain", "broadcast", "span", "by", "zone"},
}

// exportPath returns the address that exports what the list of the request's path and filter shows.
func (c *call) exportPath() string {
	q := c.r.URL.Query()
	for name := range q {
		if !slices.Contains(exportFilters[c.r.URL.Path], name) {
			q.Del(name)
		}
	}
	if len(q) == 0 {
		return c.r.URL.Path + "/export"
	}
	return c.r.URL.Path + "/export?" + q.Encode()
}

// checkExport refuses an export with an unknown or repeated parameter, which would export more than the visitor asked
// for. Only the parameter status may be repeated, on the list of emails.
func (c *call) checkExport(others ...string) error {
	list := strings.TrimSuffix(c.r.URL.Path, "/export")
	known := append(slices.Clone(exportFilters[list]), others...)
	query := c.r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			return fault.Invalidf(name, "This export has no parameter %.100q. It has the parameters %s.", name,
				strings.Join(known, ", "))
		}
		if len(query[name]) > 1 && (name != "status" || list != "/app/emails") {
			return fault.Invalidf(name, "The parameter %q may occur only once.", name)
		}
	}
	return nil
}

func (c *call) exportEmails() error {
	if err := c.checkExport("format", "formulas"); err != nil {
		return err
	}
	f, _, err := c.emailFilter()
	if err != nil {
		return err
	}
	return c.export(teams.EmailsRead, "emails.exported", c.Exports.Emails(c.actor, f), f.CreatedAfter)
}

// exportSuppressions exports the suppressions with an origin, or all. It refuses a search, which finds one address,
// rather than exporting more than the list shows.
func (c *call) exportSuppressions() error {
	if err := c.checkExport("format", "formulas"); err != nil {
		return err
	}
	if c.r.URL.Query().Get("q") != "" {
		return fault.Invalidf("q", "The result of a search cannot be exported. Clear the search, and export the list.")
	}
	origin := suppressions.Origin(c.r.URL.Query().Get("origin"))
	return c.export(teams.SuppressionsRead, "suppressions.exported", c.Exports.Suppressions(c.team.TeamID, origin),
		time.Time{})
}

func (c *call) exportLogs() error {
	if err := c.checkExport("format", "formulas"); err != nil {
		return err
	}
	f, _, err := c.logFilter()
	if err != nil {
		return err
	}
	return c.export(teams.LogsRead, "logs.exported", c.Exports.Logs(c.team.TeamID, f), f.From)
}

// export responds with a file. A person opens it, so values that a spreadsheet would run as formulas are quoted unless
// the address says otherwise. Before each batch, export checks that the visitor still has the scope. A file that
// cannot be completed ends with a broken connection, which the browser reports as a failed download. The export has no
// items that were created before the time oldest, which is zero if the filter has no time.
func (c *call) export(scope teams.Scope, action string, x *exports.Export, oldest time.Time) error {
	formulas := c.r.URL.Query().Get("formulas")
	if formulas == "" {
		formulas = "quote"
	}
	o, err := exports.ParseOptions(c.r.URL.Query().Get("format"), formulas)
	if err != nil {
		return err
	}
	release, err := c.AcquireExport(c.team.TeamID)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(c.ctx(), exportTime)
	defer cancel()
	var run *exportruns.Recorder
	complete := false
	defer func() {
		if run != nil {
			run.End(c.ctx(), complete) // without it, the run counts as stopped after two minutes
		}
	}()
	for part, err := range x.Counted(ctx, o) {
		begun := run != nil
		if err == nil && begun {
			err = c.stillMay(scope)
		}
		if err == nil && !begun {
			err = c.readAction(action, "")
		}
		if err == nil && !begun && c.r.Method != http.MethodHead {
			run, err = c.beginExport(x, oldest)
		}
		if err == nil && run != nil {
			err = run.Advance(ctx, part.Items, part.Reached)
		}
		if err != nil && begun {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			return err
		}
		if !begun {
			h := c.w.Header()
			h.Set("Content-Type", o.Format.MediaType())
			h.Set("Content-Disposition", `attachment; filename="`+x.Name+"."+string(o.Format)+`"`)
			h.Set("X-Accel-Buffering", "no") // a buffering proxy could hide that the file is incomplete
		}
		if c.r.Method == http.MethodHead {
			return nil
		}
		if c.writePart(part.Text) != nil {
			panic(http.ErrAbortHandler)
		}
	}
	complete = true
	return nil
}

// beginExport records that the visitor downloads an export, for the page of exports.
func (c *call) beginExport(x *exports.Export, oldest time.Time) (*exportruns.Recorder, error) {
	if oldest.IsZero() {
		team, err := c.Teams.Get(c.ctx(), c.team.TeamID)
		if err != nil {
			return nil, err
		}
		oldest = team.CreatedAt
	}
	filters := 0
	for name := range c.r.URL.Query() {
		if slices.Contains(exportFilters[strings.TrimSuffix(c.r.URL.Path, "/export")], name) &&
			c.r.URL.Query().Get(name) != "" {
			filters++
		}
	}
	return c.ExportRuns.Begin(c.ctx(), c.actor.Ref(), c.team.TeamID, x.Name, filters, oldest)
}

// stillMay returns an error if the visitor has lost a scope, or the team, since the request began.
func (c *call) stillMay(scope teams.Scope) error {
	by, err := c.Members.Actor(c.ctx(), c.v.User.ID, c.team.TeamID)
	if err != nil {
		return err
	}
	return by.Require(scope)
}

// writePart writes and flushes a batch of an export.
func (c *call) writePart(part []byte) error {
	rc := http.NewResponseController(c.w)
	if err := rc.SetWriteDeadline(time.Now().Add(exportWriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := c.w.Write(part); err != nil {
		return err
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
