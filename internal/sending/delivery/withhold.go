package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// withhold handles a job whose sender's domain may not send: the domain was deleted or is no longer verified. A
// broadcast that is being sent pauses, and its emails wait until it continues. Any other email is withheld for a day
// from the time when it was due, and then fails. One event reports the delay. If another team may send from the domain,
// the email fails immediately.
func (s *Service) withhold(ctx context.Context, t *try) error {
	name, err := t.o.SenderDomain()
	if err != nil {
		s.p.Log.Warn("an email has an unreadable sender and fails", "email", t.o.ID, "team", t.o.TeamID, "error", err)
		return s.fail(ctx, t, reasonInvalid)
	}
	if id := t.o.BroadcastID; id != "" {
		if done, err := s.changeSender(ctx, t); err != nil || done {
			return err
		}
		if err := s.p.Broadcasts.PauseForDomain(ctx, t.o.TeamID, id); err != nil {
			return err
		}
		if ok, err := s.applyDecision(ctx, t); err != nil || !ok {
			return err
		}
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		until, again := t.withheldUntil()
		if again {
			if ok, err := s.endWithheld(ctx, tx, t); err != nil || !ok {
				return err
			}
		}
		standing, domainID, err := s.p.Domains.LockStanding(ctx, tx, t.o.TeamID, name)
		if err != nil {
			return err
		}
		switch {
		case standing == domains.Usable: // the domain is back, perhaps with a new id
			if err := emails.SetDomain(ctx, tx, t.o.TeamID, t.o.ID, domainID); err != nil {
				return err
			}
			s.p.Queue.Wait(ctx, tx, t.job, tx.Now(), "")
			return nil
		case standing == domains.TakenOver, !until.After(tx.Now()):
			return s.failIn(ctx, tx, t, emails.ReasonDomain)
		}
		j, d := t.job, t.d
		d.WithheldUntil, d.WithheldTries = until.UnixMicro(), j.Tries
		j.Payload = d.Encode()
		s.p.Emails.Withhold(ctx, tx, j, name, until)
		all := t.skipped
		if !again {
			all = t.forAll(events.EmailDelayed, &events.Delayed{Reason: emails.ReasonDomain})
		}
		if err := s.p.Recorder.Record(ctx, tx, all...); err != nil {
			return err
		}
		emails.MarkWithheld(ctx, tx, t.o)
		return nil
	})
}

// endWithheld ends the time for which a job's email was withheld. If the email was canceled meanwhile, endWithheld
// finishes the job and returns false.
func (s *Service) endWithheld(ctx context.Context, tx *db.Tx, t *try) (bool, error) {
	ok, err := emails.EndWithheld(ctx, tx, t.o)
	if err == nil && !ok {
		s.p.Queue.Finish(ctx, tx, t.job)
		err = s.p.Recorder.Record(ctx, tx, t.skipped...)
	}
	return ok, err
}

// mayGoOn reports whether an email that was withheld may be sent now that its sender's domain may send again. If the
// email must not be sent, mayGoOn ends the job. Emails that were not withheld are not checked.
func (s *Service) mayGoOn(ctx context.Context, t *try) (ok bool, err error) {
	if _, again := t.withheldUntil(); !again {
		return true, nil
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
		ok, err = s.endWithheld(ctx, tx, t)
		return err
	})
	if err != nil || !ok {
		return false, err
	}
	why, err := s.p.Emails.WithheldObstacle(ctx, t.o)
	if err != nil || why == "" {
		return err == nil, err
	}
	return false, s.fail(ctx, t, why)
}

// withheldUntil returns the time until which the job's email is withheld. The result again is true if the email has
// already been withheld since it was due, so that the event was recorded before. A retry is due when it is claimed. So
// is the email of a broadcast, because a pause of the broadcast may have delayed it.
func (t *try) withheldUntil() (until time.Time, again bool) {
	switch {
	case t.d.WithheldUntil != 0 && t.d.WithheldTries == t.job.Tries:
		return db.Time(t.d.WithheldUntil), true
	case t.job.Tries == 0 && t.o.BroadcastID == "":
		return t.o.Due().Add(emails.WithholdFor), false
	}
	return t.started.Add(emails.WithholdFor), false
}
