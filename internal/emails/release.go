package emails

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/teams"
)

// ReleaseKind is the kind of the jobs that hand an email to delivery later than at once: at its scheduled time, or when the
// paths of its attachments are fetched.
const ReleaseKind = "emails.release"

// fetchTries is how often a path is tried before the email fails.
const fetchTries = 3

// fetchWaits are the waits between those tries.
var fetchWaits = [fetchTries - 1]time.Duration{10 * time.Second, time.Minute}

// Kind is how release jobs are worked.
func (s *Service) Kind(workers int) jobs.Kind {
	return jobs.Kind{Name: ReleaseKind, Handle: s.release, Workers: workers, PerLane: max(1, workers/2), Lease: 10 * time.Minute,
		Schedule: []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour}}
}

// release fetches what is to be fetched, checks again what may have changed since the email was accepted, and enters the
// delivery jobs.
func (s *Service) release(ctx context.Context, j jobs.Job) error {
	e, err := getEmail(ctx, s.d.Reader, j.TeamID, j.Payload)
	var team teams.Team
	if err == nil {
		team, err = s.teams.Get(ctx, e.TeamID) // Without its team the email is as good as gone.
	}
	if fault.KindOf(err) == fault.NotFound || err == nil && e.LastEvent != Scheduled && e.LastEvent != Queued {
		return s.d.Update(ctx, func(tx *db.Tx) error { return s.q.Finish(ctx, tx, j) })
	}
	if err != nil {
		return err
	}
	reason, err := s.refused(ctx, &e, team)
	if err != nil {
		return err
	}
	if reason != "" {
		return s.fail(ctx, j, &e, reason)
	}
	fetched, err := s.fetch(ctx, &e)
	if err != nil {
		return s.fetchAgain(ctx, j, &e, err)
	}
	to, err := pending(ctx, s.d.Reader, e.ID, "")
	if err != nil {
		return err
	}
	var keys []string
	for _, r := range to {
		keys = append(keys, r.Key())
	}
	blocked, err := s.suppressions.Among(ctx, s.d.Reader, e.TeamID, keys)
	if err != nil {
		return fmt.Errorf("look up suppressions: %w", err)
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		if err := s.q.Finish(ctx, tx, j); err != nil {
			return err
		}
		if e.LastEvent == Scheduled {
			taken, err := takeScheduled(ctx, tx, e.TeamID, e.ID, Queued)
			if err != nil || taken == nil {
				return err // Canceled meanwhile: the job ends and nothing is sent.
			}
		}
		for i := range fetched {
			setFetched(ctx, tx, &fetched[i])
		}
		all := s.dispatch(ctx, tx, &e, 0, to, blocked)
		if e.LastEvent == Scheduled {
			all = append(all, events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, BroadcastID: e.BroadcastID,
				Type: events.EmailQueued})
		}
		return s.hall.Record(ctx, tx, all...)
	})
}

// refused says why an email that waited may no longer be sent, or "" when it may.
func (s *Service) refused(ctx context.Context, e *Email, team teams.Team) (reason string, err error) {
	if e.LastEvent != Scheduled {
		return "", nil // It was checked when it was accepted, a moment ago.
	}
	active, err := s.teams.KeyActive(ctx, e.TeamID, e.KeyID)
	if err != nil {
		return "", fmt.Errorf("look up the key of email %s: %w", e.ID, err)
	}
	if !active {
		return "invalid_api_key", nil
	}
	if team.Suspended {
		return "account_suspended", nil
	}
	at := strings.LastIndexByte(e.MessageID, '@')
	from, err := s.domains.Sender(ctx, e.TeamID, strings.TrimSuffix(e.MessageID[at+1:], ">"))
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "", err
	case fault.KindOf(err) == fault.Internal && err != nil:
		return "", err
	case err != nil || from == (domains.Sender{}) || from.DomainID != e.DomainID:
		return "domain_not_verified", nil
	}
	return "", nil
}

// fail ends an email that cannot be sent.
func (s *Service) fail(ctx context.Context, j jobs.Job, e *Email, reason string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		if err := s.q.Finish(ctx, tx, j); err != nil {
			return err
		}
		return s.hall.Record(ctx, tx, events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID,
			BroadcastID: e.BroadcastID, Type: events.EmailFailed, Data: &events.Failed{Reason: reason}})
	})
}

// fetch gets the attachments that were given by path and keeps them, so that later tries send the same.
func (s *Service) fetch(ctx context.Context, e *Email) (fetched []Attachment, err error) {
	files, err := attachmentsOf(ctx, s.d.Reader, e.TeamID, e.ID)
	if err != nil {
		return nil, err
	}
	left := s.c.MaxSize
	for _, a := range files {
		left -= a.Size / 57 * 78
	}
	for _, a := range files {
		if a.path == "" || a.blobKey != "" {
			continue
		}
		content, contentType, err := s.guard.Fetch(ctx, a.path, max(left, 0)/78*57)
		if err != nil {
			return nil, fmt.Errorf("fetch the attachment %s: %w", a.Filename, err)
		}
		a.Size, a.blobKey = int64(len(content)), fileKey(e.ID, a.ID)
		if a.ContentType == "" {
			a.ContentType = contentType
		}
		left -= a.Size / 57 * 78
		if _, err := s.blobs.Put(ctx, a.blobKey, bytes.NewReader(content)); err != nil {
			return nil, fmt.Errorf("store the attachment %s: %w", a.Filename, err)
		}
		fetched = append(fetched, a)
	}
	return fetched, nil
}

// fetchAgain retries an email whose path could not be fetched, and fails it after the last try.
func (s *Service) fetchAgain(ctx context.Context, j jobs.Job, e *Email, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if j.Attempt >= fetchTries {
		return s.fail(ctx, j, e, "attachment_fetch_failed")
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		return s.q.Retry(ctx, tx, j, tx.Now().Add(fetchWaits[j.Attempt-1]), cause.Error())
	})
}
