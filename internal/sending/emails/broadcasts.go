package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Decision says how delivery treats the emails of a broadcast that have not been handed to a host, and later attempts
// of the others.
type Decision int

// The decisions.
const (
	Deliver  Decision = iota
	Withhold          // the emails wait
	Discard           // the emails end as canceled
)

// RecordUnsubscribed records, in the caller's transaction, that a recipient unsubscribed by the link of an email. It
// does nothing if the team has no such email.
func (s *Service) RecordUnsubscribed(ctx context.Context, tx *db.Tx, teamID, emailID, address string) error {
	e := events.Event{TeamID: teamID, EmailID: emailID, Type: events.EmailUnsubscribed}
	if err := setUnsubscribedRecipient(ctx, tx, &e, address); err != nil {
		return fmt.Errorf("look up the email whose unsubscribe link was used: %w", err)
	}
	if e.Recipient == "" {
		return nil
	}
	return s.Recorder.Record(ctx, tx, e)
}
