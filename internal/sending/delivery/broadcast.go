package delivery

import (
	"context"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Broadcasts decides, before each attempt, whether a broadcast email may be sent. If a broadcast is paused or canceled,
// its queued emails are not sent.
type Broadcasts interface {
	// CachedDecision may return a decision from the cache, which may be a few seconds old.
	CachedDecision(ctx context.Context, teamID, broadcastID, contentID string) (emails.Decision, error)
	// LockDecision returns the current decision and locks it until the transaction ends.
	LockDecision(ctx context.Context, tx *db.Tx, teamID, broadcastID string) (emails.Decision, error)
	// PauseForDomain pauses a broadcast that is being sent, if one of its senders' domains may not send.
	PauseForDomain(ctx context.Context, teamID, broadcastID string) error
	// CurrentContent returns the id of the content that has the current sender of a contact's email, or "" if it is not
	// known.
	CurrentContent(ctx context.Context, teamID, broadcastID, contactID string) (contentID string, err error)
}

// broadcastAllows reports whether an email may be sent now; emails that do not belong to a broadcast are always
// allowed. If the broadcast is paused, broadcastAllows holds the job until the broadcast resumes. If the broadcast is
// canceled, broadcastAllows ends the job and cancels the email. If the broadcast has ended and its team is suspended,
// the email fails. If the broadcast's sender was changed, broadcastAllows changes the email's sender and makes the job
// due again.
func (s *Service) broadcastAllows(ctx context.Context, t *try) (bool, error) {
	id := t.o.BroadcastID
	if id == "" {
		return true, nil
	}
	decision, err := s.p.Broadcasts.CachedDecision(ctx, t.o.TeamID, id, t.o.ContentID)
	switch {
	case err != nil || decision == emails.Deliver:
		return err == nil, err
	case decision == emails.Refuse:
		return false, s.fail(ctx, t, emails.ReasonSuspended)
	case decision == emails.ChangeSender:
		done, err := s.changeSender(ctx, t)
		return !done && err == nil, err
	}
	return s.applyDecision(ctx, t)
}

// changeSender gives a broadcast's email the broadcast's current sender, and then makes its job due again. It returns
// false if the email has the current sender, or if that sender is no longer known.
func (s *Service) changeSender(ctx context.Context, t *try) (done bool, err error) {
	contentID, err := s.p.Broadcasts.CurrentContent(ctx, t.o.TeamID, t.o.BroadcastID, t.o.ContactID)
	if err != nil || contentID == "" || contentID == t.o.ContentID {
		return false, err
	}
	err = s.p.Emails.ChangeSender(ctx, t.job, t.o, contentID)
	switch fault.KindOf(err) {
	case fault.NotFound: // the broadcast has ended, and no other email has this content
		return false, nil
	case fault.Invalid:
		s.p.Log.Warn("an email whose broadcast has a new sender fails", "email", t.o.ID, "team", t.o.TeamID, "error", err)
		err = s.fail(ctx, t, reasonInvalid)
	}
	return err == nil, err
}

// applyDecision is like broadcastAllows, but reads the current decision about the email's broadcast.
func (s *Service) applyDecision(ctx context.Context, t *try) (bool, error) {
	id, decision := t.o.BroadcastID, emails.Deliver
	err := s.p.Queue.Record(ctx, func(tx *db.Tx) (err error) {
		decision, err = s.p.Broadcasts.LockDecision(ctx, tx, t.o.TeamID, id)
		switch {
		case err != nil, decision == emails.Deliver:
			return err
		case decision == emails.Withhold:
			s.p.Queue.Hold(ctx, tx, t.job, id)
			return nil
		}
		s.p.Queue.Finish(ctx, tx, t.job)
		emails.MarkCanceled(ctx, tx, t.o.TeamID, t.o.ID)
		return s.p.Recorder.Record(ctx, tx, append(t.skipped, t.event(events.EmailCanceled, "", nil))...)
	})
	return err == nil && decision == emails.Deliver, err
}
