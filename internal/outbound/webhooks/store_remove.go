package webhooks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// storedDelivery is a delivery that may be deleted.
type storedDelivery struct {
	messageID db.ID
	open      bool
}

// deliveriesBetween returns a batch of an endpoint's deliveries of messages with ids in a range, oldest first.
func deliveriesBetween(ctx context.Context, r db.Reader, teamID string, endpointID, after, before db.ID) (
	[]storedDelivery, error) {
	rows, err := r.Query(ctx, `SELECT message_id, status FROM webhook_deliveries WHERE webhook_id = $1 AND team_id = $5
		AND message_id > $2 AND message_id < $3 ORDER BY message_id LIMIT $4`, endpointID, after, before, batch,
		db.ID(teamID))
	return db.Collect(rows, err, func(r db.Row) (d storedDelivery, err error) {
		var state string
		err = r.Scan(&d.messageID, &state)
		d.open = State(state).open()
		return d, err
	})
}

// deleteFinished deletes an endpoint's finished deliveries of some messages, with their attempts. The deliveries are
// deleted first, so that a transaction that adds an attempt ends before the attempts are deleted (see lockDelivery).
func deleteFinished(ctx context.Context, tx *db.Tx, teamID string, endpointID db.ID, messages []db.ID) {
	tx.Queue(ctx, `DELETE FROM webhook_deliveries WHERE webhook_id = $1 AND team_id = $2 AND message_id = ANY($3)
		AND (status = 'success' OR status = 'failed')`, endpointID, db.ID(teamID), messages)
	tx.Queue(ctx, `DELETE FROM webhook_attempts WHERE webhook_id = $1 AND team_id = $2 AND message_id = ANY($3)`,
		endpointID, db.ID(teamID), messages)
}

// messagesBetween returns the ids of a batch of a team's messages with ids in a range, oldest first.
func messagesBetween(ctx context.Context, r db.Reader, teamID string, after, before db.ID) ([]db.ID, error) {
	rows, err := r.Query(ctx, `SELECT id FROM webhook_messages WHERE team_id = $1 AND id > $2 AND id < $3 ORDER BY id
		LIMIT $4`, db.ID(teamID), after, before, batch)
	return db.Collect(rows, err, scanID)
}

// unneeded returns those messages that have neither a delivery to any of the team's endpoints nor a fan-out. It looks
// for fan-outs first, because a fan-out inserts deliveries before it ends.
func unneeded(ctx context.Context, r db.Reader, teamID string, endpoints, messages []db.ID) ([]db.ID, error) {
	rows, err := r.Query(ctx, `SELECT message_id FROM webhook_fanouts WHERE team_id = $1`, db.ID(teamID))
	needed, err := db.Collect(rows, err, scanID)
	if err != nil {
		return nil, err
	}
	rows, err = r.Query(ctx, `SELECT message_id FROM webhook_deliveries WHERE webhook_id = ANY($1)
		AND message_id = ANY($2) AND team_id = $3`, endpoints, messages, db.ID(teamID))
	delivered, err := db.Collect(rows, err, scanID)
	needed = append(needed, delivered...)
	return slices.DeleteFunc(messages, func(x db.ID) bool { return slices.Contains(needed, x) }), err
}

func deleteMessages(ctx context.Context, tx *db.Tx, teamID string, ids []db.ID) {
	tx.Queue(ctx, `DELETE FROM webhook_messages WHERE id = ANY($1) AND team_id = $2`, ids, db.ID(teamID))
}

func scanID(r db.Row) (id db.ID, err error) {
	err = r.Scan(&id)
	return id, err
}

// unsettledBetween returns the unfinished deliveries and the fan-outs of all teams for messages with ids in a range.
// The owner of a fan-out's message is its team, which has the id of no endpoint.
func unsettledBetween(ctx context.Context, r db.Reader, from, to string, limit int) ([]partitions.Kept, error) {
	rows, err := r.Query(ctx, `SELECT webhook_id, message_id FROM webhook_deliveries WHERE message_id >= $1
		AND message_id < $2 AND status IN ('pending', 'attempting')
		UNION ALL SELECT team_id, message_id FROM webhook_fanouts WHERE message_id >= $1 AND message_id < $2 LIMIT $3`,
		db.ID(from), db.ID(to), limit)
	return db.Collect(rows, err, func(r db.Row) (k partitions.Kept, err error) {
		err = r.Scan((*db.ID)(&k.Owner), (*db.ID)(&k.ID))
		return k, err
	})
}

// deletedEndpoints returns deleted endpoints of the teams of a part, in id order.
func deletedEndpoints(ctx context.Context, r db.Reader, p jobs.Part, after string, limit int) ([]Endpoint, error) {
	first, last := p.Range()
	rows, err := r.Query(ctx, `SELECT `+endpointColumns+` FROM webhooks WHERE status = 'deleted' AND id > $1
		AND EXISTS (SELECT 1 FROM teams t WHERE t.id = webhooks.team_id AND t.short_id > $2 AND t.short_id <= $3)
		ORDER BY id LIMIT $4`, db.OrNoID(after), first, last, limit)
	all, err := db.Collect(rows, err, scanEndpoint)
	if err != nil {
		return nil, fmt.Errorf("list webhooks to sweep: %w", err)
	}
	return all, nil
}

// sweepEndpoint deletes a batch of rows of a deleted endpoint, and returns the number of deleted rows. An endpoint that
// has no rows left is itself deleted after an hour, when no node inserts messages for it any more.
func sweepEndpoint(ctx context.Context, tx *db.Tx, e *Endpoint, limit int) (n int64, err error) {
	for _, table := range []string{"webhook_attempts", "webhook_deliveries"} {
		gone, err := tx.Exec(ctx, sweepOf(table), db.ID(e.ID), db.ID(e.TeamID), limit)
		if err != nil {
			return 0, err
		}
		n += gone
	}
	if n == 0 {
		tx.Queue(ctx, `DELETE FROM webhooks WHERE id = $1 AND team_id = $2 AND status = 'deleted' AND disabled_at < $3`,
			db.ID(e.ID), db.ID(e.TeamID), tx.Now().Add(-time.Hour).UnixMicro())
	}
	return n, nil
}

// sweepOf returns the SQL statement that deletes rows for an endpoint's oldest messages. The statement selects rows by
// a range of message ids, so it reads only the rows that it deletes.
func sweepOf(table string) string {
	return `DELETE FROM ` + table +
		` WHERE webhook_id = $1 AND team_id = $2 AND message_id <= (SELECT message_id FROM (
		SELECT message_id FROM ` + table + ` WHERE webhook_id = $1 ORDER BY message_id LIMIT $3) x
		ORDER BY message_id DESC LIMIT 1)`
}
