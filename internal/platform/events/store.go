package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// eventColumns and attemptColumns are the columns of email_events. Only events with an attempt have values in the
// latter.
const (
	eventColumns = `id, team_id, email_id, domain_id, broadcast_id, type, detail, recipient, data, created_at`
	// Long texts come last, because most statements do not read them.
	attemptColumns = `started_at, duration, next_at, outcome, destination, recipients, host, tls, reply, conversation,
		evidence`
)

var insertEvent = db.InsertStatement(`email_events (`+eventColumns+`, `+attemptColumns+`)`,
	`$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21`,
	`UUID UUID UUID UUID UUID SMALLINT TEXT TEXT TEXT BIGINT BIGINT BIGINT BIGINT SMALLINT TEXT TEXT TEXT TEXT TEXT `+
		`TEXT BYTEA`)

const attemptValues = 11 // number of attemptColumns

// insert writes the events that belong to a timeline.
func insert(ctx context.Context, tx *db.Tx, all []Event) error {
	for i := range all {
		e := &all[i]
		if e.EmailID == "" || e.isFirst() {
			continue
		}
		data, err := e.encoded()
		if err != nil {
			return err
		}
		number, err := Types.Find(e.Type)
		if err != nil {
			return fmt.Errorf("record an event: %w", err)
		}
		row := []any{db.ID(e.ID), db.ID(e.TeamID), db.ID(e.EmailID), db.ID(e.DomainID), db.ID(e.BroadcastID), number,
			e.Detail(), e.Recipient, data, e.At.UnixMicro()}
		attempt := make([]any, attemptValues) // NULL
		if e.Attempt != nil {
			if attempt, err = e.Attempt.values(e.Recipient); err != nil {
				return err
			}
		}
		row = append(row, attempt...)
		tx.Proof(`SELECT 1 FROM email_events WHERE id = $1 AND email_id = $2`, row[0], row[2])
		tx.QueueRow(ctx, insertEvent, row...)
	}
	return nil
}

// values returns the values of attemptColumns for an event with the given recipient.
func (a *Attempt) values(recipient string) ([]any, error) {
	outcome, err := outcomes.Find(a.Outcome)
	if err != nil {
		return nil, fmt.Errorf("record an attempt: %w", err)
	}
	var next, destination, recipients, evidence any // NULL
	if len(a.Evidence) > 0 {
		evidence = a.Evidence
	}
	if !a.NextAt.IsZero() {
		next = a.NextAt.UnixMicro()
	}
	if a.Destination != domainOf(recipient) {
		destination = a.Destination
	}
	if len(a.Recipients) != 1 || a.Recipients[0] != recipient {
		list, err := json.Marshal(a.Recipients)
		if err != nil {
			return nil, fmt.Errorf("encode the recipients of an attempt: %w", err)
		}
		recipients = string(list)
	}
	return []any{a.StartedAt.UnixMicro(), a.Duration.Microseconds(), next, outcome, destination, recipients, a.Host,
		a.TLS, a.Reply, a.Conversation, evidence}, nil
}

