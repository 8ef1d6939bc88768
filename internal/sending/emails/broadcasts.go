package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Decision says whether emails from a broadcast may be sent now. A decision also applies to retries of emails that have
// already been tried.
type Decision int

// The decisions.
const (
	Deliver  Decision = iota
	Withhold          // the emails wait
	Discard           // the emails are canceled
	Refuse            // the emails fail with [ReasonSuspended]

	// ChangeSender means that the broadcast's sender was changed after the email was enqueued; see
	// [Service.ChangeSender].
	ChangeSender
)

// RecordUnsubscribed records, in the caller's transaction, that a recipient used the unsubscribe link in an email. If
// the team has no email with this id, RecordUnsubscribed does nothing.
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
