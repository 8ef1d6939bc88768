package webhooks

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// openSince returns the column of an endpoint. It is "" if the column holds [db.NoID].
func openSince(ctx context.Context, r db.Reader, teamID, endpointID string) (since db.ID, err error) {
	err = r.QueryRow(ctx, `SELECT open_since FROM webhooks WHERE id = $1 AND team_id = $2`, db.ID(endpointID),
		db.ID(teamID)).Scan(&since)
	return since, err
}

// raiseOpenSince sets open_since to an id of the given time, or to that of the first message before that time whose
// fan-out has not ended, or that is not finished at the endpoint. The caller has locked the endpoint. The fan-outs are
// read first, because a fan-out inserts deliveries before it ends.
//
// COALESCE keeps the database from reading finished deliveries by the primary key, in order of their messages.
func raiseOpenSince(ctx context.Context, tx *db.Tx, teamID, endpointID string, to time.Time) error {
	from, err := openSince(ctx, tx.Reader, teamID, endpointID)
	if err != nil {
		return err
	}
	bound := db.ID(id.First(to))
	for _, text := range []string{
		`SELECT message_id FROM webhook_fanouts WHERE team_id = $2 AND message_id >= $3 AND message_id < $4 AND after < $1
			ORDER BY message_id LIMIT 1`,
		`SELECT message_id FROM webhook_deliveries WHERE webhook_id = $1 AND team_id = $2 AND message_id >= $3
			AND message_id < $4 AND status IN ('pending', 'attempting') ORDER BY COALESCE(message_id, message_id) LIMIT 1`,
	} {
		rows, err := tx.Query(ctx, text, db.ID(endpointID), db.ID(teamID), db.OrNoID(string(from)), bound)
		first, err := db.Collect(rows, err, scanID)
		if err != nil {
			return err
		}
		if len(first) > 0 {
			bound = first[0]
		}
	}
	tx.Queue(ctx, `UPDATE webhooks SET open_since = $3 WHERE id = $1 AND team_id = $2 AND open_since < $3`,
		db.ID(endpointID), db.ID(teamID), bound)
	return nil
}

// lowerOpenSince makes open_since not greater than the id of a message that is reopened. The caller has locked the
// endpoint.
func lowerOpenSince(ctx context.Context, tx *db.Tx, teamID, endpointID, messageID string) {
	tx.Queue(ctx, `UPDATE webhooks SET open_since = $3 WHERE id = $1 AND team_id = $2 AND open_since > $3`,
		db.ID(endpointID), db.ID(teamID), messageKey(messageID))
}
