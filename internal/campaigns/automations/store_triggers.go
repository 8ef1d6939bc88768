package automations

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db"
)

// insertWait inserts the row that is used to find a waiting run when its event arrives.
func insertWait(ctx context.Context, tx *db.Tx, r *row, event string) {
	tx.Queue(ctx, `INSERT INTO automation_waits (team_id, event_name, contact_id, run_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, db.ID(r.teamID), event, db.ID(r.contactID), db.ID(r.id))
}

func deleteWait(ctx context.Context, tx *db.Tx, r *row, event string) {
	tx.Queue(ctx, `DELETE FROM automation_waits WHERE team_id = $1 AND event_name = $2 AND contact_id = $3
		AND run_id = $4`, db.ID(r.teamID), event, db.ID(r.contactID), db.ID(r.id))
}

func deleteWaits(ctx context.Context, tx *db.Tx, teamID string, runIDs []string) {
	tx.Queue(ctx, `DELETE FROM automation_waits WHERE run_id = ANY($2) AND COALESCE(team_id, team_id) = $1`,
		db.ID(teamID), db.IDs(runIDs))
}

// trigger is an automation's trigger row, with the data needed to begin a run.
type trigger struct {
	automationID, versionID string
	epoch                   int64
	reentry                 Reentry
	opening                 engine.Opening
}

const triggerColumns = `automation_id, version_id, epoch, reentry, step, next_step, wait_event, wait_timeout`

// noTrigger contains an empty value for each of triggerColumns except the first.
const noTrigger = `NULL, 0, '', '', '', '', 0`

// dest returns the destinations for scanning triggerColumns, preceded by the destinations in before.
func (t *trigger) dest(timeout *int64, before ...any) []any {
	return append(before, (*db.ID)(&t.automationID), (*db.ID)(&t.versionID), &t.epoch, &t.reentry, &t.opening.Trigger,
		&t.opening.Next,
		&t.opening.Event, timeout)
}

// lookUpEvent returns the automations that an event triggers, and the ids of the contact's runs that are waiting for
// the event, both sorted by id. At most maxWoken+1 run ids are returned, all of them greater than after.
func lookUpEvent(ctx context.Context, r db.Reader, teamID, event, contactID, after string) (begins []trigger,
	waiting []string, err error) {
	rows, err := r.Query(ctx, `SELECT 0, `+triggerColumns+` FROM automation_triggers
		WHERE team_id = $1 AND event_name = $2
		UNION ALL SELECT 1, w.run_id, `+noTrigger+` FROM (SELECT run_id FROM automation_waits WHERE team_id = $1
		AND event_name = $2 AND contact_id = $3 AND run_id > $4 ORDER BY run_id LIMIT $5) w ORDER BY 1, 2`, db.ID(teamID),
		event, db.ID(contactID), db.OrNoID(after), maxWoken+1)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var kind int
		var timeout int64
		var t trigger
		if err = r.Scan(t.dest(&timeout, &kind)...); err != nil {
			return none, err
		}
		t.opening.Timeout = time.Duration(timeout) * time.Microsecond
		if kind == 0 {
			begins = append(begins, t)
		} else {
			waiting = append(waiting, t.automationID)
		}
		return none, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look up what the event %s triggers: %w", event, err)
	}
	return begins, waiting, nil
}

// waitingVersions returns the versions that those of a contact's runs use that are waiting for an event. As in
// lookUpEvent, only the first maxWoken runs count.
func waitingVersions(ctx context.Context, r db.Reader, teamID, event, contactID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT DISTINCT r.version_id FROM (SELECT run_id FROM automation_waits
		WHERE team_id = $1 AND event_name = $2 AND contact_id = $3 ORDER BY run_id LIMIT $4) w
		JOIN automation_runs r ON r.id = w.run_id AND r.team_id = $1`, db.ID(teamID), event, db.ID(contactID), maxWoken)
	ids, err := db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan((*db.ID)(&id))
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("look up the graphs of runs that wait for the event %s: %w", event, err)
	}
	return ids, nil
}

// waitedEvents returns the events that an automation version waits for at any step.
func waitedEvents(ctx context.Context, r db.Reader, teamID, versionID string) (names []string, err error) {
	var list string
	err = r.QueryRow(ctx, `SELECT wait_events FROM automation_versions WHERE id = $1 AND team_id = $2`,
		db.ID(versionID), db.ID(teamID)).Scan(&list)
	if err == nil && list == "" {
		var steps string
		if steps, _, err = getVersion(ctx, r, teamID, versionID); err == nil {
			list, err = engine.WaitedEvents(steps)
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(list), &names)
	}
	if err != nil {
		return nil, fmt.Errorf("look up the events that version %s of an automation waits for: %w", versionID, err)
	}
	return names, nil
}

