package emails

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// setSchedule changes the time at which a scheduled email is sent; it returns false if the email is not scheduled.
func setSchedule(ctx context.Context, tx *db.Tx, teamID, emailID string,
	at interface{ UnixMicro() int64 }) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET scheduled_at = $3 WHERE id = $1 AND team_id = $2
		AND last_event = `+states.SQL(Scheduled),
		db.ID(emailID), db.ID(teamID), at.UnixMicro())
	return n > 0, err
}

// lockSchedule returns the scheduled time of an email and locks its row until the transaction ends. If the email does
// not exist or is not scheduled, lockSchedule returns ok == false.
func lockSchedule(ctx context.Context, tx *db.Tx, teamID, emailID string) (at time.Time, ok bool, err error) {
	var us int64
	err = tx.QueryRow(ctx, `UPDATE emails SET scheduled_at = scheduled_at WHERE id = $1 AND team_id = $2
		AND last_event = `+states.SQL(Scheduled)+`
		RETURNING scheduled_at`, db.ID(emailID), db.ID(teamID)).Scan(&us)
	if errors.Is(err, db.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("read when email %s is due: %w", emailID, err)
	}
	return db.Time(us), true, nil
}

// takeScheduled changes the state of a scheduled email if it is due at or before the given time. If Cancel and the
// release job run concurrently, takeScheduled succeeds for only one of them and returns nil for the other.
func takeScheduled(ctx context.Context, tx *db.Tx, teamID, emailID string, to State, until int64) (*Email, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET last_event = $3, rank = $4, updated_at = $6
		WHERE id = $1 AND team_id = $2 AND last_event = `+states.SQL(Scheduled)+` AND scheduled_at <= $5`,
		db.ID(emailID), db.ID(teamID), states.Number(to), rank[to], until, tx.Now().UnixMicro())
	if err != nil || n == 0 {
		return nil, err
	}
	e, err := readEmail(ctx, tx.Reader, teamID, emailID)
	if err == nil && e.only == "" {
		tx.Queue(ctx, `UPDATE email_recipients SET state = $2, rank = $3, updated_at = $4
			WHERE email_id = $1 AND team_id = $5 AND rank < $3`, db.ID(emailID), states.Number(to), rank[to],
			tx.Now().UnixMicro(), db.ID(teamID))
	}
	return &e, err
}

// anyScheduled reports whether a team has scheduled emails from a domain. The query reads the release jobs in the
// team's lane, because each scheduled email has a release job.
func anyScheduled(ctx context.Context, r db.Reader, teamID, domainID string) (found bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM jobs j JOIN emails e ON e.id = CAST(j.dedupe AS UUID)
		AND e.team_id = $3 WHERE j.kind = $1 AND j.lane = $2 AND j.team_id = $3
		AND e.domain_id = $4 AND e.last_event = `+states.SQL(Scheduled)+`)`, ReleaseKind, teamID, db.ID(teamID),
		db.ID(domainID)).Scan(&found)
	return found, err
}
