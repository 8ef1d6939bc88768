package webhooks

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// EraseAddress replaces an address in the messages that contain it and in the stored responses to those messages.
// Messages that are delivered or replayed later contain the replacement and have a valid signature, because messages
// are signed when they are sent. EraseAddress deletes no messages, so that each message keeps its position in its
// chain.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		err := db.Walk(ctx, d.Reader, "webhook_messages WHERE team_id = $1", "id", []any{db.ID(teamID)},
			func(after, upTo db.ID) error {
				return eraseBetween(ctx, d, a, teamID, after, upTo, scope.DryRun, &found)
			})
		if err != nil {
			return found, fmt.Errorf("erase an address in the webhooks of team %s: %w", teamID, err)
		}
	}
	return found, nil
}

// eraseBetween erases an address in a team's messages whose ids are in a range.
func eraseBetween(ctx context.Context, d *db.DB, a erasure.Address, teamID string, after, upTo db.ID, dry bool,
	found *erasure.Report) error {
	some, err := messagesNaming(ctx, d.Reader, a, teamID, after, upTo)
	if err != nil || len(some) == 0 {
		return err
	}
	found.Add("webhook messages in which it was replaced", len(some))
	if dry {
		return nil
	}
	endpoints, err := endpointIDs(ctx, d.Reader, teamID)
	if err != nil {
		return err
	}
	for _, m := range some {
		if err := d.Update(ctx, func(tx *db.Tx) error { return replaceIn(ctx, tx, a, teamID, &m, endpoints) }); err != nil {
			return err
		}
	}
	return nil
}

// messageNaming is a message that contains the address.
type messageNaming struct {
	id      db.ID
	payload string
}

// messagesNaming returns a team's messages that contain an address and whose ids are in a range.
func messagesNaming(ctx context.Context, r db.Reader, a erasure.Address, teamID string, after,
	upTo db.ID) (some []messageNaming, err error) {
	rows, err := r.Query(ctx, `SELECT id, payload FROM webhook_messages WHERE team_id = $1 AND id > $2 AND id <= $3
		AND `+erasure.MayContain(4, "payload")+` ORDER BY id`, db.ID(teamID), after, upTo, a.Pattern())
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var m messageNaming
		if err = r.Scan(&m.id, &m.payload); err == nil && a.In(m.payload) {
			some = append(some, m)
		}
		return none, err
	})
	return some, err
}

// endpointIDs returns the ids of a team's endpoints, including deleted ones, in order.
func endpointIDs(ctx context.Context, r db.Reader, teamID string) ([]db.ID, error) {
	rows, err := r.Query(ctx, `SELECT id FROM webhooks WHERE team_id = $1 ORDER BY id`, db.ID(teamID))
	return db.Collect(rows, err, func(r db.Row) (id db.ID, err error) {
		err = r.Scan(&id)
		return id, err
	})
}

// replaceIn replaces an address in a message, in the responses to the message, and in the chain of its deliveries.
func replaceIn(ctx context.Context, tx *db.Tx, a erasure.Address, teamID string, m *messageNaming,
	endpoints []db.ID) error {
	rows, err := tx.Query(ctx, `SELECT webhook_id, id, response, error FROM webhook_attempts WHERE webhook_id = ANY($1)
		AND message_id = $2 AND team_id = $3`, endpoints, m.id, db.ID(teamID))
	type attempt struct {
		endpoint, id    db.ID
		response, error string
	}
	all, err := db.Collect(rows, err, func(r db.Row) (x attempt, err error) {
		err = r.Scan(&x.endpoint, &x.id, &x.response, &x.error)
		return x, err
	})
	if err != nil {
		return fmt.Errorf("read the responses to %s: %w", m.id, err)
	}
	for _, x := range all {
		if a.In(x.response) || a.In(x.error) {
			tx.Queue(ctx, `UPDATE webhook_attempts SET response = $4, error = $5 WHERE webhook_id = $1 AND message_id = $2 AND
				id = $3 AND team_id = $6`, x.endpoint, m.id, x.id, a.Replace(x.response), a.Replace(x.error), db.ID(teamID))
		}
	}
	tx.Queue(ctx, `UPDATE webhook_deliveries SET chain = $4 WHERE webhook_id = ANY($1) AND message_id = $2 AND chain =
		$3 AND team_id = $5`, endpoints, m.id, a.Key(), erasure.Placeholder, db.ID(teamID))
	tx.Queue(ctx, `UPDATE webhook_messages SET payload = $2 WHERE id = $1 AND team_id = $3`, m.id, a.Replace(m.payload),
		db.ID(teamID))
	return nil
}
