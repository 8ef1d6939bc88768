package metrics

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// A received email has no row in email_events. Its own row is its event.

var received = events.Types.SQL(events.EmailReceived)

// countReceived returns the part of the statement of countEvents that counts received emails, and args with the
// arguments of its filters. The first three arguments are the team and the span.
func countReceived(g groups, f filters, args []any) (string, []any) {
	when, where := "r.created_at >= $2 AND r.created_at < $3", ""
	if len(f.emails) > 0 {
		// These expressions prevent the database from using the index on times.
		when = "r.created_at + 0 >= $2 AND r.created_at + 0 < $3"
		args = append(args, db.IDs(f.emails))
		where = fmt.Sprintf(" AND r.id = ANY($%d)", len(args))
	}
	domains, args := filters{domains: f.domains}.where("r.", args)
	return fmt.Sprintf(`SELECT %s, %s, %s, `+noID+`, CAST(%s AS SMALLINT), CAST('' AS TEXT), COUNT(*), COUNT(*),
		CAST(0 AS BIGINT) FROM received_emails r WHERE r.team_id = $1 AND %s%s GROUP BY 1, 2, 3, 4, 5, 6`,
		g.slotOf(fmt.Sprintf("r.created_at / %d", slot.Microseconds())),
		column(g.domain, "r.domain_id", noID), column(g.email, "r.id", noID), received, when, where+domains), args
}

// uncountedReceived returns those of a team's received emails that arrived at or after the given time.
func uncountedReceived(ctx context.Context, r db.Reader, teamID string, emailIDs []string, until int64) ([]string,
	error) {
	rows, err := r.Query(ctx, `SELECT id FROM received_emails WHERE team_id = $1 AND id = ANY($2)
		AND created_at + 0 >= $3`, db.ID(teamID), db.IDs(emailIDs), until)
	return db.Collect(rows, err, scanID)
}

// retainReceived adds the given received emails to the counts of deleted events.
func retainReceived(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) {
	// A fixed order of rows prevents deadlocks between two transactions.
	tx.Queue(ctx, fmt.Sprintf(`INSERT INTO email_counts_kept (team_id, slot, domain_id, broadcast_id, type, detail,
		events, recipients, people)
		SELECT r.team_id, r.created_at / %d, COALESCE(r.domain_id, $3), $3, CAST(%s AS SMALLINT), CAST('' AS TEXT),
		COUNT(*), COUNT(*), CAST(0 AS BIGINT) FROM received_emails r WHERE r.team_id = $1 AND r.id = ANY($2)
		GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
		ON CONFLICT (team_id, slot, domain_id, broadcast_id, type, detail) DO UPDATE SET
		events = email_counts_kept.events + excluded.events,
		recipients = email_counts_kept.recipients + excluded.recipients,
		people = email_counts_kept.people + excluded.people`,
		slot.Microseconds(), received), db.ID(teamID), db.IDs(emailIDs), db.NoID)
}
