package automations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db"
)

// errRunChanged means that an event or a cancellation has changed a run since the run was read.
var errRunChanged = errors.New("the run was changed after it was read")

// row is a run as stored in the database.
type row struct {
	id, teamID, automationID, versionID, contactID string

	contactGone     bool // whether the contact was deleted; if so, only the run that deleted it stays active
	epoch           int64
	status          RunStatus
	event           string
	payload         string
	received        string
	receivedChanged bool // whether the field received differs from the stored value
	pending         string
	pendingChanged  bool // whether the field pending differs from the stored value
	step            string
	waitUntil       time.Time
	waitFor         string
	depth           int64
	revision        int64
	steps           int64
	eventAt         time.Time

	// State of the automation at the time when the run was read.
	current int64 // epoch of the automation; -1 if the automation no longer exists
	deleted bool

	locked bool // whether the current transaction has locked the run
}

// stale returns the reason why an active run must be cancelled, or "" if it may continue.
func (r *row) stale() Reason {
	switch {
	case r.deleted || r.current < 0:
		return AutomationDeleted
	case r.current != r.epoch:
		return Stopped
	}
	return ""
}

// storedEvent is an event received by a run, in the form in which it is stored as JSON.
type storedEvent struct {
	Name    string         `json:"name"`
	Payload map[string]any `json:"payload,omitempty"`
	At      time.Time      `json:"at"`
}

// run converts the row to an engine.Run.
func (r *row) run() (*engine.Run, error) {
	payload, err := decodePayload(r.payload)
	if err != nil {
		return nil, fmt.Errorf("read the payload of run %s: %w", r.id, err)
	}
	run := &engine.Run{ID: r.id, At: r.step, Event: engine.Event{Name: r.event, Payload: payload, At: r.eventAt},
		Received: map[string]engine.Event{}}
	if !r.waitUntil.IsZero() {
		run.Waits = &engine.Wait{Until: r.waitUntil, Event: r.waitFor}
	}
	if r.received == "" {
		return run, nil
	}
	var received map[string]storedEvent
	if err := json.Unmarshal([]byte(r.received), &received); err != nil {
		return nil, fmt.Errorf("read what run %s received: %w", r.id, err)
	}
	for key, e := range received {
		run.Received[key] = engine.Event(e)
	}
	return run, nil
}

// setProgress copies the current step and the wait from an engine.Run to the row.
func (r *row) setProgress(run *engine.Run) {
	r.step, r.waitUntil, r.waitFor = run.At, time.Time{}, ""
	if run.Waits != nil {
		r.waitUntil, r.waitFor = run.Waits.Until, run.Waits.Event
	}
}

// setReceived copies the received events from an engine.Run to the row.
func (r *row) setReceived(run *engine.Run) error {
	if len(run.Received) == 0 {
		return nil
	}
	received := make(map[string]storedEvent, len(run.Received))
	for key, e := range run.Received {
		received[key] = storedEvent(e)
	}
	text, err := json.Marshal(received, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode what run %s received: %w", r.id, err)
	}
	r.receivedChanged = r.receivedChanged || string(text) != r.received
	r.received = string(text)
	return nil
}

// pendingEvents decodes the events that the run has not handled yet, in the order in which they arrived.
func (r *row) pendingEvents() (all []engine.Event, err error) {
	if r.pending == "" {
		return nil, nil
	}
	var stored []storedEvent
	if err := json.Unmarshal([]byte(r.pending), &stored); err != nil {
		return nil, fmt.Errorf("read the pending events of run %s: %w", r.id, err)
	}
	for _, e := range stored {
		all = append(all, engine.Event(e))
	}
	return all, nil
}

// setPending replaces the events that the run has not handled yet.
func (r *row) setPending(all []engine.Event) error {
	r.pending, r.pendingChanged = "", true
	if len(all) == 0 {
		return nil
	}
	var stored []storedEvent
	for _, e := range all {
		stored = append(stored, storedEvent(e))
	}
	text, err := json.Marshal(stored, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode the pending events of run %s: %w", r.id, err)
	}
	r.pending = string(text)
	return nil
}

const rowColumns = headColumns + `, r.payload, r.received, r.pending`

// headColumns are all columns of a row except the event payloads, which may be large.
const headColumns = `r.id, r.team_id, r.automation_id, r.version_id, r.contact_id, r.contact_gone, r.epoch, ` +
	`r.status, r.event,
	r.step, r.waits_until, r.waits_for, r.depth, r.revision, r.steps, r.event_at, COALESCE(a.epoch, -1),
	COALESCE(a.deleted_at, 0)`

