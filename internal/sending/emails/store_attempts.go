package emails

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// RecordAttempt inserts an attempt. RecordAttempt must be called in the same transaction that records the outcome of
// the attempt.
func RecordAttempt(ctx context.Context, tx *db.Tx, a Attempt) error {
	to, err := json.Marshal(a.Recipients)
	if err != nil {
		return fmt.Errorf("encode recipients: %w", err)
	}
	attemptID := id.At(tx.Now())
	tx.Proof(`SELECT 1 FROM email_attempts WHERE id = $1 AND email_id = $2`, attemptID, a.EmailID)
	tx.Queue(ctx, `INSERT INTO email_attempts (id, team_id, email_id, destination, recipients, host, tls, outcome, reply,
		conversation, started_at, duration, next_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		attemptID, a.TeamID, a.EmailID, a.Destination, string(to), a.Host, a.TLS, a.Outcome, a.Reply, a.Conversation,
		a.StartedAt.UnixMicro(), a.Duration.Microseconds(), db.Micros(a.NextAt))
	return nil
}

// attemptsMax is the maximum number of attempts read for one email if the caller specifies no limit. A job has at most
// a few dozen attempts, but an email with many recipients has many jobs.
const attemptsMax = 500

func listAttempts(ctx context.Context, r db.Reader, teamID, emailID string, p page.Page) ([]Attempt, bool, error) {
	if p.Limit <= 0 {
		p.Limit = attemptsMax
	}
	return page.Query(ctx, r, page.Select{Text: `SELECT id, team_id, email_id, destination, recipients, host, tls,
		outcome, reply, conversation, started_at, duration, next_at FROM email_attempts
		WHERE email_id = $1 AND team_id = $2`, ID: "id", Args: []any{emailID, teamID}, OldestFirst: true}, p, scanAttempt)
}

func scanAttempt(r db.Row) (a Attempt, err error) {
	var to string
	var started, duration, next int64
	if err := r.Scan(&a.ID, &a.TeamID, &a.EmailID, &a.Destination, &to, &a.Host, &a.TLS, &a.Outcome, &a.Reply,
		&a.Conversation, &started, &duration, &next); err != nil {
		return a, err
	}
	a.StartedAt, a.Duration, a.NextAt = db.Time(started), microseconds(duration), db.Time(next)
	a.Recipients, err = db.DecodeList[string](to)
	return a, err
}

// OutcomeUnknown is the outcome of an attempt in which the host did not say whether it accepted the message.
const OutcomeUnknown = "unknown"

// UnknownAttempts counts the attempts to deliver an email to a destination that have the outcome OutcomeUnknown. If
// addresses are given, UnknownAttempts counts only attempts that had one of these addresses as a recipient.
func UnknownAttempts(ctx context.Context, r db.Reader, teamID, emailID, destination string, to ...string,
) (n int, err error) {
	rows, err := r.Query(ctx, `SELECT recipients FROM email_attempts WHERE email_id = $1 AND team_id = $2
		AND destination = $3 AND outcome = $4 ORDER BY id DESC LIMIT $5`, emailID, teamID, destination, OutcomeUnknown,
		attemptsMax)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var text string
		if err := r.Scan(&text); err != nil {
			return none, err
		}
		had, err := db.DecodeList[string](text)
		if len(to) == 0 || slices.ContainsFunc(had, func(a string) bool { return slices.Contains(to, a) }) {
			n++
		}
		return none, err
	})
	if err != nil {
		return 0, fmt.Errorf("count attempts of email %s: %w", emailID, err)
	}
	return n, nil
}
