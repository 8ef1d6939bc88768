package automations

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

const (
	eraseRows     = 500 // approximate number of rows that one transaction deletes
	eraseVersions = 10  // number of versions that one transaction deletes; each has up to engine.MaxText bytes
	rangeRuns     = 500 // number of runs in a runRange
)

// deleted is a deleted automation whose rows still exist.
type deleted struct {
	teamID, id string
	running    bool // whether any run of the automation has not ended yet
}

// deletedBefore returns a batch of automations, across all teams, that were deleted before the given time. The batch is
// sorted by team id and automation id, and begins after the automation in the parameter after.
func deletedBefore(ctx context.Context, r db.Reader, before int64, after deleted) ([]deleted, error) {
	rows, err := r.Query(ctx, `SELECT a.team_id, a.id, EXISTS (SELECT 1 FROM automation_runs r
		WHERE r.automation_id = a.id AND r.status = 'running')
		FROM automations a WHERE a.deleted_at <> 0 AND a.deleted_at < $1 AND (a.team_id, a.id) > ($2, $3)
		ORDER BY a.team_id, a.id LIMIT $4`, before, db.OrNoID(after.teamID), db.OrNoID(after.id), eraseRows)
	all, err := db.Collect(rows, err, func(r db.Row) (d deleted, err error) {
		err = r.Scan((*db.ID)(&d.teamID), (*db.ID)(&d.id), &d.running)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for deleted automations: %w", err)
	}
	return all, nil
}

func deletedOf(ctx context.Context, r db.Reader, teamID string) ([]string, error) {
	return ids(ctx, r, `SELECT id FROM automations WHERE team_id = $1 AND deleted_at <> 0 ORDER BY id LIMIT $2`,
		db.ID(teamID), eraseRows)
}

// automationsOf returns a batch of the ids of a team's automations, including deleted ones. The batch begins after the
// id in the parameter after.
func automationsOf(ctx context.Context, r db.Reader, teamID, after string) ([]string, error) {
	return ids(ctx, r, `SELECT id FROM (
		SELECT id FROM automations WHERE team_id = $1 AND deleted_at = 0 AND id > $2
		UNION ALL SELECT id FROM automations WHERE team_id = $1 AND deleted_at <> 0 AND id > $2) x
		ORDER BY id LIMIT $3`, db.ID(teamID), db.OrNoID(after), eraseRows)
}

func ids(ctx context.Context, r db.Reader, text string, args ...any) ([]string, error) {
	rows, err := r.Query(ctx, text, args...)
	all, err := db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan((*db.ID)(&id))
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for automations: %w", err)
	}
	return all, nil
}

// markAllDeleted marks a batch of a team's automations as deleted, and returns how many it marked.
func markAllDeleted(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	some, err := ids(ctx, tx.Reader, `SELECT id FROM automations WHERE team_id = $1 AND deleted_at = 0 ORDER BY id
		LIMIT $2`, db.ID(teamID), eraseRows)
	if err != nil || len(some) == 0 {
		return 0, err
	}
	tx.Queue(ctx, `DELETE FROM automation_triggers WHERE automation_id = ANY($1) AND COALESCE(team_id, team_id) = $2`,
		db.IDs(some), db.ID(teamID))
	tx.Queue(ctx, `DELETE FROM automation_apps WHERE automation_id = ANY($1) AND COALESCE(team_id, team_id) = $2`,
		db.IDs(some), db.ID(teamID))
	return tx.Exec(ctx, `UPDATE automations SET status = $3, epoch = epoch + 1, revision = revision + 1, deleted_at = $4
		WHERE id = ANY($1) AND COALESCE(team_id, team_id) = $2`, db.IDs(some), db.ID(teamID), string(Disabled),
		tx.Now().UnixMicro())
}

// runSize contains a run's id and the number of its steps.
type runSize struct {
	id    string
	steps int
}

func scanRunSize(r db.Row) (s runSize, err error) {
	err = r.Scan((*db.ID)(&s.id), &s.steps)
	return s, err
}

func idsOf(all []runSize) []string {
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].id
	}
	return ids
}

// firstRuns returns as many runs from the start of a list as one transaction may delete together with their steps, and
// reports whether more runs may follow.
func firstRuns(all []runSize) (some []runSize, more bool) {
	rows := 0
	for i, r := range all {
		if rows += 2 + r.steps; rows > eraseRows && i > 0 {
			return all[:i], true
		}
	}
	return all, len(all) == eraseRows
}

