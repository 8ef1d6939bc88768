package broadcasts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/emails"
)

// delivery returns the job kind for deliveries, with a transport that captures emails.
func (s *sender) delivery() jobs.Kind { return s.capture().Kind() }

func (s *sender) capture() *delivery.Service {
	return testnode.Must(delivery.New(delivery.Config{Transport: delivery.Capture, Hostname: "mx.postrider.test",
		Unsigned: true, LaneConnections: 5}, delivery.Deps{DB: s.DB, Queue: s.Queue, Recorder: s.Recorder, Emails: s.Emails,
		Domains: s.Domains, Keys: s.Keys, DNS: s.DNS, Blobs: s.Blobs, Outbox: capture.New(s.Blobs, nil), Guard: s.Guard,
		Broadcasts: s.b, Log: s.Log,
		OnLimitRaised: func(string) {}}))
}

// runAll runs the jobs of broadcasts, emails and deliveries.
func (s *sender) runAll() (stop func()) {
	s.T.Helper()
	return s.Run(append(append(s.b.Kinds(), s.Emails.Kinds()...), s.delivery())...)
}

// entered sends a broadcast to n new contacts, and returns once all its emails have been enqueued.
func (s *sender) entered(n int) (broadcastID string) {
	s.T.Helper()
	s.readers(n)
	id := s.draft(s.news())
	s.send(id)
	s.enqueued(id, n)
	return id
}

// enqueued runs the job of a broadcast until it has enqueued n emails, and then stops it.
func (s *sender) enqueued(broadcastID string, n int) {
	s.T.Helper()
	stop := s.Run(s.b.Kinds()...)
	s.walked(broadcastID, n)
	stop()
}

// held waits until n emails of a broadcast are withheld.
func (s *sender) held(n int, broadcastID string) {
	s.T.Helper()
	testnode.Until(s.T, fmt.Sprintf("%d emails are held", n), func() bool {
		return s.Count(`SELECT COUNT(*) FROM jobs WHERE held = $1`, broadcastID) == n
	})
}

// ended waits until no job of the given kind is left.
func (s *sender) ended(kind string) {
	s.T.Helper()
	testnode.Until(s.T, "no job is left of the kind "+kind, func() bool {
		return s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, kind) == 0
	})
}

// dueNow makes the waiting jobs of a kind, whose lanes are teams, due.
func (s *sender) dueNow(kind string) {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(s.T.Context(), `UPDATE jobs SET run_at = 1 WHERE kind = $1 AND holder IS NULL`, kind)
		return err
	})
	s.DB.Hint("jobs", kind+"\t"+s.Acme.TeamID+"\t1")
}

// Emails of a paused broadcast are withheld without being claimed repeatedly, and are delivered once the broadcast
// resumes. Other emails are delivered during the pause.
func TestPauseHoldsWhatIsEntered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 60
		id := s.entered(n)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id)) // changes nothing
		other := s.Send(testnode.Hello("someone@elsewhere.example"))
		s.runAll()
		s.held(n, id)
		testnode.Until(t, "the other email is delivered", func() bool { return s.Email(other).LastEvent == emails.Delivered })
		s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND last_event = 2 /* queued */`, db.ID(id))
		s.mustCount(n, `SELECT COUNT(*) FROM jobs WHERE held = $1 AND attempt = 1`, id)
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.until(id, broadcasts.Sent)
		s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND last_event = 5 /* delivered */`, db.ID(id))
		s.mustCount(n, `SELECT COUNT(a.outcome) FROM email_events a JOIN emails e ON e.id = a.email_id
			WHERE e.broadcast_id = $1`, db.ID(id))
		s.mustCount(n, `SELECT COUNT(*) FROM broadcast_recipients WHERE broadcast_id = $1 AND state = 3 /* delivered */`,
			db.ID(id))
		s.mustCount(0, `SELECT COUNT(*) FROM jobs WHERE kind IN ('delivery', 'broadcast', 'broadcast.release')`)
		r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if r.Sent != n || r.Delivered != n || r.Waiting != 0 {
			t.Errorf("results %+v", r.Tally)
		}
	})
}

