package users

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// refundAttempts subtracts one attempt from each counter, and deletes the counters that reach zero. Without the
// deletion, a user who signs in from many networks would leave a row for each network.
func refundAttempts(ctx context.Context, tx *db.Tx, limits []limit) {
	for _, l := range limits {
		tx.Queue(ctx, `UPDATE user_attempts SET n = n - 1 WHERE name = $1 AND n > 0`, l.name)
		tx.Queue(ctx, `DELETE FROM user_attempts WHERE name = $1 AND n = 0`, l.name)
	}
}

// countAttempt increments the counter with the given name and returns the counter's value and start time. A counter
// restarts after attemptsFor. A counter whose start time is in the future also restarts, so that a clock that was
// briefly wrong does not lock users out any longer.
func countAttempt(ctx context.Context, tx *db.Tx, name string, now time.Time) (n int64, since time.Time, err error) {
	var us int64
	err = tx.QueryRow(ctx, `INSERT INTO user_attempts (name, since, n) VALUES ($1, $2, 1)
		ON CONFLICT (name) DO UPDATE SET
			n = CASE WHEN user_attempts.since BETWEEN $3 AND $4 THEN user_attempts.n + 1 ELSE 1 END,
			since = CASE WHEN user_attempts.since BETWEEN $3 AND $4 THEN user_attempts.since ELSE $2 END
		RETURNING n, since`, name, db.Micros(now), db.Micros(now.Add(-attemptsFor))+1,
		db.Micros(now.Add(clocksDiffer))).Scan(&n, &us)
	return n, db.Time(us), err
}

func deleteAttempts(ctx context.Context, tx *db.Tx, names ...string) {
	tx.Queue(ctx, `DELETE FROM user_attempts WHERE name = ANY($1)`, names)
}

func deleteOldAttempts(ctx context.Context, tx *db.Tx, before time.Time, most int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM user_attempts WHERE name IN
		(SELECT name FROM user_attempts WHERE since < $1 ORDER BY since LIMIT $2)`, db.Micros(before), most)
}
