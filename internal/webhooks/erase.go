package webhooks

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/erasure"
)

// EraseAddress replaces an address in the messages that contain it and in the answers to them. A message that is still
// to be delivered, or is replayed, is delivered with the replacement: it is signed when it is sent. No message is
// deleted, so that each keeps its place in its chain.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	err = db.Walk(ctx, d.Reader, "webhook_messages WHERE TRUE", "id", nil, func(after, upTo string) error {
		some, err := messagesNaming(ctx, d.Reader, a, &scope, after, upTo)
		if err != nil {
			return err
		}
		for _, m := range some {
			found.Add("webhook messages in which it was replaced", 1)
			if scope.DryRun {
				continue
			}
			endpoints, err := endpointIDs(ctx, d.Reader, m.teamID)
			if err != nil {
				return err
			}
			err = d.Update(ctx, func(tx *db.Tx) error { return replaceIn(ctx, tx, a, &m, endpoints) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("erase an address in webhooks: %w", err)
	}
	return found, nil
}

// naming is a message that contains an address.
type naming struct{ id, teamID, payload string }

// messagesNaming returns the messages of a scope between two ids that contain an address.
func messagesNaming(ctx context.Context, r db.Reader, a erasure.Address, scope *erasure.Scope, after, upTo string) (
	some []naming, err error) {
	text, args := `SELECT id, team_id, payload FROM webhook_messages WHERE id > $1 AND id <= $2
		AND LOWER(payload) LIKE $3 ESCAPE '\'`, []any{after, upTo, a.Pattern()}
	if !scope.All { // Payloads of other teams need not be read.
		text, args = text+` AND team_id = ANY($4)`, append(args, scope.Teams)
	}
	rows, err := r.Query(ctx, text+` ORDER BY id`, args...)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var m naming
		if err = r.Scan(&m.id, &m.teamID, &m.payload); err == nil && a.In(m.payload) {
			some = append(some, m)
		}
		return none, err
	})
	return some, err
}

// endpointIDs returns the ids of a team's endpoints, including deleted ones.
func endpointIDs(ctx context.Context, r db.Reader, teamID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM webhooks WHERE team_id = $1`, teamID)
	return db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
}

// replaceIn replaces an address in a message, in the answers to it, and in the chain of its deliveries.
func replaceIn(ctx context.Context, tx *db.Tx, a erasure.Address, m *naming, endpoints []string) error {
	rows, err := tx.Query(ctx, `SELECT webhook_id, id, response, error FROM webhook_attempts WHERE webhook_id = ANY($1)
		AND message_id = $2`,
		endpoints, m.id)
	all, err := db.Collect(rows, err, func(r db.Row) (x [4]string, err error) {
		err = r.Scan(&x[0], &x[1], &x[2], &x[3])
		return x, err
	})
	if err != nil {
		return fmt.Errorf("read what endpoints answered to %s: %w", m.id, err)
	}
	for _, x := range all {
		if a.In(x[2]) || a.In(x[3]) {
			tx.Queue(ctx, `UPDATE webhook_attempts SET response = $4, error = $5 WHERE webhook_id = $1 AND message_id = $2 AND
				id = $3`,
				x[0], m.id, x[1], a.Replace(x[2]), a.Replace(x[3]))
		}
	}
	tx.Queue(ctx, `UPDATE webhook_deliveries SET chain = $4 WHERE webhook_id = ANY($1) AND message_id = $2 AND chain =
		$3`, endpoints, m.id,
		a.Key(), erasure.Placeholder)
	tx.Queue(ctx, `UPDATE webhook_messages SET payload = $2 WHERE id = $1`, m.id, a.Replace(m.payload))
	return nil
}