// domainOf returns the domain of an envelope address.
func domainOf(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// StoredAttempt is an attempt with the id of the event that it caused.
type StoredAttempt struct {
	ID string
	Attempt
}

// Attempts returns a page of the attempts to deliver an email, oldest first, and reports whether more attempts follow.
func Attempts(ctx context.Context, r db.Reader, teamID, emailID string, p page.Page) ([]StoredAttempt, bool, error) {
	return page.Query(ctx, r,
		page.Select{Text: `SELECT id, recipient, started_at, duration, COALESCE(next_at, 0), outcome,
		destination IS NULL, COALESCE(destination, ''), COALESCE(recipients, ''), host, tls, reply, conversation,
		evidence FROM email_events WHERE email_id = $1 AND COALESCE(team_id, team_id) = $2 AND outcome IS NOT NULL`, ID: "id",
			Args: []any{db.ID(emailID), db.ID(teamID)}, OldestFirst: true}, p, scanAttempt)
}

func scanAttempt(r db.Row) (a StoredAttempt, err error) {
	var recipient, recipients string
	var started, duration, next int64
	var outcome int16
	var ofRecipient bool
	if err := r.Scan((*db.ID)(&a.ID), &recipient, &started, &duration, &next, &outcome, &ofRecipient, &a.Destination,
		&recipients, &a.Host, &a.TLS, &a.Reply, &a.Conversation, &a.Evidence); err != nil {
		return a, err
	}
	if a.Outcome, err = outcomes.Name(outcome); err != nil {
		a.Outcome = "unknown" // this release does not know an outcome that a newer one has written
	}
	a.StartedAt, a.NextAt = db.Time(started), db.Time(next)
	a.Duration = time.Duration(duration) * time.Microsecond
	if ofRecipient {
		a.Destination = domainOf(recipient)
	}
	a.Recipients, err = decodeRecipients(recipients, recipient)
	return a, err
}

// decodeRecipients returns the recipients of an attempt from the columns recipients and recipient of its event.
func decodeRecipients(recipients, recipient string) ([]string, error) {
	if recipients == "" {
		return []string{recipient}, nil
	}
	return db.DecodeList[string](recipients)
}

// AttemptRecipients returns the recipients of each of an email's attempts at a destination that have the given outcome,
// latest first, at most limit attempts.
func AttemptRecipients(ctx context.Context, r db.Reader, teamID, emailID, destination, outcome string,
	limit int) ([][]string, error) {
	rows, err := r.Query(ctx, `SELECT recipient, COALESCE(destination, ''), COALESCE(recipients, '') FROM email_events
		WHERE email_id = $1 AND COALESCE(team_id, team_id) = $2 AND outcome = $3
		AND (destination IS NULL OR destination = $4)
		ORDER BY id DESC LIMIT $5`, db.ID(emailID), db.ID(teamID), outcomes.Number(outcome), destination,
		limit)
	all, err := db.Collect(rows, err, func(r db.Row) (to []string, err error) {
		var recipient, at, recipients string
		if err := r.Scan(&recipient, &at, &recipients); err != nil || at == "" && domainOf(recipient) != destination {
			return nil, err
		}
		return decodeRecipients(recipients, recipient)
	})
	return slices.DeleteFunc(all, func(to []string) bool { return to == nil }), err
}

// Entry is an event in an email's timeline.
type Entry struct {
	ID        string
	Type      string // without the prefix "email."
	Recipient string
	Data      string // event data as JSON; empty if there is none
	At        time.Time
}

// timelineMax is the maximum number of entries that Timeline returns if the caller sets no limit. An email can have
// many opens and clicks.
const timelineMax = 1000

// Timeline returns a page of an email's events in the order in which they were recorded, and reports whether more
// events follow. Without a limit, a page has at most 1,000 events. The first event of an email that was not scheduled
// has no row. Timeline leaves it out if it finds no other event of an email that has left the queue, because the
// timeline was deleted then.
func Timeline(ctx context.Context, r db.Reader, teamID, emailID string, p page.Page) ([]Entry, bool, error) {
	if p.Limit <= 0 {
		p.Limit = timelineMax
	}
	queued := Types.SQL(EmailQueued)
	// SQLite reads a page of both parts by their keys only if their columns have the same types, and if no other index
	// matches the team.
	return page.Query(ctx, r, page.Select{Text: `SELECT v.id, v.type, v.recipient, v.data, v.created_at FROM
		(SELECT id, type, recipient, data, created_at FROM email_events WHERE email_id = $1
		AND COALESCE(team_id, team_id) = $2
		UNION ALL SELECT e.id, CAST(` + queued + ` AS SMALLINT), CAST('' AS TEXT), CAST('' AS TEXT), e.created_at
		FROM emails e WHERE e.id = $1 AND e.team_id = $2
		AND e.scheduled_at IS NULL AND (e.last_event = ` + queued + `
			OR EXISTS (SELECT 1 FROM email_events x WHERE x.email_id = $1))) v
		WHERE TRUE`, ID: "v.id", Args: []any{db.ID(emailID), db.ID(teamID)}, OldestFirst: true}, p,
		func(r db.Row) (e Entry, err error) {
			var at int64
			var number int16
			if err := r.Scan((*db.ID)(&e.ID), &number, &e.Recipient, &e.Data, &at); err != nil {
				return e, err
			}
			e.At = db.Time(at)
			e.Type = ReadType(number)
			return e, nil
		})
}