// lookUpEvents returns the automations that each of the given events triggers. The result awaited contains the names of
// those events for which at least one run of the team is waiting.
func lookUpEvents(ctx context.Context, r db.Reader, teamID string, events []string) (begins map[string][]trigger,
	awaited map[string]bool, err error) {
	begins, awaited = map[string][]trigger{}, map[string]bool{}
	rows, err := r.Query(ctx, `WITH n (name) AS (SELECT UNNEST(CAST($3 AS TEXT[])))
		SELECT 0, event_name, `+triggerColumns+` FROM automation_triggers
		WHERE team_id = $1 AND event_name = ANY($2)
		UNION ALL SELECT 1, n.name, NULL, `+noTrigger+` FROM n WHERE EXISTS (SELECT 1 FROM automation_waits w
		WHERE w.team_id = $1 AND w.event_name = n.name) ORDER BY 1, 2, 3`, db.ID(teamID), events, events)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var kind int
		var name string
		var timeout int64
		var t trigger
		if err = r.Scan(t.dest(&timeout, &kind, &name)...); err != nil {
			return none, err
		}
		t.opening.Timeout = time.Duration(timeout) * time.Microsecond
		if kind == 0 {
			begins[name] = append(begins[name], t)
		} else {
			awaited[name] = true
		}
		return none, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look up what %d events trigger: %w", len(events), err)
	}
	return begins, awaited, nil
}

// admission says whether an event may begin a run.
type admission int

const (
	admitted    admission = iota // the run begins
	overLimit                    // a failed run is stored, because this run is the first to exceed a limit in an hour
	notAdmitted                  // nothing begins
)

// SQL conditions for a new run; they use the parameters of the query in admit. Parameter $5 is the current time, and $6
// is one hour before it. The reentry rule limits the number of active runs to $7 and the total number of runs to $8. $9
// is maxHourly and $11 is maxActive. $12 is the epoch of the run. If the row has a newer epoch than the run, the
// automation has just been stopped, and the run is refused.
const (
	byRule       = `c.epoch <= $12 AND (c.epoch < $12 OR c.active < $7) AND c.begun < $8`
	byLimits     = `(c.epoch < $12 OR c.active < $11) AND (c.hour_from <= $6 OR c.hour_begun < $9)`
	admits       = byRule + ` AND ` + byLimits
	reportsLimit = byRule + ` AND NOT (` + byLimits + `) AND c.limited_at <= $6`
)

// admit counts a new run of a contact and says whether the run may begin. A run that is stored as already ended counts
// only toward the hourly limit. The row that counts the contact's runs of the automation stays locked until the
// transaction ends.
func admit(ctx context.Context, tx *db.Tx, t *trigger, teamID, contactID, runID string, ended bool) (admission, error) {
	activeLimit, everLimit := int64(1<<62), int64(1<<62)
	switch t.reentry {
	case OnceAtATime:
		activeLimit = 1
	case Once:
		everLimit = 1
	}
	counts := int64(1)
	if ended {
		counts = 0
	}
	now := tx.Now()
	var last, lastLimited string
	err := tx.QueryRow(ctx, `INSERT INTO automation_contacts AS c (automation_id, contact_id, team_id, active, begun,
		hour_from, hour_begun, last_run_id, limited_at, limited_run_id, epoch)
		VALUES ($1, $2, $3, $10, $10, $5, 1, $4, 0, NULL, $12)
		ON CONFLICT (automation_id, contact_id) DO UPDATE SET
		active = CASE WHEN `+admits+` THEN $10 + CASE WHEN c.epoch < $12 THEN 0 ELSE c.active END ELSE c.active END,
		epoch = CASE WHEN `+admits+` THEN $12 ELSE c.epoch END,
		begun = CASE WHEN `+admits+` THEN c.begun + $10 ELSE c.begun END,
		hour_from = CASE WHEN c.hour_from <= $6 THEN $5 ELSE c.hour_from END,
		hour_begun = CASE WHEN c.hour_from <= $6 THEN CASE WHEN `+admits+` THEN 1 ELSE 0 END
			WHEN `+admits+` THEN c.hour_begun + 1 ELSE c.hour_begun END,
		last_run_id = CASE WHEN `+admits+` THEN $4 ELSE c.last_run_id END,
		limited_at = CASE WHEN `+reportsLimit+` THEN $5 ELSE c.limited_at END,
		limited_run_id = CASE WHEN `+reportsLimit+` THEN $4 ELSE c.limited_run_id END
		RETURNING last_run_id,
		limited_run_id`, db.ID(t.automationID), db.ID(contactID), db.ID(teamID), db.ID(runID), now.UnixMicro(),
		now.Add(-time.Hour).UnixMicro(), activeLimit, everLimit, int64(maxHourly), counts, int64(maxActive), t.epoch).
		Scan((*db.ID)(&last), (*db.ID)(&lastLimited))
	if err != nil {
		return notAdmitted, fmt.Errorf("count a run of automation %s: %w", t.automationID, err)
	}
	switch runID {
	case last:
		return admitted, nil
	case lastLimited:
		return overLimit, nil
	}
	return notAdmitted, nil
}

// deleteContactCounts deletes a contact's run counters.
func deleteContactCounts(ctx context.Context, tx *db.Tx, teamID, contactID string) {
	tx.Queue(ctx, `DELETE FROM automation_contacts WHERE contact_id = $2 AND team_id = $1`, db.ID(teamID),
		db.ID(contactID))
}