// A paused broadcast enqueues no more emails. When a paused broadcast resumes, it continues with the contact after the
// last one that was mailed.
func TestPauseStopsTheWalk(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 30
		s.readers(n)
		draft := s.news()
		draft.Options.Pace = 3600 // one email per second; a page has about four emails
		id := s.draft(draft)
		s.send(id)
		s.Run(s.b.Kinds()...)
		testnode.Until(t, "it has begun", func() bool { return s.broadcast(id).Entered > 0 })
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		entered := s.broadcast(id).Entered
		if entered >= n {
			t.Fatalf("%d were entered at once, in spite of the pace", entered)
		}
		// The broadcast's job ends when it detects the pause.
		s.Update(func(tx *db.Tx) error {
			_, err := s.Queue.Move(t.Context(), tx, broadcasts.Kind, s.Acme.TeamID, s.Acme.TeamID, id, tx.Now())
			return err
		})
		s.ended("broadcast")
		if now := s.broadcast(id).Entered; now != entered {
			t.Errorf("%d were entered after the pause", now-entered)
		}
		s.Update(func(tx *db.Tx) error { // remove the pace so that the broadcast ends quickly
			_, err := tx.Exec(t.Context(), `UPDATE broadcasts SET options = '{}', next_at = 0`)
			return err
		})
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.walked(id, n)
		s.mustCount(n, `SELECT COUNT(DISTINCT recipient) FROM emails`)
	})
}

