package broadcasts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

// loseDomain deletes the domain of the test broadcasts.
func (s *sender) loseDomain() { s.Must(s.Domains.Delete(s.T.Context(), s.Acme.TeamID, s.Sender.ID)) }

// restoreDomain adds the deleted domain to a team again.
func (s *sender) restoreDomain(teamID string) {
	s.T.Helper()
	s.Sender = s.Verified(teamID, domains.NewDomain{Name: testnode.Domain})
}

func (s *sender) setSending(enabled bool) {
	s.T.Helper()
	s.Must(s.Domains.Update(s.T.Context(), s.Acme.TeamID, s.Sender.ID, domains.Change{
		Capabilities: domains.Capabilities{Sending: new(enabled), Receiving: new(true)}}))
}

// mustPause checks that a broadcast is paused because of its sender's domain.
func (s *sender) mustPause(broadcastID string) {
	s.T.Helper()
	if b := s.broadcast(broadcastID); b.Status != broadcasts.Paused || b.Reason != broadcasts.DomainNotVerified {
		s.T.Fatalf("it is %s, with the reason %q", b.Status, b.Reason)
	}
}

// A broadcast pauses when its sender's domain is lost and continues by itself when the domain is back. Each contact
// gets one email.
func TestDomainLostAndBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lose, mend func(s *sender) }{
		"deleted": {(*sender).loseDomain, func(s *sender) { s.restoreDomain(s.Acme.TeamID) }},
		"sending disabled": {func(s *sender) { s.setSending(false) }, func(s *sender) {
			s.setSending(true)
			s.restoreDomain(s.Acme.TeamID)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				const n = 40
				id := s.entered(n)
				other := s.otherSender()
				c.lose(s)
				s.mustPause(id)
				if notices := s.notifications(); strings.Count(notices, broadcasts.DomainNotVerified.Message()) != 1 {
					t.Errorf("the notices are %q", notices)
				}
				if b, err := s.b.Get(t.Context(), s.Other.TeamID, other); err != nil || b.Status != broadcasts.Queued {
					t.Errorf("another team's broadcast is %s, %v", b.Status, err)
				}
				s.runAll()
				s.held(n, id)
				s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
				s.ended("broadcast.continue")
				s.mustPause(id)
				s.mustCount(0, `SELECT COUNT(*) FROM email_events WHERE broadcast_id = $1 AND type <> 2 /* queued */`, db.ID(id))
				c.mend(s)
				s.until(id, broadcasts.Sent)
				testnode.Until(t, "no delivery is left", func() bool {
					return s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`) == 0
				})
				s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND last_event = 5 /* delivered */`, db.ID(id))
				s.mustCount(n, `SELECT COUNT(a.outcome) FROM email_events a JOIN emails e ON e.id = a.email_id
					WHERE e.broadcast_id = $1`, db.ID(id))
				s.mustCount(0, `SELECT COUNT(*) FROM email_events WHERE broadcast_id = $1 AND type = 4 /* delivery_delayed */`,
					db.ID(id))
			})
		})
	}
}

// A user who pauses a broadcast that waits for its domain decides that it does not go on by itself.
func TestPausedByAUserWhileTheDomainIsLost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 5
		id := s.entered(n)
		s.loseDomain()
		s.mustPause(id)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		s.restoreDomain(s.Acme.TeamID)
		s.runAll()
		s.ended("broadcast.continue")
		b, err := s.b.Get(t.Context(), s.Acme.TeamID, id)
		if s.Must(err); b.Status != broadcasts.Paused || b.Reason != "" {
			t.Errorf("the broadcast is %s, %q", b.Status, b.Reason)
		}
	})
}

// If a team has more broadcasts that are being sent than one transaction examines, a job pauses the others that the
// loss of a domain concerns. Broadcasts of another domain go on.
func TestDomainLostByManyBroadcasts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		draft := s.news()
		draft.From = "news@second.example"
		other, id := s.draft(draft), s.draft(s.news())
		for broadcastID, n := range map[string]int{other: 110, id: 120} {
			s.copies(broadcastID, n, func(int) (status, keyID string) { return "queued", s.Acme.ID })
		}
		s.loseDomain()
		const paused = `SELECT COUNT(*) FROM broadcasts WHERE status = 'paused' AND reason = 'domain_not_verified'`
		s.mustCount(0, paused) // the other domain's broadcasts are older
		for _, k := range s.b.Kinds() {
			if k.Name == "broadcast.lost" {
				s.Run(k)
			}
		}
		testnode.Until(t, "the others are paused", func() bool { return s.Count(paused) == 120 })
		s.mustCount(110, `SELECT COUNT(*) FROM broadcasts WHERE status = 'queued'`)
	})
}

