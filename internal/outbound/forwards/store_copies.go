package forwards

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// insertCopy records that an email is a copy of a received one.
func insertCopy(ctx context.Context, tx *db.Tx, teamID string, c forwardedCopy) {
	tx.Queue(ctx, `INSERT INTO forwarded_copies (team_id, received_id, email_id) VALUES ($1, $2, $3)`, db.ID(teamID),
		db.ID(c.receivedID), db.ID(c.emailID))
}

// copiesBetween returns a batch of a team's copies that follow a copy, of received emails with ids below before.
func copiesBetween(ctx context.Context, r db.Reader, teamID string, after forwardedCopy, before string) (
	[]forwardedCopy, error) {
	rows, err := r.Query(ctx, `SELECT received_id, email_id FROM forwarded_copies WHERE team_id = $1
		AND (received_id, email_id) > ($2, $3) AND received_id < $4 ORDER BY received_id, email_id LIMIT $5`, db.ID(teamID),
		db.OrNoID(after.receivedID), db.OrNoID(after.emailID), db.ID(before), copiesPerStep)
	all, err := db.Collect(rows, err, func(r db.Row) (c forwardedCopy, err error) {
		err = r.Scan((*db.ID)(&c.receivedID), (*db.ID)(&c.emailID))
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list old forwarded emails: %w", err)
	}
	return all, nil
}

// deleteCopies deletes the rows of those copies whose email is in a list.
func deleteCopies(ctx context.Context, tx *db.Tx, teamID string, all []forwardedCopy, emailIDs []string) {
	for _, c := range all {
		if slices.Contains(emailIDs, c.emailID) {
			tx.Queue(ctx, `DELETE FROM forwarded_copies WHERE team_id = $1 AND received_id = $2 AND email_id = $3`,
				db.ID(teamID), db.ID(c.receivedID), db.ID(c.emailID))
		}
	}
}

// deleteSomeCopies deletes a batch of a team's rows.
func deleteSomeCopies(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM forwarded_copies WHERE team_id = $1 AND received_id <= (SELECT received_id FROM
		(SELECT received_id FROM forwarded_copies WHERE team_id = $1 ORDER BY received_id LIMIT $2) x
		ORDER BY received_id DESC LIMIT 1)`, db.ID(teamID),
		eraseRows)
}
