package metrics

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// isFinal reports whether a team's counters of a slot are final.
func isFinal(ctx context.Context, r db.Reader, teamID string, slot int64) (bool, error) {
	at, err := getState(ctx, r, teamID)
	return slot < at.final, err
}

// setFinal makes the counters of all slots before the given slot final.
func setFinal(ctx context.Context, tx *db.Tx, slot int64) {
	tx.Queue(ctx, `DELETE FROM email_counts_final WHERE slot < $1`, slot)
	tx.Queue(ctx, `INSERT INTO email_counts_final (slot) SELECT CAST($1 AS BIGINT)
		WHERE NOT EXISTS (SELECT 1 FROM email_counts_final)`, slot)
}

// addEvent adds an event of the timeline to a final counter.
func addEvent(ctx context.Context, tx *db.Tx, emailID, eventID string) {
	tx.Queue(ctx, fmt.Sprintf(`INSERT INTO email_counts (team_id, slot, domain_id, broadcast_id, type, detail, events,
		recipients, people)
		SELECT e.team_id, e.created_at / %d, COALESCE(e.domain_id, $3), COALESCE(e.broadcast_id, $3), e.type, e.detail, 1,
		%s, %s FROM email_events e WHERE e.email_id = $1 AND e.id = $2 AND %s
		ON CONFLICT (team_id, slot, domain_id, broadcast_id, type, detail) DO UPDATE SET
		events = email_counts.events + excluded.events,
		recipients = email_counts.recipients + excluded.recipients,
		people = email_counts.people + excluded.people`, slot.Microseconds(), recipientsOf, peopleOf, counted),
		db.ID(emailID), db.ID(eventID), db.NoID)
}

// uncountedBetween returns at most limit emails with ids in a range that have an event that is not in its team's
// counters. This statement runs only on PostgreSQL, whose partitions it reads.
func uncountedBetween(ctx context.Context, r db.Reader, from, to string, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT v.email_id FROM teams t
		LEFT JOIN email_counts_until u ON u.team_id = t.id, LATERAL (SELECT e.email_id FROM email_events e
			WHERE e.team_id = t.id AND e.created_at >= COALESCE(u.until, 0) AND e.email_id >= $1 AND e.email_id < $2
			LIMIT $3) v
		UNION SELECT v.email_id FROM email_counts_late l JOIN email_events v ON v.team_id = l.team_id
			AND v.created_at = l.at WHERE v.email_id >= $1 AND v.email_id < $2
		UNION SELECT l.email_id FROM email_counts_late l WHERE l.email_id >= $1 AND l.email_id < $2
		LIMIT $3`, db.ID(from), db.ID(to), limit)
	return db.Collect(rows, err, scanID)
}

// retainBetween adds the counts of events since the start of a slot to the counts of deleted events. The events are
// those of the emails with ids in a range, except for the kept ones. This statement runs only on PostgreSQL.
func retainBetween(ctx context.Context, tx *db.Tx, from, to string, since int64, kept []string) {
	tx.Queue(ctx, fmt.Sprintf(`INSERT INTO email_counts_kept (team_id, slot, domain_id, broadcast_id, type, detail,
		events, recipients, people)
		SELECT e.team_id, e.created_at / %[1]d, COALESCE(e.domain_id, $5), COALESCE(e.broadcast_id, $5), e.type, e.detail,
		COUNT(*), CAST(SUM(%[2]s) AS BIGINT), CAST(SUM(%[3]s) AS BIGINT) FROM teams t, LATERAL (SELECT * FROM email_events v
			WHERE v.team_id = t.id AND v.created_at >= $3 AND v.email_id >= $1 AND v.email_id < $2) e
		WHERE %[4]s AND NOT EXISTS (SELECT 1 FROM UNNEST(CAST($4 AS UUID[])) k WHERE k = e.email_id)
		GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
		ON CONFLICT (team_id, slot, domain_id, broadcast_id, type, detail) DO UPDATE SET
		events = email_counts_kept.events + excluded.events,
		recipients = email_counts_kept.recipients + excluded.recipients,
		people = email_counts_kept.people + excluded.people`,
		slot.Microseconds(), recipientsOf, peopleOf, counted), db.ID(from), db.ID(to), since*slot.Microseconds(),
		db.IDs(kept),
		db.NoID)
}