const fromRows = ` FROM automation_runs r LEFT JOIN automations a ON a.id = r.automation_id AND a.team_id = r.team_id`

func scanRow(s db.Row) (r row, err error) {
	err = r.scan(s, &r.payload, &r.received, &r.pending)
	return r, err
}

func scanHead(s db.Row) (r row, err error) {
	err = r.scan(s)
	return r, err
}

// scan scans headColumns, and then scans additional columns into the destinations in more.
func (r *row) scan(s db.Row, more ...any) error {
	var gone, until, at, deleted int64
	err := s.Scan(append([]any{(*db.ID)(&r.id), (*db.ID)(&r.teamID), (*db.ID)(&r.automationID), (*db.ID)(&r.versionID),
		(*db.ID)(&r.contactID), &gone, &r.epoch,
		&r.status,
		&r.event,
		&r.step, &until, &r.waitFor, &r.depth, &r.revision, &r.steps, &at, &r.current, &deleted}, more...)...)
	r.contactGone, r.waitUntil, r.eventAt, r.deleted = gone != 0, db.Time(until), db.Time(at), deleted != 0
	return err
}

// getRow returns a run. If the run does not exist, getRow returns found == false.
func getRow(ctx context.Context, r db.Reader, teamID, runID string) (at row, found bool, err error) {
	at, err = scanRow(r.QueryRow(ctx, `SELECT `+rowColumns+fromRows+` WHERE r.id = $1 AND r.team_id = $2`, db.ID(runID),
		db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("read run %s: %w", runID, err)
	}
	return at, true, nil
}

// lockRows locks those of the given runs that have not ended, and returns the locked runs sorted by id. Other
// transactions cannot change the locked runs until this transaction ends.
func lockRows(ctx context.Context, tx *db.Tx, teamID string, runIDs []string) ([]row, error) {
	return lock(ctx, tx, rowColumns, scanRow, teamID, runIDs)
}

// lockHeads is like lockRows, but does not read the event payloads.
func lockHeads(ctx context.Context, tx *db.Tx, teamID string, runIDs []string) ([]row, error) {
	return lock(ctx, tx, headColumns, scanHead, teamID, runIDs)
}

func lock(ctx context.Context, tx *db.Tx, columns string, scan func(db.Row) (row, error), teamID string,
	runIDs []string) ([]row, error) {
	text := `SELECT ` + columns + fromRows + ` WHERE r.id = ANY($2) AND r.team_id = $1 AND r.status = 'running'
		ORDER BY r.id`
	if !tx.OneWriter() {
		text += ` FOR UPDATE OF r`
	}
	rows, err := tx.Query(ctx, text, db.ID(teamID), db.IDs(runIDs))
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("lock %d runs: %w", len(runIDs), err)
	}
	for i := range all {
		all[i].locked = true
	}
	return all, nil
}

// insertRow inserts a new run.
func insertRow(ctx context.Context, tx *db.Tx, r *row, reason Reason) {
	ended := int64(0)
	if r.status != Running {
		ended = tx.Now().UnixMicro()
	}
	tx.Proof(`SELECT 1 FROM automation_runs WHERE id = $1`, db.ID(r.id))
	tx.Queue(ctx, `INSERT INTO automation_runs (id, team_id, automation_id, version_id, contact_id, contact_gone, epoch,
		status, reason, event, payload, received, step, waits_until, waits_for, depth, revision, steps, event_at, created_at,
		ended_at) VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, $9, $10, '', $11, $12, $13, $14, 1, $15, $16, $17,
		$18)`, db.ID(r.id),
		db.ID(r.teamID), db.ID(r.automationID), db.ID(r.versionID), db.ID(r.contactID), r.epoch, string(r.status),
		string(reason), r.event, r.payload, r.step, db.Micros(r.waitUntil), r.waitFor, r.depth, r.steps,
		r.eventAt.UnixMicro(), tx.Now().UnixMicro(), ended)
}

// fenced is the end of an UPDATE statement that must change a run only if the run's revision has not changed since the
// run was read.
const fenced = `, revision = revision + 1 WHERE id = $1 AND team_id = $2 AND revision = $3 AND status = 'running'`

// sameEpoch is an SQL condition which requires that the run's automation has not been stopped since the run was read.
const sameEpoch = ` AND epoch = (SELECT a.epoch FROM automations a WHERE a.id = automation_runs.automation_id
	AND a.team_id = $2)`

