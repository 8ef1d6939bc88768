package contacts

import (
	"context"

	"github.com/postrider/postrider/internal/db"
)

// countMailed counts an email for each of some contacts, in the order of their ids, so that two transactions do not
// wait for each other.
func countMailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at,
		clicked_at) SELECT c.id, c.team_id, 1, 0, 0, $3, 0, 0 FROM contacts c WHERE c.id = ANY($2) AND c.team_id = $1
		ORDER BY c.id ON CONFLICT (contact_id) DO UPDATE SET mailed = contact_engagement.mailed + 1,
		mailed_at = excluded.mailed_at`, teamID, contactIDs, tx.Now().UnixMicro())
}
