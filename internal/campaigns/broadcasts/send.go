package broadcasts

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Kind is the kind of job that sends broadcasts. Lanes are teams.
const Kind = "broadcast"

// releaseKind is the kind of job that releases the withheld emails of a broadcast.
const releaseKind = "broadcast.release"

// sendJob returns the job that sends a broadcast at the given time. The zero time means now.
func sendJob(b *Broadcast, at time.Time) jobs.New {
	return jobs.New{Kind: Kind, Lane: b.TeamID, TeamID: b.TeamID, Dedupe: b.ID, Payload: b.ID, RunAt: at}
}

// wake makes a broadcast's job due now, or enqueues a job if there is none. The caller must have locked the broadcast,
// so that a worker that is already processing the job sees the change.
func (s *Service) wake(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	moved, err := s.p.Queue.Move(ctx, tx, Kind, b.TeamID, b.TeamID, b.ID, tx.Now())
	if err != nil {
		return fmt.Errorf("wake the job of broadcast %s: %w", b.ID, err)
	}
	if !moved {
		s.p.Queue.Insert(ctx, tx, sendJob(b, time.Time{}))
	}
	return nil
}

// Send sends a draft immediately or at a scheduled time (API reference section 8.5). If two requests send the same
// draft, one of them fails.
func (s *Service) Send(ctx context.Context, by teams.Actor, broadcastID, when string) (Broadcast, error) {
	b, err := s.Get(ctx, by.TeamID, broadcastID)
	if err != nil {
		return b, err
	}
	if err := b.requireStatus("sent", Draft); err != nil {
		return b, err
	}
	at, err := s.checkSend(ctx, by, &b, when)
	if err != nil {
		return b, err
	}
	sent := b
	err = s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if err := s.lockSender(ctx, tx, by); err != nil {
			return err
		}
		if sent, err = s.lockUnchanged(ctx, tx, b, "sent", Draft); err != nil {
			return err
		}
		s.schedule(ctx, tx, &sent, by, at)
		save(ctx, tx, &sent)
		return nil
	})
	return sent, err
}

// CreateAndSend creates a broadcast and sends it immediately or at a scheduled time. If the broadcast cannot be sent,
// it is not created.
func (s *Service) CreateAndSend(ctx context.Context, by teams.Actor, n NewBroadcast, when string) (Broadcast, error) {
	b, err := s.newDraft(ctx, by.TeamID, n)
	if err != nil {
		return b, err
	}
	at, err := s.checkSend(ctx, by, &b, when)
	if err != nil {
		return b, err
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.lockSender(ctx, tx, by); err != nil {
			return err
		}
		if err := s.add(ctx, tx, &b); err != nil {
			return err
		}
		s.schedule(ctx, tx, &b, by, at)
		save(ctx, tx, &b)
		return nil
	})
	return b, err
}

// schedule enqueues a broadcast's job and changes the broadcast's status. The caller must save b.
func (s *Service) schedule(ctx context.Context, tx *db.Tx, b *Broadcast, by teams.Actor, at time.Time) {
	b.Status, b.ScheduledAt, b.by = Queued, at, by.Ref()
	if !at.IsZero() {
		b.Status = Scheduled
	}
	s.p.Queue.Insert(ctx, tx, sendJob(b, at))
	s.invalidate(tx, b)
}

// checkSend checks whether a broadcast can be sent and returns the time at which to send it. The zero time means now.
func (s *Service) checkSend(ctx context.Context, by teams.Actor, b *Broadcast, when string) (at time.Time, err error) {
	if when != "" {
		if at, err = emails.ScheduledAt(when, s.p.DB.Now()); err != nil {
			return at, err
		}
	}
	if err := s.checkAudience(ctx, b); err != nil {
		return at, err
	}
	if err := s.checkPlaceholders(ctx, b, ""); err != nil {
		return at, err
	}
	all, err := s.contents(ctx, b)
	if err != nil {
		return at, err
	}
	mailings := make([]*emails.Mailing, len(all))
	for i, c := range all {
		if mailings[i], err = s.p.Emails.MailingOf(ctx, by, content.Compile(c), true); err != nil {
			return at, err
		}
	}
	if err := b.checkMetric(mailings); err != nil {
		return at, err
	}
	if !at.IsZero() {
		return at, nil // contacts may be added before the scheduled time
	}
	return at, s.checkNotEmpty(ctx, b)
}

// checkNotEmpty returns an error if the audience has no contacts. If a filter makes the search take too long,
// checkNotEmpty returns nil, because a broadcast without recipients does no harm.
func (s *Service) checkNotEmpty(ctx context.Context, b *Broadcast) error {
	limited, cancel := context.WithTimeout(ctx, s.audienceTimeout)
	defer cancel()
	some, _, err := s.p.Contacts.Walk(limited, b.TeamID, contacts.Audience{SegmentID: b.SegmentID}, "", 1)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return nil
	case err == nil && len(some) == 0:
		return fault.Invalidf("segment_id", "The segment has no contacts. Add contacts to it first.")
	}
	return err
}

// Pause stops a broadcast until it is resumed. While the broadcast is paused, emails that have not been handed to a
// mail server are withheld.
func (s *Service) Pause(ctx context.Context, teamID, broadcastID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if err != nil || b.Status == Paused && b.Reason != DomainNotVerified {
			return err
		}
		// A broadcast that waits for its domain would go on by itself, but a user has now decided that it must not.
		if b.Status != Paused {
			if err := b.requireStatus("paused", Queued); err != nil {
				return err
			}
		}
		s.pause(ctx, tx, &b, "")
		return nil
	})
}

