package contacts

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/db"
)

// countMailed counts an email for each of some contacts, in the order of their ids, so that two transactions do not
// wait for each other.
func countMailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at,
		clicked_at) SELECT c.id, c.team_id, 1, 0, 0, CAST($3 AS BIGINT), 0, 0 FROM contacts c WHERE c.id = ANY($2) AND c.team_id = $1
		ORDER BY c.id ON CONFLICT (contact_id) DO UPDATE SET mailed = contact_engagement.mailed + 1,
		mailed_at = excluded.mailed_at`, teamID, contactIDs, tx.Now().UnixMicro())
}

// countOpened counts an open of the contact with an address, if the team has one. Events come in any order.
func countOpened(ctx context.Context, tx *db.Tx, teamID, address string, at time.Time) {
	tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at,
		clicked_at) SELECT c.id, c.team_id, 0, 1, 0, 0, CAST($3 AS BIGINT), 0 FROM contacts c WHERE c.team_id = $1
		AND c.address = $2 ON CONFLICT (contact_id) DO UPDATE SET opened = contact_engagement.opened + 1,
		opened_at = CASE WHEN contact_engagement.opened_at > excluded.opened_at THEN contact_engagement.opened_at
			ELSE excluded.opened_at END`, teamID, address, at.UnixMicro())
}

// countClicked is countOpened for a link that was followed.
func countClicked(ctx context.Context, tx *db.Tx, teamID, address string, at time.Time) {
	tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at,
		clicked_at) SELECT c.id, c.team_id, 0, 0, 1, 0, 0, CAST($3 AS BIGINT) FROM contacts c WHERE c.team_id = $1
		AND c.address = $2 ON CONFLICT (contact_id) DO UPDATE SET clicked = contact_engagement.clicked + 1,
		clicked_at = CASE WHEN contact_engagement.clicked_at > excluded.clicked_at THEN contact_engagement.clicked_at
			ELSE excluded.clicked_at END`, teamID, address, at.UnixMicro())
}