// endedRuns returns a batch of a team's runs that ended before the given time, oldest first, and reports whether there
// are more such runs.
func endedRuns(ctx context.Context, r db.Reader, teamID string, before int64) ([]runSize, bool, error) {
	rows, err := r.Query(ctx, `SELECT id, steps FROM automation_runs WHERE team_id = $1 AND ended_at > 0
		AND ended_at < $2 ORDER BY ended_at, id LIMIT $3`, db.ID(teamID), before, eraseRows)
	all, err := db.Collect(rows, err, scanRunSize)
	some, more := firstRuns(all)
	return some, more, err
}

// runsOf returns a batch of a contact's runs whose ids are greater than after. The runs in the batch have about
// eraseRows rows in total. The second result says whether the contact may have more runs.
func runsOf(ctx context.Context, r db.Reader, teamID, contactID, after string) ([]runSize, bool, error) {
	rows, err := r.Query(ctx,
		`SELECT id, steps FROM automation_runs WHERE contact_id = $1 AND COALESCE(team_id, team_id) = $2
		AND id > $3 ORDER BY id LIMIT $4`, db.ID(contactID), db.ID(teamID), db.OrNoID(after), eraseRows)
	all, err := db.Collect(rows, err, scanRunSize)
	if err != nil {
		return nil, false, fmt.Errorf("look for the runs of a contact: %w", err)
	}
	some, more := firstRuns(all)
	return some, more, nil
}

// deleteRuns deletes runs together with their steps and waits.
func deleteRuns(ctx context.Context, tx *db.Tx, teamID string, all []runSize) {
	if len(all) == 0 {
		return
	}
	runs := db.IDs(idsOf(all))
	tx.Queue(ctx, `DELETE FROM automation_waits WHERE run_id = ANY($1) AND COALESCE(team_id, team_id) = $2`, runs,
		db.ID(teamID))
	tx.Queue(ctx, `DELETE FROM automation_run_steps WHERE run_id = ANY($1) AND team_id = $2`, runs, db.ID(teamID))
	tx.Queue(ctx, `DELETE FROM automation_runs WHERE id = ANY($1) AND COALESCE(team_id, team_id) = $2`, runs,
		db.ID(teamID))
}

// clearRuns deletes a batch of an automation's runs.
func clearRuns(ctx context.Context, tx *db.Tx, teamID, automationID string) (int64, error) {
	rows, err := tx.Query(ctx,
		`SELECT id, steps FROM automation_runs WHERE automation_id = $1 AND COALESCE(team_id, team_id) = $2
		ORDER BY id LIMIT $3`, db.ID(automationID), db.ID(teamID), eraseRows)
	all, err := db.Collect(rows, err, scanRunSize)
	if err != nil {
		return 0, err
	}
	some, _ := firstRuns(all)
	deleteRuns(ctx, tx, teamID, some)
	return int64(len(some)), nil
}

func clearContacts(ctx context.Context, tx *db.Tx, teamID, automationID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM automation_contacts WHERE automation_id = $1 AND team_id = $2 AND contact_id <= (
		SELECT contact_id FROM (SELECT contact_id FROM automation_contacts WHERE automation_id = $1
		ORDER BY contact_id LIMIT $3) x ORDER BY contact_id DESC LIMIT 1)`, db.ID(automationID), db.ID(teamID), eraseRows)
}

func clearVersions(ctx context.Context, tx *db.Tx, teamID, automationID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM automation_versions WHERE automation_id = $1 AND team_id = $2 AND number <= (
		SELECT MAX(number) FROM (SELECT number FROM automation_versions WHERE automation_id = $1
		ORDER BY number LIMIT $3) x)`, db.ID(automationID), db.ID(teamID), eraseVersions)
}

