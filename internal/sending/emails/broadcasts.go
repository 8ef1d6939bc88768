package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Decision is what becomes of those emails of a broadcast that no host was given yet, and of the later attempts for the
// others.
type Decision int

// The decisions.
const (
	Deliver  Decision = iota
	Withhold          // they wait
	Discard           // they end as canceled
)

// MarkCanceled ends an email as canceled, in the transaction that ends its delivery job, unless it has ended already.
// The caller records the event.
func MarkCanceled(ctx context.Context, tx *db.Tx, emailID string) {
	tx.Queue(ctx, `UPDATE emails SET last_event = $2, rank = $3 WHERE id = $1 AND rank < $4`, emailID, string(Canceled),
		rank[Canceled], settled)
}

// RecordUnsubscribed records, in the caller's transaction, that a recipient left by the link of an email. It does
// nothing if the email was deleted, or is not one of the team's.
func (s *Service) RecordUnsubscribed(ctx context.Context, tx *db.Tx, teamID, emailID, address string) error {
	e := events.Event{TeamID: teamID, EmailID: emailID, Type: events.EmailUnsubscribed}
	rows, err := tx.Query(ctx, `SELECT e.domain_id, e.broadcast_id, r.address FROM emails e JOIN email_recipients r
		ON r.email_id = e.id WHERE e.id = $1 AND e.team_id = $2 ORDER BY r.position`, emailID, teamID)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var to string
		if err = r.Scan(&e.DomainID, &e.BroadcastID, &to); err != nil || e.Recipient != "" {
			return none, err
		}
		if a, err := message.ParseAddress(to); err == nil && a.Key() == address {
			e.Recipient = to
		}
		return none, nil
	})
	if err != nil {
		return fmt.Errorf("look up the email by whose link somebody left: %w", err)
	}
	if e.Recipient == "" {
		return nil
	}
	return s.recorder.Record(ctx, tx, e)
}
