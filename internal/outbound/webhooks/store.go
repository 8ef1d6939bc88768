package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

const endpointColumns = `id, team_id, url, events, status, secret, old_secret, old_until, failing_since, warned,
	disabled_reason, disabled_at, created_at, full_since, full_told`

func scanEndpoint(r db.Row) (e Endpoint, err error) {
	var types, status string
	var oldUntil, failing, disabledAt, created, full, notified int64
	err = r.Scan((*db.ID)(&e.ID), (*db.ID)(&e.TeamID), &e.URL, &types, &status, &e.secret.Sealed,
		&e.secret.Old, &oldUntil, &failing, &e.warned, &e.DisabledReason, &disabledAt, &created, &full, &notified)
	e.Events, e.Status = splitTypes(types), Status(status)
	e.secret.OldUntil, e.FailingSince, e.DisabledAt, e.CreatedAt = db.Time(oldUntil), db.Time(failing),
		db.Time(disabledAt), db.Time(created)
	e.FullSince, e.fullNotified = db.Time(full), db.Time(notified)
	return e, err
}

func splitTypes(text string) (all []events.Type) {
	if text == "" {
		return nil
	}
	for t := range strings.SplitSeq(text, ",") {
		all = append(all, events.Type(t))
	}
	return all
}

func insertEndpoint(ctx context.Context, tx *db.Tx, e *Endpoint) {
	tx.Proof(`SELECT 1 FROM webhooks WHERE id = $1`, db.ID(e.ID))
	tx.Queue(ctx, `INSERT INTO webhooks (`+endpointColumns+`, open_since)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, '', 0, $9, 0, 0, $10)`,
		db.ID(e.ID), db.ID(e.TeamID), e.URL, join(e.Events, ","), string(e.Status), e.secret.Sealed, []byte{}, false,
		e.CreatedAt.UnixMicro(), db.ID(id.First(e.CreatedAt.Add(-clockSlack))))
}

func saveEndpoint(ctx context.Context, tx *db.Tx, e *Endpoint) {
	old := e.secret.Old
	if old == nil {
		old = []byte{}
	}
	tx.Queue(ctx, `UPDATE webhooks SET url = $3, events = $4, status = $5, secret = $6, old_secret = $7, old_until = $8,
		failing_since = $9, warned = $10, disabled_reason = $11, disabled_at = $12 WHERE id = $1 AND team_id = $2`,
		db.ID(e.ID), db.ID(e.TeamID), e.URL, join(e.Events, ","), string(e.Status), e.secret.Sealed, old,
		db.Micros(e.secret.OldUntil),
		db.Micros(e.FailingSince), e.warned, e.DisabledReason, db.Micros(e.DisabledAt))
}

func oneEndpoint(e Endpoint, err error) (Endpoint, error) {
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Webhook not found")
	}
	if err != nil {
		return e, fmt.Errorf("read webhook: %w", err)
	}
	return e, nil
}

func getEndpoint(ctx context.Context, r db.Reader, teamID, endpointID string) (Endpoint, error) {
	if !id.Valid(endpointID) {
		return oneEndpoint(Endpoint{}, db.ErrNoRows)
	}
	return oneEndpoint(scanEndpoint(r.QueryRow(ctx, `SELECT `+endpointColumns+` FROM webhooks
		WHERE id = $1 AND team_id = $2 AND status <> 'deleted'`, db.ID(endpointID), db.ID(teamID))))
}

// lockEndpoint reads an endpoint that the transaction will change. The UPDATE in lockEndpoint changes no value. On
// PostgreSQL, the UPDATE locks the row, so that concurrent transactions see each other's changes.
func lockEndpoint(ctx context.Context, tx *db.Tx, teamID, endpointID string) (Endpoint, error) {
	if !id.Valid(endpointID) {
		return oneEndpoint(Endpoint{}, db.ErrNoRows)
	}
	return oneEndpoint(scanEndpoint(tx.QueryRow(ctx, `UPDATE webhooks SET status = status
		WHERE id = $1 AND team_id = $2 AND status <> 'deleted' RETURNING `+endpointColumns, db.ID(endpointID),
		db.ID(teamID))))
}

func listEndpoints(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Endpoint, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + endpointColumns + ` FROM webhooks
		WHERE team_id = $1 AND status <> 'deleted'`, ID: "id", Args: []any{db.ID(teamID)}}, p, scanEndpoint)
}

