package emails

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// ReleaseKind is the kind of the jobs that enqueue the delivery of an email at its scheduled time.
const ReleaseKind = "emails.release"

// Kinds returns the job kinds defined by this package. Each team has a lane, and the lanes share the workers. If the
// server itself fails, for example because of an outage of the database or the file store, the jobs are retried without
// limit.
func (s *Service) Kinds() []jobs.Kind {
	waits := []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute}
	return []jobs.Kind{
		{Name: ReleaseKind, Handle: s.release, Workers: 8, Schedule: waits, Endless: true},
		{Name: FetchKind, Handle: s.fetchAndRelease, Workers: fetchersMax, Lease: 2 * fetchTime, Schedule: waits,
			Endless: true},
		{Name: wakeKind, Handle: s.wake, Workers: 4, Schedule: waits, Endless: true},
	}
}

// releaseJob returns the job that releases an email at its scheduled time.
func releaseJob(teamID, emailID string, at time.Time) jobs.New {
	return jobs.New{Kind: ReleaseKind, Lane: teamID, TeamID: teamID, Dedupe: emailID, Payload: emailID, RunAt: at}
}

// release handles a release job. First, release checks again that the email may be sent, because the sender's rights
// may have changed since the email was accepted. If the email may be sent, release enqueues the delivery jobs or, if
// attachments must be fetched first, the fetch job.
func (s *Service) release(ctx context.Context, j jobs.Job) error {
	e, err := readEmail(ctx, s.DB.Reader, j.TeamID, j.Payload)
	var team teams.Team
	if err == nil {
		team, err = s.Teams.Get(ctx, e.TeamID) // a deleted team's emails have been deleted too
	}
	if err == nil && strings.HasPrefix(string(e.LastEvent), unknownState) {
		return fmt.Errorf("release email %s: a newer release gave it the state %s", e.ID, e.LastEvent) // it may know more
	}
	if fault.KindOf(err) == fault.NotFound || err == nil && e.LastEvent != Scheduled && e.LastEvent != Queued {
		return s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	if e.LastEvent == Scheduled && e.ScheduledAt.After(s.DB.Now()) {
		return s.DB.Update(ctx, func(tx *db.Tx) error { return s.wait(ctx, tx, j, &e) })
	}
	reason, err := s.refused(ctx, &e, team)
	if err != nil {
		return err
	}
	if reason != "" {
		return s.fail(ctx, j, &e, reason)
	}
	files, err := attachmentsOf(ctx, s.DB.Reader, e.TeamID, e.ID)
	if err != nil {
		return fmt.Errorf("look up the attachments of email %s: %w", e.ID, err)
	}
	if slices.ContainsFunc(files, func(a Attachment) bool { return a.needsFetch() }) {
		return s.scheduleFetch(ctx, j, &e)
	}
	return s.enqueueDeliveries(ctx, j, &e, 0, func(*db.Tx) {})
}

// enqueueDeliveries finishes a job and enqueues the delivery jobs for its email. The callback runs in the same
// transaction. fetched is the total size, in bytes, of the newly downloaded attachments.
func (s *Service) enqueueDeliveries(ctx context.Context, j jobs.Job, e *Email, fetched int64, also func(*db.Tx)) error {
	memory, err := s.Size(ctx, e.TeamID, e.ID)
	if err != nil && !errors.Is(err, ErrGone) { // if the content is missing, the delivery job marks the email as failed
		return err
	}
	memory += memoryOfFiles(fetched)
	if e.onePerRecipient, err = s.onePerRecipient(ctx, e); err != nil {
		return err
	}
	to, err := pending(ctx, s.DB.Reader, e, "")
	if err != nil {
		return err
	}
	var keys []string
	for _, r := range to {
		keys = append(keys, r.Key())
	}
	blocked, err := s.Suppressions.SuppressedNow(ctx, e.TeamID, keys)
	if err != nil {
		return fmt.Errorf("look up suppressions: %w", err)
	}
	blocked = blocking(blocked, isPrivate(e.Actor.Kind, e.Tags))
	nowRefused, err := s.currentRefusals(ctx, e, keys)
	if err != nil {
		return err
	}
	to, failed := splitRefused(e, to, nowRefused)
	return s.beginCounted(ctx, j, e, countMailed(to, nil, blocked), func(tx *db.Tx) error {
		also(tx)
		var all []events.Event
		if e.LastEvent == Scheduled {
			all = append(all, queuedEvent(e))
		}
		all = append(append(all, failed...), s.dispatch(ctx, tx, e, memory, to, blocked)...)
		return s.Recorder.Record(ctx, tx, all...)
	})
}

// beginCounted changes an email's state to queued and calls the function do in the same transaction. For a scheduled
// email, n recipients are counted against the team's quota. If these recipients exceed the quota, the email fails.
func (s *Service) beginCounted(ctx context.Context, j jobs.Job, e *Email, n int, do func(tx *db.Tx) error) error {
	limited, err := s.dueLimitApplies(ctx, e)
	if err != nil {
		return err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		due, err := s.begin(ctx, tx, j, e)
		if err != nil || !due {
			return err
		}
		if e.LastEvent == Scheduled {
			if limited {
				if err := s.consumeDueLimit(ctx, tx, e); err != nil {
					return err
				}
			}
			if err := s.Quotas.Count(ctx, tx, e.TeamID, n); err != nil {
				return err
			}
		}
		return do(tx)
	})
	if errors.Is(err, errAppLimit) {
		return s.fail(ctx, j, e, reasonAppLimit)
	}
	if !quotas.Exceeded(err) {
		return err
	}
	reason := "reached_daily_quota"
	if fault.KindOf(err) == fault.MonthlyQuota {
		reason = "reached_monthly_quota"
	}
	if err := s.Quotas.Refused(ctx, e.TeamID, n, err); !quotas.Exceeded(err) {
		return err
	}
	return s.fail(ctx, j, e, reason)
}

