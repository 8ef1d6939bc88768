package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

// messageKey returns the id in the columns for a message's id, which receivers see with a prefix and without hyphens.
// If the text is not such an id, messageKey returns "", which no row has.
func messageKey(messageID string) db.ID {
	return db.ID(id.Expand(strings.TrimPrefix(messageID, messagePrefix)))
}

func messageKeys(messageIDs []string) []db.ID {
	keys := make([]db.ID, len(messageIDs))
	for i, x := range messageIDs {
		keys[i] = messageKey(x)
	}
	return keys
}

// attemptKey is like messageKey, but for the id of an attempt.
func attemptKey(attemptID string) db.ID {
	return db.ID(id.Expand(strings.TrimPrefix(attemptID, attemptPrefix)))
}

func insertMessage(ctx context.Context, tx *db.Tx, m *entry) {
	tx.Queue(ctx, `INSERT INTO webhook_messages (id, team_id, type, payload, created_at) VALUES ($1, $2, $3, $4, $5)`,
		messageKey(m.ID), db.ID(m.TeamID), string(m.Type), m.Payload, m.at.UnixMicro())
}

// insertDelivery inserts a delivery in the state Pending, or in the state Failed without an attempt.
func insertDelivery(ctx context.Context, tx *db.Tx, endpointID string, m *entry, state State) {
	finished := int64(0)
	if state == Failed {
		finished = tx.Now().UnixMicro()
	}
	tx.Queue(ctx, `INSERT INTO webhook_deliveries (webhook_id, message_id, team_id, chain, status, tries, next_at,
		finished_at)
		VALUES ($1, $2, $3, $4, $5, 0, 0, $6)`, db.ID(endpointID), messageKey(m.ID), db.ID(m.TeamID), m.chain,
		string(state), finished)
}

func insertFanout(ctx context.Context, tx *db.Tx, m *entry) {
	tx.Queue(ctx, `INSERT INTO webhook_fanouts (team_id, chain, message_id, type, after, created_at)
		VALUES ($1, $2, $3, $4, $6, $5)`,
		db.ID(m.TeamID), m.chain, messageKey(m.ID), string(m.Type), m.at.UnixMicro(), db.NoID)
}

// getFanout returns the progress of a message's fan-out, or nil if the fan-out is complete.
func getFanout(ctx context.Context, r db.Reader, teamID, chain, messageID string) (*fanout, error) {
	f := fanout{entry: entry{ID: messageID, TeamID: teamID, chain: chain}}
	var kind string
	var at int64
	err := r.QueryRow(ctx, `SELECT type, after, created_at FROM webhook_fanouts WHERE team_id = $1 AND chain = $2
		AND message_id = $3`,
		db.ID(teamID), chain, messageKey(messageID)).Scan(&kind, (*db.ID)(&f.after), &at)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	f.Type, f.at = events.Type(kind), db.Time(at)
	return &f, err
}

// advanceFanout records the last endpoint for which the fan-out has inserted a delivery. The transaction fails if a
// concurrent attempt at the job has already advanced the fan-out.
func advanceFanout(ctx context.Context, tx *db.Tx, f *fanout, last string, j jobs.Job) {
	tx.QueueOne(ctx, fanoutLost(f, j),
		`UPDATE webhook_fanouts SET after = $5 WHERE team_id = $1 AND chain = $2 AND message_id = $3
		AND after = $4`, db.ID(f.TeamID), f.chain, messageKey(f.ID), db.OrNoID(f.after), db.ID(last))
}

func deleteFanout(ctx context.Context, tx *db.Tx, f *fanout, j jobs.Job) {
	tx.QueueOne(ctx, fanoutLost(f, j),
		`DELETE FROM webhook_fanouts WHERE team_id = $1 AND chain = $2 AND message_id = $3 AND after = $4`,
		db.ID(f.TeamID), f.chain, messageKey(f.ID), db.OrNoID(f.after))
}