// Package delivery pauses a broadcast whose domain was lost before this release, or while too many broadcasts were
// being sent.
func TestDeliveryPausesForDomain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 20
		id := s.entered(n)
		s.Domains.OnSendingLost = func(context.Context, *db.Tx, string, string) error { return nil }
		s.loseDomain()
		s.runAll()
		s.held(n, id)
		s.mustPause(id)
		if notices := s.notifications(); strings.Count(notices, broadcasts.DomainNotVerified.Message()) != 1 {
			t.Errorf("the notices are %q", notices)
		}
		s.restoreDomain(s.Acme.TeamID)
		s.until(id, broadcasts.Sent)
	})
}

// A scheduled broadcast pauses when it is due. It can be canceled, which makes it a draft again, or it starts by itself
// when the domain is back.
func TestScheduledBroadcastWaitsForDomain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(3)
		schedule := func() (broadcastID string) {
			id := s.draft(s.news())
			_, err := s.b.Send(t.Context(), s.Acme, id, s.DB.Now().Add(300*time.Millisecond).Format(time.RFC3339Nano))
			s.Must(err)
			return id
		}
		canceled, waits := schedule(), schedule()
		s.loseDomain()
		for _, id := range []string{canceled, waits} {
			if b := s.broadcast(id); b.Status != broadcasts.Scheduled {
				t.Errorf("it is %s before it is due", b.Status)
			}
		}
		s.runAll()
		for _, id := range []string{canceled, waits} {
			s.until(id, broadcasts.Paused)
			s.mustPause(id)
		}
		b, err := s.b.Cancel(t.Context(), s.Acme.TeamID, canceled)
		s.Must(err)
		if b.Status != broadcasts.Draft {
			t.Errorf("after it was canceled it is %s", b.Status)
		}
		s.restoreDomain(s.Acme.TeamID)
		s.until(waits, broadcasts.Sent)
		s.mustCount(3, `SELECT COUNT(*) FROM emails`)
		if b := s.broadcast(canceled); b.Status != broadcasts.Draft {
			t.Errorf("the draft is %s", b.Status)
		}
	})
}

// If variants have different senders, the broadcast waits until all their domains are back.
func TestVariantsWaitForAllDomains(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		second := s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		const n = 20
		s.readers(n)
		draft := s.news()
		draft.Variants = []broadcasts.Variant{{}, {From: new("B {{{FIRST_NAME|x}}} <b@second.example>")}}
		draft.Options = broadcasts.Options{TestShare: 100, Metric: broadcasts.ByHand}
		id := s.draft(draft)
		s.send(id)
		s.enqueued(id, n)
		s.loseDomain()
		s.mustPause(id)
		s.Must(s.Domains.Delete(t.Context(), s.Acme.TeamID, second.ID))
		s.runAll()
		s.held(n, id)
		s.restoreDomain(s.Acme.TeamID)
		s.ended("broadcast.continue")
		s.mustPause(id)
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		testnode.Until(t, "all are delivered", func() bool {
			return s.Count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == n
		})
	})
}

// A broadcast whose domain another team has stays paused until it is canceled. A broadcast whose team is suspended when
// the domain is back stays paused, too.
func TestBroadcastStaysPaused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 10
		id := s.entered(n)
		s.loseDomain()
		s.runAll()
		s.held(n, id)
		s.restoreDomain(s.Other.TeamID)
		s.mustPause(id)
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.until(id, broadcasts.Paused)
		s.mustPause(id)
		s.held(n, id)
		s.Must(s.Domains.Delete(t.Context(), s.Other.TeamID, s.Sender.ID))
		s.Must(s.Teams.SetSuspended(t.Context(), s.Acme.TeamID, true))
		s.restoreDomain(s.Acme.TeamID)
		s.ended("broadcast.continue")
		if b := s.broadcast(id); b.Status != broadcasts.Paused || b.Reason != broadcasts.TeamSuspended {
			t.Errorf("it is %s, with the reason %q", b.Status, b.Reason)
		}
		_, err := s.b.Cancel(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		testnode.Until(t, "its emails are canceled", func() bool {
			return s.Count(`SELECT COUNT(*) FROM emails WHERE last_event = 11 /* canceled */`) == n
		})
	})
}

// If too many bounces arrive while a broadcast waits for its domain, the broadcast is paused because of them as soon as
// the domain is back.
func TestGuardLooksWhenDomainIsBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(210)
		var delivered, bounced []events.Event
		for i, emailID := range s.emailsOf(id)[:205] {
			delivered = append(delivered, s.event(id, emailID, events.EmailDelivered))
			if i < 50 {
				e := s.event(id, emailID, events.EmailBounced)
				e.Data = &events.Bounce{Type: "Permanent", SubType: "NoEmail"}
				bounced = append(bounced, e)
			}
		}
		s.Happen(delivered...)
		s.loseDomain()
		s.Happen(bounced...)
		s.guard(id)
		s.mustPause(id)
		s.restoreDomain(s.Acme.TeamID)
		s.Run(s.b.Kinds()...)
		testnode.Until(t, "the broadcast is paused because of its bounces", func() bool {
			b := s.broadcast(id)
			return b.Status == broadcasts.Paused && b.Reason == broadcasts.TooManyBounces
		})
	})
}
