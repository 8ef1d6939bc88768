package automations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

func runNotFound() error { return fault.NotFoundf("Automation run not found") }

const (
	shownColumns = `r.id, r.team_id, r.automation_id, r.contact_id, r.epoch, r.status, r.reason, r.event, r.step,
		r.waits_until, r.waits_for, r.created_at, r.ended_at, v.number`
	shownFrom = ` FROM automation_runs r JOIN automation_versions v ON v.id = r.version_id`
)

// countRuns counts the runs of a team's automations that began at or after a given time. The count stops at the given
// maximum.
func countRuns(ctx context.Context, r db.Reader, teamID string, since time.Time, most int) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM automations a JOIN automation_runs r
		ON r.automation_id = a.id AND r.id >= $2 WHERE a.team_id = $1 AND a.deleted_at = 0 LIMIT $3) x`, db.ID(teamID),
		db.ID(id.First(since)), most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the runs of automations: %w", err)
	}
	return n, nil
}

// shownRow is the destination for scanning shownColumns.
type shownRow struct {
	Run
	waits, created, ended int64
}

func (r *shownRow) dest(more ...any) []any {
	return append([]any{(*db.ID)(&r.ID), (*db.ID)(&r.TeamID), (*db.ID)(&r.AutomationID), (*db.ID)(&r.ContactID), &r.epoch,
		&r.Status, &r.Reason, &r.Event, &r.Step, &r.waits, &r.WaitsFor, &r.created, &r.ended, &r.Version}, more...)
}

func (r *shownRow) run() Run {
	one := r.Run
	one.WaitsUntil, one.CreatedAt, one.EndedAt = db.Time(r.waits), db.Time(r.created), db.Time(r.ended)
	return one
}

func scanShown(r db.Row) (Run, error) {
	var row shownRow
	err := r.Scan(row.dest()...)
	return row.run(), err
}

// runList is a query for an automation's runs that reads them in order from a single index. The condition cond, if not
// empty, filters the runs further. The condition is used only to select running runs by epoch, and most rows match it.
type runList struct {
	where, cond string
	args        []any
}

// runLists returns the lists that together contain the runs with the given statuses. The lists must be read in the
// order in which they are returned. If a run ends while the lists are being read in this order, the run appears in the
// list of running runs, in a list of ended runs, or in both.
func runLists(of *Automation, statuses []RunStatus) (lists []runList) {
	statuses = slices.Compact(slices.Sorted(slices.Values(statuses)))
	has := func(status RunStatus) bool { return slices.Contains(statuses, status) }
	if len(statuses) == 0 || len(statuses) == 4 {
		return []runList{{where: ` WHERE r.automation_id = $1 AND r.team_id = $2`, args: []any{db.ID(of.ID),
			db.ID(of.TeamID)}}}
	}
	by := func(status RunStatus, cond string, more ...any) {
		lists = append(lists, runList{` WHERE r.automation_id = $1 AND r.team_id = $2 AND r.status = $3`, cond,
			append([]any{db.ID(of.ID), db.ID(of.TeamID), string(status)}, more...)})
	}
	switch {
	case has(Running) && has(Cancelled):
		by(Running, "")
	case has(Running):
		by(Running, ` AND r.epoch >= $4`, of.epoch)
	case has(Cancelled):
		by(Running, ` AND r.epoch < $4`, of.epoch)
	}
	for _, status := range statuses {
		if status != Running {
			by(status, "")
		}
	}
	return lists
}

func (l *runList) search(ctx context.Context, r db.Reader, p page.Page) ([]Run, bool, string, error) {
	some := page.Select{Text: `SELECT ` + shownColumns + shownFrom + l.where + l.cond, ID: "r.id",
		Args: l.args}
	if l.cond == "" {
		all, more, err := page.Query(ctx, r, some, p, scanShown)
		return all, more, "", err
	}
	all := page.Select{Text: `SELECT r.id FROM automation_runs r` + l.where, ID: "r.id", Args: l.args[:3]}
	return page.Search(ctx, r, all, some, p, scanShown)
}

// getRun returns a run without its steps, together with the graph of the version that the run uses.
func getRun(ctx context.Context, r db.Reader, teamID, automationID, runID string) (Run, *engine.Graph, error) {
	var row shownRow
	var versionID, steps, connections string
	err := r.QueryRow(ctx, `SELECT `+shownColumns+`, v.id, v.steps, v.connections`+shownFrom+` WHERE r.id = $1
		AND r.automation_id = $2 AND r.team_id = $3`, db.ID(runID), db.ID(automationID), db.ID(teamID)).
		Scan(row.dest((*db.ID)(&versionID), &steps, &connections)...)
	if errors.Is(err, db.ErrNoRows) {
		return Run{}, nil, runNotFound()
	}
	if err != nil {
		return Run{}, nil, fmt.Errorf("read the run of an automation: %w", err)
	}
	g, err := storedGraph(versionID, steps, connections)
	return row.run(), g, err
}

// stepsOf returns, in order, those steps of a run that were begun. The result is small, because a run has at most as
// many steps as its graph.
func stepsOf(ctx context.Context, r db.Reader, teamID, runID string) ([]RunStep, error) {
	rows, err := r.Query(ctx, `SELECT step, status, output, reason, message, started_at, completed_at
		FROM automation_run_steps WHERE run_id = $1 AND team_id = $2 ORDER BY position`, db.ID(runID), db.ID(teamID))
	all, err := db.Collect(rows, err, func(r db.Row) (step RunStep, err error) {
		var output string
		var failure engine.Failure
		var started, completed int64
		err = r.Scan(&step.Key, &step.Status, &output, &failure.Reason, &failure.Message, &started, &completed)
		step.StartedAt, step.CompletedAt = db.Time(started), db.Time(completed)
		if failure != (engine.Failure{}) {
			step.Failure = &failure
		}
		if err == nil && output != "" {
			err = json.Unmarshal([]byte(output), &step.Output)
		}
		return step, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the steps of run %s: %w", runID, err)
	}
	return all, nil
}