func fanoutLost(f *fanout, j jobs.Job) error {
	return fmt.Errorf("insert deliveries of %s, attempt %d: %w", f.ID, j.Attempt, jobs.ErrLost)
}

// waiting is what a job needs to know before its first attempt.
type waiting struct {
	open []openMessage // the job's unfinished messages, in order

	// held is the time of the next attempt for an earlier message in the same chain. It is 0 if that attempt is in
	// progress or a fan-out has not yet reached the endpoint, and -1 if no earlier message is unfinished.
	held int64

	back time.Duration // over what time of earlier messages a second statement looked
}

// openMessages returns a job's unfinished messages. Go code, not SQL, checks whether a message is unfinished, because
// PostgreSQL would otherwise use the index on unfinished messages and scan a whole backlog.
//
// On PostgreSQL, the statement looks for earlier messages in the partitions of the last two days. A second statement
// looks further back if the chain may have begun before, but not before the endpoint's column open_since.
func openMessages(ctx context.Context, d *db.DB, teamID, endpointID string, ids []string) (w waiting, err error) {
	keys := messageKeys(ids)
	since := db.NoID
	if at, ok := id.Time(string(keys[0])); ok && !d.Alone() {
		since = db.ID(id.First(at.Add(-nearTime)))
	}
	rows, err := d.Query(ctx, `SELECT d.message_id, d.tries, d.status, d.chain, m.payload, COALESCE((SELECT MAX(o.next_at)
		FROM webhook_deliveries o
			WHERE o.webhook_id = d.webhook_id AND o.chain = d.chain AND o.message_id >= $5 AND o.message_id < $3
			AND o.status IN ('pending', 'attempting')),
			(SELECT 0 FROM webhook_fanouts f WHERE f.team_id = $2 AND f.chain = d.chain AND f.message_id < $3 AND f.after < $1
			LIMIT 1), -1), COALESCE((SELECT w.open_since FROM webhooks w WHERE w.id = $1 AND w.team_id = $2), $5)
		FROM webhook_deliveries d JOIN webhook_messages m ON m.id = d.message_id AND m.id = ANY($4)
		WHERE d.webhook_id = $1 AND d.team_id = $2 AND d.message_id = ANY($4) ORDER BY
		d.message_id`, db.ID(endpointID), db.ID(teamID), keys[0], keys, since)
	w.held = -1
	var chain string
	var bound db.ID
	all, err := db.Collect(rows, err, func(r db.Row) (m openMessage, err error) {
		var key db.ID
		var state string
		err = r.Scan(&key, &m.Tries, &state, &chain, &m.Payload, &w.held, &bound)
		m.ID = messageID(string(key))
		m.open = State(state).open()
		return m, err
	})
	if begin := max(beginOf(chain), bound); err == nil && w.held < 0 && len(all) > 0 && begin < since {
		w.held, err = heldBetween(ctx, d.Reader, teamID, endpointID, chain, begin, since)
		w.back = timeBetween(begin, since)
	}
	if err != nil {
		return w, fmt.Errorf("load messages of webhook %s: %w", endpointID, err)
	}
	w.open = slices.DeleteFunc(all, func(m openMessage) bool { return !m.open })
	return w, nil
}

const (
	nearTime   = 2 * 24 * time.Hour // how far back openMessages looks for earlier messages of a chain at first
	clockSlack = time.Hour          // by how much clocks may differ
)

// timeBetween returns the time between two ids. An id that is not of a time is from long ago.
func timeBetween(from, to db.ID) time.Duration {
	begin, _ := id.Time(string(from))
	end, _ := id.Time(string(to))
	return end.Sub(begin)
}

// beginOf returns an id that is lower than the ids of all messages in a chain. The messages of an email have ids of
// later times than the email.
func beginOf(chain string) db.ID {
	if !id.Valid(chain) {
		return db.NoID // the chain of an address
	}
	at, ok := id.Time(chain)
	if !ok {
		return db.NoID
	}
	return db.ID(id.First(at.Add(-clockSlack)))
}

