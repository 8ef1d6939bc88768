package automations

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

func notFound() error { return fault.NotFoundf("Automation not found") }

const automationColumns = `a.id, a.team_id, a.name, a.status, a.reentry, a.version_id, a.epoch, a.revision,
	a.created_at, a.updated_at, v.number`

// automationRow is the destination for scanning automationColumns.
type automationRow struct {
	Automation
	created, updated int64
}

func (r *automationRow) dest(more ...any) []any {
	return append([]any{(*db.ID)(&r.ID), (*db.ID)(&r.TeamID), &r.Name, &r.Status, &r.Reentry, (*db.ID)(&r.versionID),
		&r.epoch, &r.revision, &r.created, &r.updated, &r.Version}, more...)
}

func (r *automationRow) automation() Automation {
	a := r.Automation
	a.CreatedAt, a.UpdatedAt = db.Time(r.created), db.Time(r.updated)
	return a
}

// getAutomation returns an automation without its graph.
func getAutomation(ctx context.Context, r db.Reader, teamID, automationID string) (Automation, error) {
	var row automationRow
	err := r.QueryRow(ctx, `SELECT `+automationColumns+` FROM automations a
		JOIN automation_versions v ON v.id = a.version_id WHERE a.id = $1 AND a.team_id = $2 AND a.deleted_at = 0`,
		db.ID(automationID), db.ID(teamID)).Scan(row.dest()...)
	return oneAutomation(row.automation(), err)
}

// getWithGraph returns an automation with the graph of its newest version.
func getWithGraph(ctx context.Context, r db.Reader, teamID, automationID string) (Automation, error) {
	var row automationRow
	var steps, connections string
	err := r.QueryRow(ctx, `SELECT `+automationColumns+`, v.steps, v.connections FROM automations a
		JOIN automation_versions v ON v.id = a.version_id WHERE a.id = $1 AND a.team_id = $2 AND a.deleted_at = 0`,
		db.ID(automationID), db.ID(teamID)).Scan(row.dest(&steps, &connections)...)
	a, err := oneAutomation(row.automation(), err)
	if err != nil {
		return a, err
	}
	if a.Graph, err = storedGraph(a.versionID, steps, connections); err != nil {
		return Automation{}, err
	}
	return a, nil
}

func oneAutomation(a Automation, err error) (Automation, error) {
	if errors.Is(err, db.ErrNoRows) {
		return Automation{}, notFound()
	}
	if err != nil {
		return Automation{}, fmt.Errorf("read automation: %w", err)
	}
	return a, nil
}

// storedGraph parses the stored graph of an automation version.
func storedGraph(versionID, steps, connections string) (*engine.Graph, error) {
	g, err := engine.Parse([]byte(steps), []byte(connections))
	if err != nil {
		// The error is not wrapped with %w, because an invalid stored graph is a bug and not the fault of the request.
		return nil, fmt.Errorf("read the graph of version %s of an automation: %v", versionID, err)
	}
	return g, nil
}

func listAutomations(ctx context.Context, r db.Reader, teamID string, status Status, p page.Page) ([]Automation, bool,
	error) {
	text, args := `SELECT `+automationColumns+` FROM automations a JOIN automation_versions v ON v.id = a.version_id
		WHERE a.team_id = $1 AND a.deleted_at = 0`, []any{db.ID(teamID)}
	if status != "" { // no index is needed, because a team has at most MaxTeam automations
		text, args = text+` AND a.status = $2`, append(args, string(status))
	}
	return page.Query(ctx, r, page.Select{Text: text, ID: "a.id", Args: args}, p, func(r db.Row) (Automation,
		error) {
		var row automationRow
		err := r.Scan(row.dest()...)
		return row.automation(), err
	})
}

