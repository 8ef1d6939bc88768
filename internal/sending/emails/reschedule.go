package emails

import (
	"context"
	"math"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Reschedule changes the time at which a scheduled email will be sent.
func (s *Service) Reschedule(ctx context.Context, teamID, emailID, when string) error {
	if when == "" {
		return fault.MissingField("scheduled_at")
	}
	at, err := scheduledAt(when, s.DB.Now())
	if err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if at.IsZero() {
			at = tx.Now()
		}
		changed, err := setSchedule(ctx, tx, teamID, emailID, at)
		if err != nil {
			return err
		}
		if !changed {
			return s.notScheduled(ctx, tx, teamID, emailID, "rescheduled")
		}
		moved, err := s.Queue.Move(ctx, tx, ReleaseKind, teamID, teamID, emailID, at)
		if err == nil && !moved {
			// If a worker has already claimed the release job, the worker reads the new time. If no release job exists, a new
			// one is inserted.
			s.Queue.Insert(ctx, tx, releaseJob(teamID, emailID, at))
		}
		return err
	})
}

// Cancel permanently cancels an email that is scheduled, or that is withheld because of its sender's domain. The jobs
// of a withheld email end when they are due.
func (s *Service) Cancel(ctx context.Context, teamID, emailID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		e, err := takeScheduled(ctx, tx, teamID, emailID, Canceled, math.MaxInt64)
		if err != nil {
			return err
		}
		if e == nil {
			e, err = takeWithheld(ctx, tx, teamID, emailID)
		} else {
			_, err = s.Queue.Remove(ctx, tx, ReleaseKind, teamID, emailID)
		}
		if err != nil {
			return err
		}
		if e == nil {
			return s.notScheduled(ctx, tx, teamID, emailID, "canceled")
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, EmailID: emailID, DomainID: e.DomainID,
			BroadcastID: e.BroadcastID, ContactID: e.ContactID, Type: events.EmailCanceled})
	})
}

// notScheduled returns the fault for an email that cannot be changed because it does not exist or is no longer
// scheduled.
func (s *Service) notScheduled(ctx context.Context, tx *db.Tx, teamID, emailID, what string) error {
	e, err := readEmail(ctx, tx.Reader, teamID, emailID)
	if err != nil {
		return err
	}
	if what == "canceled" && e.LastEvent == Delayed {
		return fault.Invalidf("", "Only an email that is scheduled, or that waits for its sender's domain, can be canceled; "+
			"this one may be on its way.")
	}
	return fault.Invalidf("", "Only a scheduled email can be %s; this one is %s.", what, e.LastEvent)
}

// HasScheduledFrom reports whether the team has scheduled any emails from the domain.
func (s *Service) HasScheduledFrom(ctx context.Context, teamID, domainID string) (bool, error) {
	return anyScheduled(ctx, s.DB.Reader, teamID, domainID)
}