// heldBetween returns the time of the next attempt for an unfinished message of a chain whose id is between two ids, or
// -1 if the chain has no such message.
func heldBetween(ctx context.Context, r db.Reader, teamID, endpointID, chain string, from, to db.ID) (held int64,
	err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(MAX(next_at), -1) FROM webhook_deliveries WHERE webhook_id = $1 AND team_id = $5
		AND chain = $2 AND message_id >= $3 AND message_id < $4 AND status IN ('pending', 'attempting')`, db.ID(endpointID),
		chain, from, to, db.ID(teamID)).Scan(&held)
	return held, err
}

// openAfter returns, in order, at most limit other unfinished messages in a delivery's chain.
func openAfter(ctx context.Context, tx *db.Tx, d *deliveryResult, chain string, limit int) ([]string, error) {
	from, err := openSince(ctx, tx.Reader, d.TeamID, d.EndpointID)
	if err != nil {
		return nil, fmt.Errorf("find messages that wait for %s: %w", d.MessageID, err)
	}
	rows, err := tx.Query(ctx, `SELECT message_id FROM webhook_deliveries WHERE webhook_id = $1 AND team_id = $2
		AND chain = $3 AND message_id >= $4 AND message_id < $5 AND message_id <> $6
		AND status IN ('pending', 'attempting') ORDER BY message_id LIMIT $7`, db.ID(d.EndpointID), db.ID(d.TeamID), chain,
		max(beginOf(chain), from), db.ID(id.First(tx.Now().Add(clockSlack))), messageKey(d.MessageID), limit)
	all, err := db.Collect(rows, err, func(r db.Row) (string, error) {
		var key db.ID
		err := r.Scan(&key)
		return messageID(string(key)), err
	})
	if err != nil {
		return nil, fmt.Errorf("find messages that wait for %s: %w", d.MessageID, err)
	}
	return all, nil
}

// deliveryResult is the state of a delivery after an attempt.
type deliveryResult struct {
	TeamID, EndpointID, MessageID string
	State                         State
	Tries                         int
	NextAt                        time.Time
}

// saveDelivery records the result of a scheduled attempt. If a replay has already succeeded, the delivery keeps the
// state Success. A delivery that failed meanwhile is not retried, because only [reopen] may make a finished delivery
// unfinished (see [raiseOpenSince]).
func saveDelivery(ctx context.Context, tx *db.Tx, d *deliveryResult) {
	finished := int64(0)
	if d.State == Success || d.State == Failed {
		finished = tx.Now().UnixMicro()
	}
	tx.Queue(ctx, `UPDATE webhook_deliveries SET status = $4, tries = $5, next_at = $6, finished_at = $7
		WHERE webhook_id = $1 AND message_id = $2 AND team_id = $3 AND status <> 'success'
		AND (status <> 'failed' OR $4 <> 'attempting')`,
		db.ID(d.EndpointID), messageKey(d.MessageID), db.ID(d.TeamID), string(d.State), d.Tries, db.Micros(d.NextAt),
		finished)
}

// lockDelivery locks a delivery until the end of the transaction, so that it is not deleted meanwhile, and returns its
// chain. The UPDATE changes no value. If the delivery was deleted, lockDelivery returns false.
func lockDelivery(ctx context.Context, tx *db.Tx, d *deliveryResult) (chain string, found bool, err error) {
	err = tx.QueryRow(ctx, `UPDATE webhook_deliveries SET status = status WHERE webhook_id = $1 AND message_id = $2
		AND team_id = $3 RETURNING chain`, db.ID(d.EndpointID), messageKey(d.MessageID), db.ID(d.TeamID)).Scan(&chain)
	if errors.Is(err, db.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("lock the delivery of %s: %w", d.MessageID, err)
	}
	return chain, true, nil
}

func markSuccess(ctx context.Context, tx *db.Tx, d *deliveryResult) {
	tx.Queue(ctx, `UPDATE webhook_deliveries SET status = 'success', next_at = 0, finished_at = $4
		WHERE webhook_id = $1 AND message_id = $2 AND team_id =
		$3`, db.ID(d.EndpointID), messageKey(d.MessageID), db.ID(d.TeamID), tx.Now().UnixMicro())
}

func failOpen(ctx context.Context, tx *db.Tx, teamID, endpointID string, ids []string) {
	tx.Queue(ctx, `UPDATE webhook_deliveries SET status = 'failed', next_at = 0, finished_at = $3
		WHERE webhook_id = $1 AND team_id = $2 AND message_id = ANY($4) AND status <> 'success' AND status <> 'failed'`,
		db.ID(endpointID), db.ID(teamID), tx.Now().UnixMicro(), messageKeys(ids))
}

func reopen(ctx context.Context, tx *db.Tx, teamID, endpointID, messageID string) {
	tx.Queue(ctx, `UPDATE webhook_deliveries SET status = 'pending', tries = 0, next_at = 0, finished_at = 0
		WHERE webhook_id = $1 AND message_id = $2 AND team_id = $3`, db.ID(endpointID), messageKey(messageID),
		db.ID(teamID))
}

// insertAttempt records an attempt for a delivery. The delivery must be open or locked, so that it is not deleted
// before the attempt is inserted.
func insertAttempt(ctx context.Context, tx *db.Tx, d *deliveryResult, a answer, reason string) {
	attemptID, endpointID, messageID := attemptKey(newAttemptID(tx.Now())), db.ID(d.EndpointID), messageKey(d.MessageID)
	tx.Proof(`SELECT 1 FROM webhook_attempts WHERE webhook_id = $1 AND message_id = $2 AND id = $3`, endpointID,
		messageID, attemptID)
	tx.Queue(ctx, `INSERT INTO webhook_attempts (webhook_id, message_id, id, team_id, status_code, response, error,
		started_at, duration)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, endpointID, messageID, attemptID, db.ID(d.TeamID), a.code, a.body,
		reason, a.at.UnixMicro(), a.took.Microseconds())
}