// pause pauses a locked broadcast. The broadcast's job ends when it detects that the broadcast is paused.
func (s *Service) pause(ctx context.Context, tx *db.Tx, b *Broadcast, why Reason) {
	b.Status, b.Reason = Paused, why
	save(ctx, tx, b)
	s.invalidate(tx, b)
}

// Resume continues a paused broadcast. If the broadcast was paused because of bounces or complaints, it is not paused
// for either reason again, because the user has decided to continue.
func (s *Service) Resume(ctx context.Context, by teams.Actor, broadcastID string) error {
	if err := by.RequireUnlimited(); err != nil {
		return err
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := getRow(ctx, tx.Reader, by.TeamID, broadcastID); err != nil { // lockSender must precede the lock
			return err
		}
		if err := s.lockSender(ctx, tx, by); err != nil {
			return err
		}
		b, err := lock(ctx, tx, by.TeamID, broadcastID)
		if err != nil {
			return err
		}
		if err := b.requireStatus("resumed", Paused); err != nil {
			return err
		}
		if b.Reason == TooManyBounces || b.Reason == TooManyComplaints {
			b.guarded = false
		}
		b.by = by.Ref()
		return s.resume(ctx, tx, &b)
	})
}

// resume continues a locked broadcast that is paused. Unless a user has decided to continue in spite of bounces and
// complaints, resume schedules a check for those that arrived during the pause.
func (s *Service) resume(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	if b.guarded {
		s.watch(ctx, tx, b.TeamID, b.ID, tx.Now())
	}
	b.Status, b.Reason = Queued, ""
	save(ctx, tx, b)
	if err := s.wake(ctx, tx, b); err != nil {
		return err
	}
	s.release(ctx, tx, b)
	return nil
}

// release enqueues the job that releases the withheld emails of a broadcast.
func (s *Service) release(ctx context.Context, tx *db.Tx, b *Broadcast) {
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: releaseKind, Lane: b.TeamID, TeamID: b.TeamID, Payload: b.ID})
	s.invalidate(tx, b)
}

// releaseHeld handles jobs of the kind releaseKind. If the broadcast is paused again, package delivery withholds its
// emails again.
func (s *Service) releaseHeld(ctx context.Context, j jobs.Job) error {
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return s.p.Queue.Release(ctx, tx, j.Payload) })
	if err != nil {
		return err
	}
	return s.p.Queue.End(ctx, j)
}

// Cancel turns a scheduled broadcast back into a draft. If a broadcast is being sent or is paused, Cancel ends the
// broadcast, so that no more emails are enqueued. Emails of a canceled broadcast that have not been handed to a mail
// server get the status canceled.
func (s *Service) Cancel(ctx context.Context, teamID, broadcastID string) (b Broadcast, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if b, err = lock(ctx, tx, teamID, broadcastID); err != nil {
			return err
		}
		if err := b.requireStatus("canceled", Scheduled, Queued, Paused); err != nil {
			return err
		}
		if b.StartedAt.IsZero() {
			b.Status, b.Reason, b.ScheduledAt, b.Winner, b.significance = Draft, "", time.Time{}, NoWinner,
				unknown
			b.revision++
			save(ctx, tx, &b)
			if _, err := s.p.Queue.Remove(ctx, tx, Kind, b.TeamID, b.ID); err != nil {
				return fmt.Errorf("remove the job of broadcast %s: %w", b.ID, err)
			}
			s.invalidate(tx, &b)
			return nil
		}
		b.Status, b.Reason, b.SentAt = Canceled, "", tx.Now()
		if err := s.end(ctx, tx, &b); err != nil {
			return err
		}
		save(ctx, tx, &b)
		s.release(ctx, tx, &b)
		return nil
	})
	return b, err
}

// end releases the contents of a broadcast that has ended. The contents are deleted together with the broadcast's last
// email.
func (s *Service) end(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	all, err := variantContents(ctx, tx.Reader, b.TeamID, b.ID)
	if err != nil {
		return err
	}
	for _, v := range all {
		s.p.Contents.Release(ctx, tx, b.TeamID, v.contentID)
	}
	return nil
}

const hintTopic = "broadcasts"

// invalidate makes all nodes discard their cached decision about a broadcast once the transaction has committed.
func (s *Service) invalidate(tx *db.Tx, b *Broadcast) {
	id := b.ID
	tx.AfterCommit(func() { s.p.DB.Hint(hintTopic, id) })
}

// notifyTeam notifies a team that its broadcast was paused automatically or has failed. Call notifyTeam in the
// transaction that changes the broadcast's status.
func (s *Service) notifyTeam(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	what := "was paused"
	if b.Status == Failed {
		what = "has failed"
	}
	err := s.p.Notify(ctx, tx, b.TeamID, fmt.Sprintf("Your broadcast %q %s", b.Name, what),
		fmt.Sprintf("The broadcast %q (%s) %s after %d of its emails were queued.\n\n%s\n", b.Name, b.ID, what, b.Entered,
			b.Reason.Message()))
	if err != nil || b.Status != Paused {
		return err
	}
	return s.p.Recorder.Record(ctx, tx, events.Event{TeamID: b.TeamID, Type: events.BroadcastPaused,
		Data: &events.Broadcast{ID: b.ID, Name: b.Name, Reason: string(b.Reason), Message: b.Reason.Message(),
			CreatedAt: b.CreatedAt}})
}
