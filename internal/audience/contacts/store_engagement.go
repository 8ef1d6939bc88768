package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// countMailed increments the number of emails sent to each of the given contacts. The contacts must be sorted by id, so
// that two transactions cannot deadlock.
func countMailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at,
		clicked_at) SELECT c.id, c.team_id, 1, 0, 0, CAST($3 AS BIGINT), NULL, NULL FROM contacts c
		WHERE`+ofTeamByID+` = ANY($2) ORDER BY c.id ON CONFLICT (contact_id) DO UPDATE
		SET mailed = contact_engagement.mailed + 1, mailed_at = excluded.mailed_at`, db.ID(teamID), db.IDs(contactIDs), tx.Now().UnixMicro())
}

// existing returns those of the given ids that belong to contacts of the team.
func existing(ctx context.Context, r db.Reader, teamID string, contactIDs []string) (map[string]bool, error) {
	found := map[string]bool{}
	if len(contactIDs) == 0 {
		return found, nil
	}
	rows, err := r.Query(ctx, `SELECT c.id FROM contacts c WHERE`+ofTeamByID+` = ANY($2)`, db.ID(teamID),
		db.IDs(contactIDs))
	all, err := db.Collect(rows, err, scanID)
	if err != nil {
		return nil, fmt.Errorf("look for contacts by their ids: %w", err)
	}
	for _, contactID := range all {
		found[contactID] = true
	}
	return found, nil
}

// contactsWith returns the ids of a team's contacts that have the given addresses, by address.
func contactsWith(ctx context.Context, r db.Reader, teamID string, addresses []string) (map[string]string, error) {
	found := map[string]string{}
	if len(addresses) == 0 {
		return found, nil
	}
	rows, err := r.Query(ctx, `SELECT c.id, c.address FROM contacts c WHERE c.team_id = $1 AND c.address = ANY($2)`,
		db.ID(teamID), addresses)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID, address string
		err = r.Scan((*db.ID)(&contactID), &address)
		found[address] = contactID
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for contacts by their addresses: %w", err)
	}
	return found, nil
}

// countResponses adds opens and clicks to a contact, if the contact still exists. Events may arrive in any order, so
// the later time is kept.
func countResponses(ctx context.Context, tx *db.Tx, teamID, contactID string, a *responses) {
	tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at,
		clicked_at) SELECT c.id, c.team_id, 0, CAST($3 AS BIGINT), CAST($4 AS BIGINT), NULL, CAST($5 AS BIGINT),
		CAST($6 AS BIGINT) FROM contacts c WHERE c.id = $1 AND c.team_id = $2
		ON CONFLICT (contact_id) DO UPDATE SET opened = contact_engagement.opened + excluded.opened,
		clicked = contact_engagement.clicked + excluded.clicked,
		opened_at = CASE WHEN contact_engagement.opened_at > excluded.opened_at THEN contact_engagement.opened_at
			ELSE COALESCE(excluded.opened_at, contact_engagement.opened_at) END,
		clicked_at = CASE WHEN contact_engagement.clicked_at > excluded.clicked_at THEN contact_engagement.clicked_at
			ELSE COALESCE(excluded.clicked_at, contact_engagement.clicked_at) END`, db.ID(contactID), db.ID(teamID), a.opened,
		a.clicked, db.MicrosOrNull(a.openedAt), db.MicrosOrNull(a.clickedAt))
}
