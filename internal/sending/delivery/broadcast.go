package delivery

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Broadcasts decides about the emails of broadcasts before each attempt, so that one which is paused or canceled also
// stops what it has entered.
type Broadcasts interface {
	// CachedDecision answers at once. The answer may be some seconds old.
	CachedDecision(ctx context.Context, broadcastID string) (emails.Decision, error)
	// LockDecision answers exactly, and the answer holds until the transaction ends.
	LockDecision(ctx context.Context, tx *db.Tx, broadcastID string) (emails.Decision, error)
}

// broadcastAllows reports whether the broadcast of an email, if it has one, lets it be sent now. If not, the job waits for the
// broadcast to go on, or has ended with the email.
func (s *Service) broadcastAllows(ctx context.Context, t *try) (bool, error) {
	id := t.o.BroadcastID
	if id == "" {
		return true, nil
	}
	decision, err := s.p.Broadcasts.CachedDecision(ctx, id)
	if err != nil || decision == emails.Deliver {
		return err == nil, err
	}
	err = s.p.Queue.Record(ctx, func(tx *db.Tx) (err error) {
		decision, err = s.p.Broadcasts.LockDecision(ctx, tx, id)
		switch {
		case err != nil, decision == emails.Deliver:
			return err
		case decision == emails.Withhold:
			s.p.Queue.Hold(ctx, tx, t.job, id)
			return nil
		}
		s.p.Queue.Finish(ctx, tx, t.job)
		emails.MarkCanceled(ctx, tx, t.o.ID)
		return s.p.Recorder.Record(ctx, tx, append(t.skipped, t.event(events.EmailCanceled, "", nil))...)
	})
	return err == nil && decision == emails.Deliver, err
}