// begin finishes a job and changes a scheduled email's state to queued; it returns false if the email was canceled or
// rescheduled after it was read. If the email was rescheduled, the job runs again at the new time.
func (s *Service) begin(ctx context.Context, tx *db.Tx, j jobs.Job, e *Email) (due bool, err error) {
	if e.LastEvent == Scheduled {
		taken, err := takeScheduled(ctx, tx, e.TeamID, e.ID, Queued, e.ScheduledAt.UnixMicro())
		if err != nil {
			return false, err
		}
		if taken == nil {
			return false, s.wait(ctx, tx, j, e)
		}
	}
	s.Queue.Finish(ctx, tx, j)
	return true, nil
}

// wait postpones a job to the scheduled time of its email. The email cannot be rescheduled until the transaction
// commits. If the email is no longer scheduled, wait finishes the job.
func (s *Service) wait(ctx context.Context, tx *db.Tx, j jobs.Job, e *Email) error {
	at, ok, err := lockSchedule(ctx, tx, e.TeamID, e.ID)
	if err != nil {
		return err
	}
	if !ok {
		s.Queue.Finish(ctx, tx, j)
		return nil
	}
	s.Queue.Retry(ctx, tx, j, at, "it was rescheduled")
	return nil
}

// refused returns the reason why a scheduled email may no longer be sent, or "" if it may be sent.
func (s *Service) refused(ctx context.Context, e *Email, team teams.Team) (reason string, err error) {
	if e.LastEvent != Scheduled {
		return "", nil // the email was not scheduled, so it was checked just now when it was accepted
	}
	if reason, err = s.actorObstacle(ctx, e); err != nil || reason != "" {
		return reason, err
	}
	if team.Suspended {
		return ReasonSuspended, nil
	}
	return s.domainObstacle(ctx, e)
}

// fail marks an email that cannot be sent as failed, unless the email has been canceled or rescheduled since it was
// read.
func (s *Service) fail(ctx context.Context, j jobs.Job, e *Email, reason string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		due, err := s.begin(ctx, tx, j, e)
		if err != nil || !due {
			return err
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID,
			BroadcastID: e.BroadcastID, Type: events.EmailFailed, OneRecipient: e.only != "",
			Data: &events.Failed{Reason: reason}})
	})
}