// saveRow saves the progress of a run. The transaction fails with errRunChanged if the run has been changed or its
// automation has been stopped since the row was read. A locked run is saved even if its automation has been stopped;
// the run's job detects this before the next step.
func saveRow(ctx context.Context, tx *db.Tx, r *row) {
	args := []any{db.ID(r.id), db.ID(r.teamID), r.revision, r.step, db.Micros(r.waitUntil), r.waitFor, r.steps,
		boolInt(r.contactGone)}
	text := `UPDATE automation_runs SET step = $4, waits_until = $5, waits_for = $6, steps = $7, contact_gone = $8`
	for _, c := range []struct {
		changed       bool
		column, value string
	}{{r.receivedChanged, "received", r.received}, {r.pendingChanged, "pending", r.pending}} {
		if c.changed {
			args = append(args, c.value)
			text += fmt.Sprintf(`, %s = $%d`, c.column, len(args))
		}
	}
	text += fenced
	if !r.locked {
		text += sameEpoch
	}
	tx.QueueOne(ctx, errRunChanged, text, args...)
}

// endRow ends a run and decrements the contact's number of active runs. The transaction fails in the same cases as in
// saveRow, except that a run of a stopped automation can be cancelled. If the contact was deleted, endRow erases the
// contact's data from the run.
func endRow(ctx context.Context, tx *db.Tx, r *row, status RunStatus, reason Reason) {
	args := []any{db.ID(r.id), db.ID(r.teamID), r.revision, string(status), string(reason), r.steps, tx.Now().UnixMicro(),
		boolInt(r.contactGone)}
	text := `UPDATE automation_runs SET status = $4, reason = $5, step = '', waits_until = 0, waits_for = '', pending = '',
		steps = $6, ended_at = $7, contact_gone = $8`
	switch {
	case r.contactGone:
		text += `, payload = '', received = ''`
		forgetSteps(ctx, tx, r.teamID, []string{r.id})
	case r.receivedChanged:
		text, args = text+`, received = $9`, append(args, r.received)
	}
	text += fenced
	if status != Cancelled && !r.locked {
		text += sameEpoch
	}
	tx.QueueOne(ctx, errRunChanged, text, args...)
	countRunEnded(ctx, tx, r)
}

// countRunEnded decrements a contact's number of active runs. If the contact was deleted, the counter no longer exists.
// If another run of the contact has begun since the automation was stopped, that run has reset the counter, and
// countRunEnded leaves the counter unchanged.
func countRunEnded(ctx context.Context, tx *db.Tx, r *row) {
	tx.Queue(ctx, `UPDATE automation_contacts SET active = active - 1 WHERE automation_id = $1 AND contact_id = $2
		AND team_id = $3 AND epoch = $4 AND active > 0`, db.ID(r.automationID), db.ID(r.contactID), db.ID(r.teamID),
		r.epoch)
}