// When a broadcast is canceled, its undelivered emails, including withheld ones, get the status canceled, and their
// timelines show the cancellation.
func TestCancelEndsWhatIsEntered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 40
		id := s.entered(n)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		s.runAll()
		testnode.Until(t, "some emails are held", func() bool {
			return s.Count(`SELECT COUNT(*) FROM jobs WHERE held = $1`, id) > 0
		})
		_, err := s.b.Cancel(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		testnode.Until(t, "no job is left", func() bool {
			return s.Count(`SELECT COUNT(*) FROM jobs WHERE kind IN ('delivery', 'broadcast', 'broadcast.release')`) == 0
		})
		s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND last_event = 11 /* canceled */`, db.ID(id))
		s.mustCount(n, `SELECT COUNT(*) FROM email_events WHERE broadcast_id = $1 AND type = 11 /* canceled */`, db.ID(id))
		s.mustCount(n, `SELECT COUNT(*) FROM broadcast_recipients WHERE broadcast_id = $1 AND state = 7 /* canceled */`,
			db.ID(id))
		s.mustCount(0, `SELECT COUNT(*) FROM email_events WHERE outcome IS NOT NULL`)
		if b := s.broadcast(id); b.Status != broadcasts.Canceled || b.SentAt.IsZero() {
			t.Errorf("it is %s, sent at %s", b.Status, b.SentAt)
		}
		if _, err := s.b.Cancel(t.Context(), s.Acme.TeamID, id); fault.KindOf(err) != fault.Invalid {
			t.Errorf("canceled again: %v", err)
		}
	})
}

// Canceling a scheduled broadcast turns it back into a draft. The draft can be scheduled again and is sent only once.
func TestScheduled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(2)
		id := s.draft(s.news())
		_, err := s.b.Send(t.Context(), s.Acme, id, "in 1 hour")
		s.Must(err)
		s.Run(s.b.Kinds()...)
		_, err = s.b.Cancel(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if b := s.broadcast(id); b.Status != broadcasts.Draft || !b.ScheduledAt.IsZero() {
			t.Fatalf("it is %s, at %s", b.Status, b.ScheduledAt)
		}
		s.mustCount(0, `SELECT COUNT(*) FROM jobs`)
		_, err = s.b.Send(t.Context(), s.Acme, id, s.DB.Now().Add(300*time.Millisecond).Format(time.RFC3339Nano))
		s.Must(err)
		s.walked(id, 2)
		s.mustCount(2, `SELECT COUNT(*) FROM emails`)
	})
}

// A problem that a user can fix pauses a broadcast and notifies the team; other problems end the broadcast with the
// status failed. Contacts that are added after a broadcast has started are not mailed.
func TestItStopsByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm   func(s *sender)
		mend   func(s *sender)
		reason broadcasts.Reason
		status broadcasts.Status
	}{
		"suspended": {
			harm:   func(s *sender) { s.Must(s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, true)) },
			mend:   func(s *sender) { s.Must(s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, false)) },
			reason: broadcasts.TeamSuspended, status: broadcasts.Paused,
		},
		"key deleted": {
			harm:   func(s *sender) { s.Must(s.Teams.DeleteKey(s.T.Context(), s.Acme.TeamID, s.Acme.ID)) },
			mend:   func(s *sender) { s.Acme.Kind, s.Acme.ID = "system", "" },
			reason: broadcasts.KeyDeleted, status: broadcasts.Paused,
		},
		"segment deleted": {
			harm:   func(s *sender) { s.Must(s.Contacts.Segments.Delete(s.T.Context(), s.Acme.TeamID, s.segment)) },
			reason: broadcasts.SegmentDeleted, status: broadcasts.Failed,
		},
		"domain deleted": {
			harm:   func(s *sender) { s.Must(s.Domains.Delete(s.T.Context(), s.Acme.TeamID, s.Sender.ID)) },
			reason: broadcasts.DomainNotVerified, status: broadcasts.Paused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				s.readers(3)
				id := s.draft(s.news())
				s.send(id)
				c.harm(s)
				s.Run(s.b.Kinds()...)
				s.until(id, c.status)
				b := s.broadcast(id)
				if b.Reason != c.reason || b.Reason.Message() == "" || b.Entered != 0 {
					t.Errorf("reason %q, %d entered", b.Reason, b.Entered)
				}
				testnode.Until(t, "the team is notified", func() bool {
					return strings.Contains(s.notifications(),
						b.Reason.Message())
				})
				if c.mend == nil {
					return
				}
				c.mend(s)
				entered := 3
				if s.broadcast(id).StartedAt.IsZero() {
					entered++
				}
				s.join("late@reader.example")
				s.Must(s.b.Resume(t.Context(), s.Acme, id))
				s.walked(id, entered)
			})
		})
	}
}

// A broadcast that would exceed the quota enqueues as many emails as the quota allows, and then pauses. When the
// broadcast is resumed with a larger quota, it mails the remaining contacts, and mails no contact twice.
func TestQuotaUsedUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		quota := func(n int64) {
			s.Must(s.Quotas.Set(t.Context(), s.Teams, s.Acme.TeamID, func(q *teams.Quota) { q.Monthly = n }))
		}
		quota(5)
		s.readers(12)
		id := s.draft(s.news())
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.until(id, broadcasts.Paused)
		if b := s.broadcast(id); b.Reason != broadcasts.MonthlyQuota || b.Entered != 5 {
			t.Errorf("paused for %q with %d entered, want 5", b.Reason, b.Entered)
		}
		testnode.Until(t, "the team is notified", func() bool {
			return strings.Contains(s.notifications(), broadcasts.MonthlyQuota.Message())
		})
		quota(12)
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.walked(id, 12)
		s.mustCount(12, `SELECT COUNT(DISTINCT contact_id) FROM emails`)
	})
}

// If there are too many bounces, the broadcast is paused, the team is notified and an event is recorded. After the
// broadcast has been resumed, it is not paused again because of bounces.
func TestGuard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		var seen testnode.Seen
		s.Recorder.Listen(&seen)
		const n = 240
		id := s.entered(n)
		at := s.emailsOf(id)
		happen := func(kind events.Type, ids []string) {
			for some := range slices.Chunk(ids, 50) {
				var all []events.Event
				for _, emailID := range some {
					e := events.Event{TeamID: s.Acme.TeamID, EmailID: emailID, BroadcastID: id, Type: kind,
						Recipient: s.Email(emailID).To[0]}
					if kind == events.EmailBounced {
						e.Data = &events.Bounce{Type: "Permanent", SubType: "NoEmail", Suppress: true}
					}
					all = append(all, e)
				}
				s.Happen(all...)
			}
		}
		happen(events.EmailDelivered, at[:200])
		happen(events.EmailBounced, at[200:210]) // 10 of 210
		s.Run(s.b.Kinds()...)
		s.dueNow("broadcast.guard")
		s.ended("broadcast.guard")
		if b := s.broadcast(id); b.Status != broadcasts.Queued {
			t.Fatalf("it is %s below the limit", b.Status)
		}
		happen(events.EmailBounced, at[210:215]) // 15 of 215
		s.dueNow("broadcast.guard")
		s.until(id, broadcasts.Paused)
		if b := s.broadcast(id); b.Reason != broadcasts.TooManyBounces {
			t.Errorf("paused for %q", b.Reason)
		}
		testnode.Until(t, "the team is notified", func() bool { return strings.Contains(s.notifications(), "bounced") })
		paused := 0
		for _, e := range seen.Take() {
			if e.Type == events.BroadcastPaused {
				paused++
				if d := e.Data.(*events.Broadcast); d.ID != id || d.Reason != "too_many_bounces" {
					t.Errorf("the event says %+v", d)
				}
			}
		}
		if paused != 1 {
			t.Errorf("%d events broadcast.paused, want 1", paused)
		}
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		happen(events.EmailBounced, at[215:220])
		s.dueNow("broadcast.guard")
		s.ended("broadcast.guard")
		if b := s.broadcast(id); b.Status != broadcasts.Queued {
			t.Errorf("it is %s again although it was resumed", b.Status)
		}
		all, _, _, err := s.b.Recipients(t.Context(), s.Acme.TeamID, id, broadcasts.RecipientQuery{Type: "bounced",
			BounceType: "permanent"}, pageOf(100))
		s.Must(err)
		if len(all) != 20 || all[0].BounceType != "permanent" {
			t.Errorf("%d bounced", len(all))
		}
	})
}

// If too many bounces arrive while a broadcast is paused by a user, the broadcast is paused again after it has been
// resumed.
func TestGuardLooksWhenResumed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(210)
		var delivered, bounced []events.Event
		for i, emailID := range s.emailsOf(id) {
			delivered = append(delivered, s.event(id, emailID, events.EmailDelivered))
			if i < 50 {
				e := s.event(id, emailID, events.EmailBounced)
				e.Data = &events.Bounce{Type: "Permanent", SubType: "NoEmail"}
				bounced = append(bounced, e)
			}
		}
		s.Happen(delivered...)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		s.Happen(bounced...)
		s.guard(id)
		if b := s.broadcast(id); b.Status != broadcasts.Paused || b.Reason != "" {
			t.Fatalf("it is %s for %q", b.Status, b.Reason)
		}
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.guard(id)
		if b := s.broadcast(id); b.Status != broadcasts.Paused || b.Reason != broadcasts.TooManyBounces {
			t.Errorf("after it was resumed it is %s for %q", b.Status, b.Reason)
		}
		if !strings.Contains(s.notifications(), "bounced") {
			t.Error("the team is not notified")
		}
		s.Must(s.b.Resume(t.Context(), s.Acme, id)) // after a notification
		s.mustCount(0, `SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.guard'`)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.mustCount(0, `SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.guard'`)
	})
}

// emailsOf returns the ids of a broadcast's emails.
func (s *sender) emailsOf(broadcastID string) []string {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), `SELECT email_id FROM broadcast_recipients WHERE broadcast_id = $1
		AND email_id IS NOT NULL ORDER BY contact_id`, db.ID(broadcastID))
	all, err := db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan((*db.ID)(&id))
		return id, err
	})
	s.Must(err)
	return all
}

// Mail hosts may have deferred emails of a broadcast that is already sent. If its team is suspended, such emails fail.
// If only the key that sent the broadcast is deleted, they are sent, like other accepted emails.
func TestSenderStopAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop   func(s *sender) error
		number int // of the state in emails.last_event
	}{
		"suspended": {func(s *sender) error { return s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, true) },
			9 /* failed */},
		"key deleted": {func(s *sender) error { return s.Teams.DeleteKey(s.T.Context(), s.Acme.TeamID, s.Acme.ID) },
			5 /* delivered */},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *sender) {
				id := s.entered(4)
				s.Update(func(tx *db.Tx) error { // as if a host had deferred all emails
					_, err := tx.Exec(t.Context(), `UPDATE broadcasts SET status = 'sent'`)
					return err
				})
				s.Must(c.stop(s))
				s.Run(s.delivery())
				testnode.Until(t, "no job is left", func() bool {
					return s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, emails.DeliveryKind) == 0
				})
				s.mustCount(4, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND last_event = $2`, db.ID(id), c.number)
			})
		})
	}
}
