package delivery

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Broadcasts decides, before each attempt, whether a broadcast email may be sent. If a broadcast is paused or canceled,
// its queued emails are not sent.
type Broadcasts interface {
	// CachedDecision may return a decision from the cache, which may be a few seconds old.
	CachedDecision(ctx context.Context, broadcastID string) (emails.Decision, error)
	// LockDecision returns the current decision and locks it until the transaction ends.
	LockDecision(ctx context.Context, tx *db.Tx, broadcastID string) (emails.Decision, error)
	// PauseForDomain pauses a broadcast that is being sent, if one of its senders' domains may not send.
	PauseForDomain(ctx context.Context, teamID, broadcastID string) error
}

// broadcastAllows reports whether an email may be sent now; emails that do not belong to a broadcast are always
// allowed. If the broadcast is paused, broadcastAllows holds the job until the broadcast resumes. If the broadcast is
// canceled, broadcastAllows ends the job and cancels the email.
func (s *Service) broadcastAllows(ctx context.Context, t *try) (bool, error) {
	id := t.o.BroadcastID
	if id == "" {
		return true, nil
	}
	decision, err := s.p.Broadcasts.CachedDecision(ctx, id)
	if err != nil || decision == emails.Deliver {
		return err == nil, err
	}
	return s.applyDecision(ctx, t)
}

// applyDecision is like broadcastAllows, but reads the current decision about the email's broadcast.
func (s *Service) applyDecision(ctx context.Context, t *try) (bool, error) {
	id, decision := t.o.BroadcastID, emails.Deliver
	err := s.p.Queue.Record(ctx, func(tx *db.Tx) (err error) {
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
