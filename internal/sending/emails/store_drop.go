package emails

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
)

// The statements in this file run only on PostgreSQL. They read the emails of all teams in a range of ids, which is
// within one partition.

// unsettledBetween returns the emails with ids in a range that are not settled, and their teams.
func unsettledBetween(ctx context.Context, r db.Reader, from, to string) ([]emailOf, error) {
	rows, err := r.Query(ctx, `SELECT e.id, e.team_id FROM emails e WHERE e.id >= $1 AND e.id < $2 AND NOT `+isSettled,
		db.ID(from), db.ID(to))
	return db.Collect(rows, err, scanEmailOf)
}

// emailOf is an email of a team.
type emailOf struct{ id, teamID string }

func scanEmailOf(r db.Row) (e emailOf, err error) {
	err = r.Scan((*db.ID)(&e.id), (*db.ID)(&e.teamID))
	return e, err
}

// withEvents returns those of the given emails that have events, with their teams.
func withEvents(ctx context.Context, r db.Reader, emailIDs []string) ([]emailOf, error) {
	rows, err := r.Query(ctx, `SELECT DISTINCT email_id, team_id FROM email_events WHERE email_id = ANY($1)`,
		db.IDs(emailIDs))
	return db.Collect(rows, err, scanEmailOf)
}

// fileOf is a blob's key and the email to which the blob belongs.
type fileOf struct{ emailID, key string }

// filesBetween returns at most limit keys of the blobs that belong to emails with ids in a range.
func filesBetween(ctx context.Context, r db.Reader, from, to string, limit int) ([]fileOf, error) {
	rows, err := r.Query(ctx, `SELECT email_id, blob_key FROM email_attachments
		WHERE email_id >= $1 AND email_id < $2 AND blob_key <> ''
		UNION ALL SELECT email_id, blob_key FROM email_messages WHERE email_id >= $1 AND email_id < $2 AND blob_key <> ''
		LIMIT $3`, db.ID(from), db.ID(to), limit)
	return db.Collect(rows, err, func(r db.Row) (f fileOf, err error) {
		err = r.Scan((*db.ID)(&f.emailID), &f.key)
		f.key, _, _ = strings.Cut(f.key, fileMark)
		return f, err
	})
}

// deleteSkippedBetween deletes the records about skipped bodies of the emails with ids in a range, except for the kept
// ones. The table is small.
func deleteSkippedBetween(ctx context.Context, tx *db.Tx, from, to string, kept []string) {
	tx.Queue(ctx, `DELETE FROM email_bodies_left WHERE email_id >= $1 AND email_id < $2
		AND NOT EXISTS (SELECT 1 FROM UNNEST(CAST($3 AS UUID[])) k WHERE k = email_id)`, db.ID(from), db.ID(to),
		db.IDs(kept))
}