func deleteAutomation(ctx context.Context, tx *db.Tx, teamID, automationID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM automations WHERE id = $1 AND team_id = $2 AND deleted_at <> 0`,
		db.ID(automationID), db.ID(teamID))
}

// runRange selects those runs of an automation whose ids are greater than after and at most upTo.
type runRange struct{ teamID, automationID, after, upTo string }

func (s *runRange) args(more ...any) []any {
	return append([]any{db.ID(s.automationID), db.ID(s.teamID), db.OrNoID(s.after), db.ID(s.upTo)}, more...)
}

// inRunRange is an SQL condition that selects the runs (alias r) in a runRange.
const inRunRange = `r.automation_id = $1 AND COALESCE(r.team_id, r.team_id) = $2 AND r.id > $3 AND r.id <= $4`

// nextRangeEnd returns the last run id in an automation's next runRange, or "" if no more runs follow.
func nextRangeEnd(ctx context.Context, r db.Reader, teamID, automationID, after string) (upTo string, err error) {
	err = r.QueryRow(ctx, `SELECT x.id FROM (SELECT id FROM automation_runs WHERE automation_id = $1
		AND COALESCE(team_id, team_id) = $2 AND id > $3 ORDER BY id LIMIT $4) x ORDER BY x.id DESC LIMIT 1`,
		db.ID(automationID), db.ID(teamID), db.OrNoID(after), rangeRuns).Scan((*db.ID)(&upTo))
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the end of a range of runs: %w", err)
	}
	return upTo, nil
}

// runWithAddress is a run whose events contain a given address.
type runWithAddress struct{ id, payload, received, pending string }

// runsWithAddress returns the runs in a runRange whose events contain an address, without the runs of the given
// contact.
func runsWithAddress(ctx context.Context, r db.Reader, batch runRange, a erasure.Address,
	contactID string) ([]runWithAddress, error) {
	rows, err := r.Query(ctx, `SELECT r.id, r.payload, r.received, r.pending FROM automation_runs r
		WHERE `+inRunRange+` AND `+erasure.MayContain(5, "r.payload", "r.received", "r.pending")+`
		AND r.contact_id IS DISTINCT FROM $6
		ORDER BY r.id`, batch.args(a.Pattern(), db.ID(contactID))...)
	var some []runWithAddress
	all, err := db.Collect(rows, err, func(r db.Row) (n runWithAddress, err error) {
		err = r.Scan((*db.ID)(&n.id), &n.payload, &n.received, &n.pending)
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for an address in the events of runs: %w", err)
	}
	for _, n := range all {
		if a.In(n.payload) || a.In(n.received) || a.In(n.pending) {
			some = append(some, n)
		}
	}
	return some, nil
}

func replaceInRun(ctx context.Context, tx *db.Tx, teamID string, n *runWithAddress, a erasure.Address) {
	// The revision is incremented so that a concurrent step fails. Without the increment, a concurrent step would
	// overwrite the new payload with the old one.
	tx.Queue(ctx, `UPDATE automation_runs SET payload = CASE WHEN payload = $3 THEN $4 ELSE payload END,
		received = CASE WHEN received = $5 THEN $6 ELSE received END,
		pending = CASE WHEN pending = $7 THEN $8 ELSE pending END, revision = revision + 1
		WHERE id = $1 AND team_id = $2`, db.ID(n.id), db.ID(teamID), n.payload, a.Replace(n.payload), n.received,
		a.Replace(n.received), n.pending, a.Replace(n.pending))
}

// stepWithAddress is a run's step whose output or message contains a given address.
type stepWithAddress struct {
	run             string
	position        int64
	output, message string
}

// stepsWithAddress returns those steps of the runs in a runRange whose output or message contains an address, without
// the steps of the given contact's runs.
func stepsWithAddress(ctx context.Context, r db.Reader, batch runRange, a erasure.Address,
	contactID string) ([]stepWithAddress,
	error) {
	rows, err := r.Query(ctx, `SELECT s.run_id, s.position, s.output, s.message FROM automation_runs r
		JOIN automation_run_steps s ON s.run_id = r.id WHERE `+inRunRange+`
		AND `+erasure.MayContain(5, "s.output", "s.message")+` AND r.contact_id IS DISTINCT FROM $6
		ORDER BY s.run_id, s.position`, batch.args(a.Pattern(), db.ID(contactID))...)
	all, err := db.Collect(rows, err, func(r db.Row) (n stepWithAddress, err error) {
		err = r.Scan((*db.ID)(&n.run), &n.position, &n.output, &n.message)
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for an address in the steps of runs: %w", err)
	}
	var some []stepWithAddress
	for _, n := range all {
		if a.In(n.output) || a.In(n.message) {
			some = append(some, n)
		}
	}
	return some, nil
}

func replaceInStep(ctx context.Context, tx *db.Tx, teamID string, n *stepWithAddress, a erasure.Address) {
	tx.Queue(ctx, `UPDATE automation_run_steps SET output = $4, message = $5 WHERE run_id = $1 AND position = $2
		AND team_id = $3 AND output = $6 AND message = $7`, db.ID(n.run), n.position, db.ID(teamID), a.Replace(n.output),
		a.Replace(n.message), n.output, n.message)
}

// ErasableTexts are the texts of automations in which an erasure replaces an address.
var ErasableTexts = erasure.Texts{Kind: "names of automations in which it was replaced", Table: "automations",
	Columns: []string{"name"}}