func countAutomations(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM automations WHERE team_id = $1 AND deleted_at = 0
		LIMIT $2) x`, db.ID(teamID), MaxTeam).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count automations: %w", err)
	}
	return n, nil
}

func insertAutomation(ctx context.Context, tx *db.Tx, a *Automation) {
	tx.Proof(`SELECT 1 FROM automations WHERE id = $1`, db.ID(a.ID))
	tx.Queue(ctx, `INSERT INTO automations (id, team_id, name, status, reentry, version_id, epoch, revision, created_at,
		updated_at, deleted_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)`, db.ID(a.ID), db.ID(a.TeamID), a.Name,
		string(a.Status), string(a.Reentry), db.ID(a.versionID), a.epoch, a.revision, a.CreatedAt.UnixMicro(),
		a.UpdatedAt.UnixMicro())
}

// insertVersion inserts an automation's graph as the version with the id a.versionID.
func insertVersion(ctx context.Context, tx *db.Tx, a *Automation) {
	tx.Proof(`SELECT 1 FROM automation_versions WHERE id = $1`, db.ID(a.versionID))
	tx.Queue(ctx, `INSERT INTO automation_versions (id, automation_id, team_id, number, used, created_at, steps,
		connections, wait_events) VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
		$9)`, db.ID(a.versionID), db.ID(a.ID), db.ID(a.TeamID), a.Version,
		boolInt(a.Status == Enabled), tx.Now().UnixMicro(), string(a.Graph.StepsJSON()),
		string(a.Graph.ConnectionsJSON()), a.Graph.WaitedEvents())
}

// markUsed records that runs may have used the automation's current version.
func markUsed(ctx context.Context, tx *db.Tx, a *Automation) {
	tx.Queue(ctx, `UPDATE automation_versions SET used = 1 WHERE id = $1 AND team_id = $2`, db.ID(a.versionID),
		db.ID(a.TeamID))
}

// deleteUnused deletes a version unless runs may have used it.
func deleteUnused(ctx context.Context, tx *db.Tx, teamID, versionID string) {
	tx.Queue(ctx, `DELETE FROM automation_versions WHERE id = $1 AND team_id = $2 AND used = 0`, db.ID(versionID),
		db.ID(teamID))
}

// deleteWithoutRuns deletes a batch of an automation's versions that were replaced before the automation's oldest run
// began, so that no run uses them. The margin sweepAfter allows for clock differences between nodes and for long
// transactions.
func deleteWithoutRuns(ctx context.Context, tx *db.Tx, a *Automation) error {
	began := tx.Now().UnixMicro()
	err := tx.QueryRow(ctx,
		`SELECT created_at FROM automation_runs WHERE automation_id = $1 AND COALESCE(team_id, team_id) = $2
		ORDER BY id LIMIT 1`, db.ID(a.ID), db.ID(a.TeamID)).Scan(&began)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("look for the oldest run of automation %s: %w", a.ID, err)
	}
	tx.Queue(ctx, `DELETE FROM automation_versions WHERE automation_id = $1 AND team_id = $2 AND number IN (
		SELECT number FROM automation_versions WHERE automation_id = $1 AND team_id = $2 AND number < (
		SELECT MAX(number) FROM automation_versions WHERE automation_id = $1 AND team_id = $2 AND created_at < $3)
		ORDER BY number LIMIT $4)`, db.ID(a.ID), db.ID(a.TeamID), began-sweepAfter.Microseconds(), eraseVersions)
	return nil
}

// countVersions counts an automation's versions, up to maxVersions.
func countVersions(ctx context.Context, r db.Reader, a *Automation) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM automation_versions WHERE automation_id = $1
		AND team_id = $2 LIMIT $3) x`, db.ID(a.ID), db.ID(a.TeamID), maxVersions).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the versions of automation %s: %w", a.ID, err)
	}
	return n, nil
}

// claim increments an automation's revision, which locks the automation until the transaction ends. The result is false
// if the automation has been changed or deleted since it was read.
func claim(ctx context.Context, tx *db.Tx, a *Automation) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE automations SET revision = revision + 1 WHERE id = $1 AND team_id = $2
		AND revision = $3 AND deleted_at = 0`, db.ID(a.ID), db.ID(a.TeamID), a.revision)
	if err != nil {
		return false, fmt.Errorf("claim automation %s: %w", a.ID, err)
	}
	a.revision++
	return n > 0, nil
}

// save writes the row of a claimed automation.
func save(ctx context.Context, tx *db.Tx, a *Automation) {
	tx.Queue(ctx, `UPDATE automations SET name = $3, status = $4, reentry = $5, version_id = $6, updated_at = $7
		WHERE id = $1 AND team_id = $2`, db.ID(a.ID), db.ID(a.TeamID), a.Name, string(a.Status), string(a.Reentry),
		db.ID(a.versionID),
		a.UpdatedAt.UnixMicro())
}

// markStopped disables an automation, increments its epoch, and returns the automation without its graph and version
// number.
func markStopped(ctx context.Context, tx *db.Tx, teamID, automationID string) (Automation, error) {
	return scanStopped(tx.QueryRow(ctx, `UPDATE automations SET status = $3, epoch = epoch + 1, revision = revision + 1,
		updated_at = $4 WHERE id = $1 AND team_id = $2 AND deleted_at = 0 RETURNING `+stoppedColumns, db.ID(automationID),
		db.ID(teamID), string(Disabled), tx.Now().UnixMicro()))
}

// markDeleted is like markStopped, but also marks the automation as deleted.
func markDeleted(ctx context.Context, tx *db.Tx, teamID, automationID string) (Automation, error) {
	return scanStopped(tx.QueryRow(ctx, `UPDATE automations SET status = $3, epoch = epoch + 1, revision = revision + 1,
		deleted_at = $4 WHERE id = $1 AND team_id = $2 AND deleted_at = 0 RETURNING `+stoppedColumns, db.ID(automationID),
		db.ID(teamID), string(Disabled), tx.Now().UnixMicro()))
}

const stoppedColumns = `id, team_id, name, status, reentry, version_id, epoch, revision, created_at, updated_at, 0`

func scanStopped(r db.Row) (Automation, error) {
	var row automationRow
	err := r.Scan(row.dest()...)
	return oneAutomation(row.automation(), err)
}

func deleteTriggers(ctx context.Context, tx *db.Tx, teamID, automationID string) {
	tx.Queue(ctx, `DELETE FROM automation_triggers WHERE automation_id = $1 AND COALESCE(team_id, team_id) = $2`,
		db.ID(automationID), db.ID(teamID))
}

func insertTrigger(ctx context.Context, tx *db.Tx, a *Automation, event string, o engine.Opening) {
	tx.Queue(ctx, `INSERT INTO automation_triggers (team_id, event_name, automation_id, version_id, epoch, reentry, step,
		next_step, wait_event, wait_timeout) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, db.ID(a.TeamID), event,
		db.ID(a.ID), db.ID(a.versionID), a.epoch, string(a.Reentry), o.Trigger, o.Next, o.Event, o.Timeout.Microseconds())
}

// countTriggers counts the team's automations that an event triggers, up to MaxEvent.
func countTriggers(ctx context.Context, r db.Reader, teamID, event string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM automation_triggers WHERE team_id = $1 AND
		event_name = $2
		LIMIT $3) x`, db.ID(teamID), event, MaxEvent).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the automations of an event: %w", err)
	}
	return n, nil
}