// trimAttempts deletes a message's oldest attempts, so that at most attemptsMax remain.
func trimAttempts(ctx context.Context, tx *db.Tx, d *deliveryResult) {
	tx.Queue(ctx, `DELETE FROM webhook_attempts WHERE webhook_id = $1 AND message_id = $2 AND team_id = $3 AND id <= (
		SELECT id FROM webhook_attempts WHERE webhook_id = $1 AND message_id = $2 ORDER BY id DESC LIMIT 1 OFFSET $4)`,
		db.ID(d.EndpointID), messageKey(d.MessageID), db.ID(d.TeamID), attemptsMax)
}

type failedMessage struct{ ID, chain string }

// failedMessages returns at most limit failed messages for a recovery, oldest first.
func failedMessages(ctx context.Context, r db.Reader, teamID string, x *recovery, limit int) ([]failedMessage, error) {
	rows, err := r.Query(ctx, `SELECT message_id, chain FROM webhook_deliveries
		WHERE webhook_id = $1 AND team_id = $2 AND status = 'failed' AND message_id > $3 AND message_id < $4
		ORDER BY message_id LIMIT $5`, db.ID(x.Endpoint), db.ID(teamID), db.ID(x.From), db.ID(x.To), limit)
	return db.Collect(rows, err, func(r db.Row) (m failedMessage, err error) {
		var key db.ID
		err = r.Scan(&key, &m.chain)
		m.ID = messageID(string(key))
		return m, err
	})
}