func countEndpoints(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM webhooks WHERE team_id = $1 AND status <> 'deleted'`,
		db.ID(teamID)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count webhooks: %w", err)
	}
	return n, nil
}

// teamEndpoints returns all endpoints of a team except deleted ones, oldest first.
func teamEndpoints(ctx context.Context, r db.Reader, teamID string) ([]*Endpoint, error) {
	rows, err := r.Query(ctx, `SELECT `+endpointColumns+
		` FROM webhooks WHERE team_id = $1 AND status <> 'deleted' ORDER BY id
		LIMIT $2`, db.ID(teamID), 2*maxPerTeam)
	all, err := db.Collect(rows, err, func(r db.Row) (*Endpoint, error) {
		e, err := scanEndpoint(r)
		return &e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the webhooks of team %s: %w", teamID, err)
	}
	return all, nil
}

// endpointsAfter returns, in id order, at most limit of a team's endpoints whose ids are greater than after.
func endpointsAfter(ctx context.Context, r db.Reader, teamID, after string, limit int) ([]*Endpoint, error) {
	rows, err := r.Query(ctx, `SELECT `+endpointColumns+
		` FROM webhooks WHERE team_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
		db.ID(teamID), db.OrNoID(after), limit)
	all, err := db.Collect(rows, err, func(r db.Row) (*Endpoint, error) {
		e, err := scanEndpoint(r)
		return &e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read webhooks of team %s: %w", teamID, err)
	}
	return all, nil
}

const countWaiting = `SELECT lane, COUNT(*) FROM jobs WHERE kind = $1 AND lane >= $2 AND lane < $3 AND holder IS NULL
	GROUP BY lane`

// waitingJobs counts the waiting jobs for each of a team's endpoints and reads only the index on lanes.
func waitingJobs(ctx context.Context, r db.Reader, teamID string) (map[string]int, error) {
	waiting := map[string]int{}
	rows, err := r.Query(ctx, countWaiting, Kind, lane(teamID, ""), lane(teamID, "g")) // g sorts after all hex digits
	_, err = db.Collect(rows, err, func(r db.Row) (x struct{}, err error) {
		var name string
		var n int
		err = r.Scan(&name, &n)
		waiting[laneEndpoint(name)] = n
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("count the waiting jobs of the webhooks of team %s: %w", teamID, err)
	}
	return waiting, nil
}

// waitingUpTo counts the waiting jobs for an endpoint, but stops at the given number.
func waitingUpTo(ctx context.Context, r db.Reader, teamID, endpointID string, most int) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE kind = $1 AND lane = $2 AND holder IS NULL
		LIMIT $3) x`, Kind, lane(teamID, endpointID), most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the waiting jobs of webhook %s: %w", endpointID, err)
	}
	return n, nil
}

func markFull(ctx context.Context, tx *db.Tx, e *Endpoint) {
	tx.Queue(ctx, `UPDATE webhooks SET full_since = $3 WHERE id = $1 AND team_id = $2`, db.ID(e.ID), db.ID(e.TeamID),
		db.Micros(e.FullSince))
}

func markFullNotified(ctx context.Context, tx *db.Tx, e *Endpoint) {
	tx.Queue(ctx, `UPDATE webhooks SET full_told = $3 WHERE id = $1 AND team_id = $2`, db.ID(e.ID), db.ID(e.TeamID),
		tx.Now().UnixMicro())
}

// markFailing records the time at which an endpoint began to fail, unless a time is already recorded.
func markFailing(ctx context.Context, tx *db.Tx, e *Endpoint) {
	tx.Queue(ctx, `UPDATE webhooks SET failing_since = $3 WHERE id = $1 AND team_id = $2 AND failing_since = 0`,
		db.ID(e.ID), db.ID(e.TeamID), tx.Now().UnixMicro())
}

func markWorking(ctx context.Context, tx *db.Tx, e *Endpoint) {
	tx.Queue(ctx, `UPDATE webhooks SET failing_since = 0, warned = $3 WHERE id = $1 AND team_id = $2`, db.ID(e.ID),
		db.ID(e.TeamID), false)
}

// failedSince reports whether an endpoint has had no success since the given time. The column failing_since is not
// sufficient, because not every success clears it.
func failedSince(ctx context.Context, r db.Reader, e *Endpoint, since time.Time) (bool, error) {
	var n int
	err := r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM webhook_deliveries
		WHERE webhook_id = $1 AND team_id = $2 AND status = 'success' AND finished_at > $3 LIMIT 1) x`,
		db.ID(e.ID), db.ID(e.TeamID), since.UnixMicro()).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look for successes of webhook %s: %w", e.ID, err)
	}
	return n == 0, nil
}

// warn records that the team was warned about a failing endpoint, and returns true if no other transaction has already
// recorded the warning.
func warn(ctx context.Context, tx *db.Tx, e *Endpoint) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE webhooks SET warned = $3 WHERE id = $1 AND team_id = $2 AND NOT warned`, db.ID(e.ID),
		db.ID(e.TeamID), true)
	if err != nil {
		return false, fmt.Errorf("record a warning about webhook %s: %w", e.ID, err)
	}
	return n > 0, nil
}

// disable disables a failing endpoint, and returns true if no other transaction has already disabled it.
func disable(ctx context.Context, tx *db.Tx, e *Endpoint, reason string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE webhooks SET status = 'disabled', disabled_reason = $3, disabled_at = $4
		WHERE id = $1 AND team_id = $2 AND status = 'enabled'`, db.ID(e.ID), db.ID(e.TeamID), reason, tx.Now().UnixMicro())
	if err != nil {
		return false, fmt.Errorf("disable webhook %s: %w", e.ID, err)
	}
	return n > 0, nil
}
