package receiving

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	removeEmails = 100                                    // maximum number of emails deleted per transaction
	lastID       = "ffffffff-ffff-ffff-ffff-ffffffffffff" // greater than every id
)

// storedEmail is a received email that is to be deleted.
type storedEmail struct{ id, blobKey string }

// storedBetween returns a batch of a team's received emails with ids in a range, oldest first.
func storedBetween(ctx context.Context, r db.Reader, teamID, after, before string) ([]storedEmail, error) {
	rows, err := r.Query(ctx, `SELECT id, blob_key FROM received_emails WHERE team_id = $1 AND id > $2 AND id < $3 ORDER
		BY id LIMIT $4`,
		db.ID(teamID), db.OrNoID(after), db.ID(before), removeEmails)
	return db.Collect(rows, err, func(r db.Row) (e storedEmail, err error) {
		err = r.Scan((*db.ID)(&e.id), &e.blobKey)
		return e, err
	})
}

// deleteReceived deletes received emails with their raw messages.
func deleteReceived(ctx context.Context, tx *db.Tx, teamID string, ids []string) {
	tx.Queue(ctx, `DELETE FROM received_raws WHERE team_id = $1 AND email_id = ANY($2)`, db.ID(teamID), db.IDs(ids))
	tx.Queue(ctx, `DELETE FROM received_emails WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID), db.IDs(ids))
}