// listMessages reads the deliveries of a page and then their messages, so that both statements name a range of ids.
func listMessages(ctx context.Context, d *db.DB, teamID, endpointID string, state State,
	p page.Page) ([]Message, bool, error) {
	q := page.Select{Text: `SELECT d.message_id, d.status, d.next_at FROM webhook_deliveries d
		WHERE d.webhook_id = $1 AND d.team_id = $2`, ID: "d.message_id", InSpans: !d.Alone(),
		Args: []any{db.ID(endpointID), db.ID(teamID)}}
	p.After, p.Before = string(messageKey(p.After)), string(messageKey(p.Before))
	if state != "" {
		// Inserting the state into the SQL text is safe, because the state is one of four constants. With a literal
		// state, PostgreSQL can use the partial index on failed messages.
		q.Text += ` AND d.status = '` + string(state) + `'`
	}
	all, more, err := page.Query(ctx, d.Reader, q, p, func(r db.Row) (m Message, err error) {
		var key db.ID
		var state string
		var next int64
		err = r.Scan(&key, &state, &next)
		m.ID, m.State, m.NextAt = messageID(string(key)), State(state), db.Time(next)
		return m, err
	})
	for some := range slices.Chunk(all, readMessages) {
		if err == nil {
			err = describe(ctx, d.Reader, teamID, some)
		}
	}
	if err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(all, func(m Message) bool { return m.Type == "" }), more, nil
}

const readMessages = 1000 // maximum number of messages that one statement reads for a list

// describe sets the types and times of messages. A message that was deleted in the meantime gets none.
func describe(ctx context.Context, r db.Reader, teamID string, all []Message) error {
	keys, places := make([]db.ID, len(all)), map[db.ID]int{}
	for i := range all {
		keys[i] = messageKey(all[i].ID)
		places[keys[i]] = i
	}
	rows, err := r.Query(ctx, `SELECT id, type, created_at FROM webhook_messages WHERE id = ANY($1) AND team_id = $2`,
		keys, db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var key db.ID
		var kind string
		var created int64
		if err = r.Scan(&key, &kind, &created); err == nil {
			m := &all[places[key]]
			m.Type, m.CreatedAt = events.Type(kind), db.Time(created)
		}
		return none, err
	})
	if err != nil {
		return fmt.Errorf("read webhook events: %w", err)
	}
	return nil
}

func scanMessage(r db.Row, more ...any) (m Message, err error) {
	var key db.ID
	var kind, state string
	var created, next int64
	err = r.Scan(append([]any{&key, &kind, &created, &state, &next}, more...)...)
	m.ID, m.Type, m.State = messageID(string(key)), events.Type(kind), State(state)
	m.CreatedAt, m.NextAt = db.Time(created), db.Time(next)
	return m, err
}

func getMessage(ctx context.Context, r db.Reader, teamID, endpointID, messageID string) (Message, error) {
	var payload string
	m, err := scanMessage(r.QueryRow(ctx, `SELECT d.message_id, m.type, m.created_at, d.status, d.next_at, m.payload
		FROM webhook_deliveries d JOIN webhook_messages m ON m.id = d.message_id
		WHERE d.webhook_id = $1 AND d.message_id = $2 AND d.team_id = $3`, db.ID(endpointID), messageKey(messageID),
		db.ID(teamID)), &payload)
	if errors.Is(err, db.ErrNoRows) {
		return m, fault.NotFoundf("Webhook event not found")
	}
	if err != nil {
		return m, fmt.Errorf("read webhook event: %w", err)
	}
	m.Payload = payload
	return m, nil
}

func listAttempts(ctx context.Context, r db.Reader, teamID, endpointID, messageID string,
	p page.Page) ([]Attempt, bool, error) {
	p.After, p.Before = string(attemptKey(p.After)), string(attemptKey(p.Before))
	return page.Query(ctx, r, page.Select{
		Text: `SELECT id, status_code, response, error, started_at, duration FROM webhook_attempts
		WHERE webhook_id = $1 AND message_id = $2 AND team_id = $3`, ID: "id",
		Args: []any{db.ID(endpointID), messageKey(messageID), db.ID(teamID)}}, p,
		func(r db.Row) (a Attempt, err error) {
			var key db.ID
			var started, took int64
			err = r.Scan(&key, &a.Code, &a.Response, &a.Error, &started, &took)
			a.ID = attemptPrefix + id.Compact(string(key))
			a.StartedAt, a.Duration = db.Time(started), time.Duration(took)*time.Microsecond
			return a, err
		})
}
