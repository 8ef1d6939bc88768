package broadcasts

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// guardKind is the kind of job that compares a broadcast's bounces and complaints with its limits. Each bounce,
// complaint or resumption enqueues a guard job, unless one is already waiting.
const guardKind = "broadcast.guard"

const (
	guardDelay = 2 * time.Second // delay between the first bounce or complaint and the next check
	guardedFor = 24 * time.Hour  // how long a broadcast is still checked after it has ended

	// Minimum number of emails that must have been handed to mail servers before the bounce and complaint rates are
	// checked.
	minSentForBounces    = 200
	minSentForComplaints = 1000

	// refusedLimit is the percentage of bounces of every type among the emails that were delivered or bounced. A broadcast
	// that exceeds it pauses even if no bounce is permanent, because the hosts refuse the sender and not the addresses.
	// For example, a block list names the server.
	refusedLimit = 90
)

// watch enqueues a broadcast's guard job, due at the given time, unless such a job is already waiting.
func (s *Service) watch(ctx context.Context, tx *db.Tx, teamID, broadcastID string, at time.Time) {
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: guardKind, Lane: teamID, TeamID: teamID, Dedupe: broadcastID,
		Payload: broadcastID, RunAt: at})
}

// guard handles jobs of the kind guardKind. In one transaction, guard first ends its job and then reads the counts. The
// transaction of a concurrent bounce either commits before the counts are read, or finds no guard job and enqueues a
// new one. On PostgreSQL, enqueueing locks an existing job, so ending the job waits for any transaction that has found
// the job.
func (s *Service) guard(ctx context.Context, j jobs.Job) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, j)
		b, err := getRow(ctx, tx.Reader, j.TeamID, j.Payload)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		why, err := s.overLimit(ctx, tx, &b)
		if err != nil || why == "" {
			return err
		}
		if b, err = lock(ctx, tx, j.TeamID, j.Payload); err != nil || !b.isGuarded(tx.Now()) {
			return err
		}
		b.guarded = false // The team is notified only once.
		if b.Status == Queued {
			b.guarded = true
			s.pause(ctx, tx, &b, why)
			return s.notifyTeam(ctx, tx, &b)
		}
		save(ctx, tx, &b)
		return s.p.Notify(ctx, tx, b.TeamID, fmt.Sprintf("Your broadcast %q had many bounces or complaints", b.Name),
			fmt.Sprintf("The broadcast %q (%s) has been sent.\n\n%s\n", b.Name, b.ID, limitMessages[why]))
	})
}

// limitMessages are the notifications for a broadcast that exceeds a limit after it has been sent, when it can no
// longer be paused.
var limitMessages = map[Reason]string{
	TooManyBounces: "Too many of its emails bounced. Remove addresses that are old or were not confirmed from the " +
		"segment before you send to it again. If mail servers refused the sender, for example because of a block list, " +
		"mend that first.",
	TooManyComplaints: "Too many recipients reported it as spam. Make sure that those to whom you send again all asked " +
		"for it.",
}

// isGuarded reports whether the bounce and complaint limits apply to a broadcast at the given time.
func (b *Broadcast) isGuarded(now time.Time) bool {
	return b.guarded && (b.Status == Queued || b.Status == Sent && now.Sub(b.SentAt) < guardedFor)
}

// overLimit returns the reason for the limit that a broadcast has exceeded, or "" if it has exceeded none.
func (s *Service) overLimit(ctx context.Context, tx *db.Tx, b *Broadcast) (Reason, error) {
	if !b.isGuarded(tx.Now()) {
		return "", nil
	}
	all, hard, _, err := tallies(ctx, tx.Reader, b.TeamID, b.ID)
	if err != nil {
		return "", err
	}
	var t Tally
	for _, variant := range all {
		t.add(variant)
	}
	complaintLimit, bounceLimit := s.c.ComplaintLimit, s.c.BounceLimit
	if own := b.Options.ComplaintLimit; own != nil {
		complaintLimit = *own
	}
	if own := b.Options.BounceLimit; own != nil {
		bounceLimit = *own
	}
	passed := func(n, of, least int64, limit float64) bool {
		return limit < 100 && of >= least && float64(n) > limit/100*float64(of)
	}
	switch {
	case passed(t.Complained, t.Sent, minSentForComplaints, complaintLimit):
		return TooManyComplaints, nil
	case passed(hard, t.Sent, minSentForBounces, bounceLimit),
		passed(t.Bounced, t.Delivered+t.Bounced, minSentForBounces, max(refusedLimit, bounceLimit)):
		return TooManyBounces, nil
	}
	return "", nil
}