// insertStep appends a step record to a run's steps.
func insertStep(ctx context.Context, tx *db.Tx, r *row, rec *engine.Record) error {
	output, reason, message, err := encodeRecord(rec)
	if err != nil {
		return err
	}
	tx.Queue(ctx, `INSERT INTO automation_run_steps (run_id, position, team_id, step, status, output, reason, message,
		started_at, completed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, db.ID(r.id), r.steps, db.ID(r.teamID),
		rec.Key, string(rec.Status), output, reason, message, rec.StartedAt.UnixMicro(), db.Micros(rec.CompletedAt))
	r.steps++
	return nil
}

// updateStep replaces the record of a run's last step.
func updateStep(ctx context.Context, tx *db.Tx, r *row, rec *engine.Record) error {
	output, reason, message, err := encodeRecord(rec)
	if err != nil {
		return err
	}
	tx.Queue(ctx, `UPDATE automation_run_steps SET status = $4, output = $5, reason = $6, message = $7,
		completed_at = $8 WHERE run_id = $1 AND position = $2 AND team_id = $3`, db.ID(r.id), r.steps-1, db.ID(r.teamID),
		string(rec.Status), output, reason, message, db.Micros(rec.CompletedAt))
	return nil
}

func encodeRecord(rec *engine.Record) (output, reason, message string, err error) {
	if len(rec.Output) > 0 {
		text, err := json.Marshal(rec.Output, json.Deterministic(true))
		if err != nil {
			return "", "", "", fmt.Errorf("encode the output of step %s: %w", rec.Key, err)
		}
		output = string(text)
	}
	if rec.Failure != nil {
		reason, message = rec.Failure.Reason, rec.Failure.Message
	}
	return output, reason, message, nil
}

// skipSteps marks the unfinished steps of runs as skipped.
func skipSteps(ctx context.Context, tx *db.Tx, teamID string, runIDs []string, reason Reason) {
	tx.Queue(ctx, `UPDATE automation_run_steps SET status = 'skipped', reason = $3, message = $4, completed_at = $5
		WHERE run_id = ANY($2) AND team_id = $1 AND status IN ('waiting', 'running')`, db.ID(teamID), db.IDs(runIDs),
		string(reason), reasonMessages[reason], tx.Now().UnixMicro())
}

// forgottenMessage replaces the message of a failed step after the run's contact has been deleted.
const forgottenMessage = "The contact was deleted, and the message of the step with it."

// forgetSteps erases the contact's data from the steps of runs, but keeps the status of each step and the reason why a
// step failed or was skipped.
func forgetSteps(ctx context.Context, tx *db.Tx, teamID string, runIDs []string) {
	tx.Queue(ctx, `UPDATE automation_run_steps SET output = '', message = CASE WHEN status = 'failed' THEN $3 ELSE
		message END WHERE run_id = ANY($2) AND team_id = $1 AND status <> 'skipped' AND (output <> '' OR
		status = 'failed')`, db.ID(teamID), db.IDs(runIDs),
		forgottenMessage)
}

// forgetRuns erases the contact's data from runs that have ended.
func forgetRuns(ctx context.Context, tx *db.Tx, teamID string, runIDs []string) {
	tx.Queue(ctx, `UPDATE automation_runs SET payload = '', received = '', contact_gone = 1 WHERE id = ANY($2)
		AND COALESCE(team_id, team_id) = $1 AND ended_at > 0 AND contact_gone = 0`, db.ID(teamID), db.IDs(runIDs))
	forgetSteps(ctx, tx, teamID, runIDs)
}

// boolInt converts a bool to the integer that is stored in the database.
func boolInt(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// staleRuns returns the ids of an automation's active runs whose epoch is older than the automation's. Each call to
// staleRuns reads at most limit active runs with ids greater than after, ordered by id. The result done is the id of
// the last run that was read, or "" if no more runs follow.
func staleRuns(ctx context.Context, r db.Reader, teamID, automationID, after string, limit int) (ids []string,
	done string, err error) {
	rows, err := r.Query(ctx, `SELECT r.id, r.epoch, COALESCE(a.epoch, -1) FROM automation_runs r
		LEFT JOIN automations a ON a.id = r.automation_id AND a.team_id = r.team_id WHERE r.automation_id = $1
		AND r.team_id = $2 AND r.status = 'running' AND r.id > $3 ORDER BY r.id LIMIT $4`, db.ID(automationID),
		db.ID(teamID), db.OrNoID(after), limit)
	n := 0
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var id string
		var epoch, current int64
		err = r.Scan((*db.ID)(&id), &epoch, &current)
		if n++; epoch != current {
			ids = append(ids, id)
		}
		done = id
		return none, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("look for runs of automation %s to end: %w", automationID, err)
	}
	if n < limit {
		done = ""
	}
	return ids, done, nil
}

// activeRunsOf returns the ids of a contact's active runs, up to the given limit and without the run whose id is given
// as except.
func activeRunsOf(ctx context.Context, r db.Reader, teamID, contactID, except string, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM automation_runs /*sqlite: INDEXED BY automation_runs_live */
		WHERE contact_id = $1 AND team_id = $2 AND ended_at = 0 AND id <> $3 ORDER BY id LIMIT $4`, db.ID(contactID),
		db.ID(teamID), db.OrNoID(except), limit)
	ids, err := db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan((*db.ID)(&id))
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the runs of a contact: %w", err)
	}
	return ids, nil
}

// getVersion returns the graph of an automation version as JSON.
func getVersion(ctx context.Context, r db.Reader, teamID, versionID string) (steps, connections string, err error) {
	err = r.QueryRow(ctx, `SELECT steps, connections FROM automation_versions WHERE id = $1 AND team_id = $2`,
		db.ID(versionID), db.ID(teamID)).Scan(&steps, &connections)
	if err != nil {
		return "", "", fmt.Errorf("read version %s of an automation: %w", versionID, err)
	}
	return steps, connections, nil
}

// recordTry stores a message about a failed attempt in the run's last step, which is still running.
func recordTry(ctx context.Context, tx *db.Tx, r *row, message string) {
	tx.Queue(ctx, `UPDATE automation_run_steps SET message = $4 WHERE run_id = $1 AND position = $2 AND team_id = $3
		AND status = 'running'`, db.ID(r.id), r.steps-1, db.ID(r.teamID), message)
}
