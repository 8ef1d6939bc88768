package broadcasts_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// changeFrom changes the sender of a broadcast.
func (s *sender) changeFrom(broadcastID, from string) error {
	_, err := s.b.Update(s.T.Context(), s.Acme, broadcastID, broadcasts.Change{From: &from})
	return err
}

// mustRefuse checks that a change is refused with a fault of the given kind.
func (s *sender) mustRefuse(broadcastID string, c broadcasts.Change, kind fault.Kind) {
	s.T.Helper()
	if _, err := s.b.Update(s.T.Context(), s.Acme, broadcastID, c); fault.KindOf(err) != kind {
		s.T.Errorf("the change %+v ends with %v", c, err)
	}
}

// captured returns the delivered messages by the address of their recipient, each with its envelope's sender as a first
// line.
func (s *sender) captured() map[string]string {
	s.T.Helper()
	outbox := capture.New(s.Blobs, nil)
	all, err := outbox.All(s.T.Context())
	s.Must(err)
	texts := map[string]string{}
	for _, m := range all {
		r, err := outbox.Open(s.T.Context(), m.ID)
		s.Must(err)
		text, err := io.ReadAll(r)
		s.Must(err)
		s.Must(r.Close())
		texts[m.Recipients[0]] = m.ReturnPath + "\r\n" + string(text)
	}
	return texts
}

// If another team takes the domain of a running broadcast, the broadcast stays paused until its sender is changed and
// it is resumed. All emails, enqueued or not, then go from the new sender, once each.
func TestChangedSender(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 24
		to := s.readers(n)
		draft := s.news()
		draft.From, draft.Options.Pace = "Acme for {{{FIRST_NAME|you}}} <news@"+testnode.Domain+">", 3600
		id := s.draft(draft)
		s.send(id)
		stop := s.Run(s.b.Kinds()...)
		testnode.Until(t, "it has begun", func() bool { return s.broadcast(id).Entered > 0 })
		s.loseDomain()
		stop()
		entered := s.broadcast(id).Entered
		s.restoreDomain(s.Other.TeamID)
		second := s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		s.runAll()
		s.held(int(entered), id)
		s.mustPause(id)

		const from = "Second for {{{FIRST_NAME|you}}} <hello@second.example>"
		for _, c := range []struct {
			broadcasts.Change
			kind fault.Kind
		}{
			{broadcasts.Change{Subject: new("Other")}, fault.Invalid},
			{broadcasts.Change{From: new(from), Subject: new("Other")}, fault.Invalid},
			{broadcasts.Change{From: new("a@third.example")}, fault.Forbidden},
			{broadcasts.Change{From: new(draft.From)}, fault.Forbidden},
			{broadcasts.Change{From: new("a@resend.dev")}, fault.Forbidden}, // for tests only
			{broadcasts.Change{From: new("{{{unknown}}} <a@second.example>")}, fault.Invalid},
			{broadcasts.Change{From: new("{{{LAST_NAME|x}}} <a@second.example>")}, fault.Invalid}, // unknown for enqueued emails
			{broadcasts.Change{Variants: &[]broadcasts.Variant{{From: new(from)}, {From: new(from)}}}, fault.Invalid},
		} {
			s.mustRefuse(id, c.Change, c.kind)
		}
		s.mustPause(id)
		s.Must(s.changeFrom(id, "typo@second.example"))
		s.Must(s.changeFrom(id, from))
		if b := s.broadcast(id); b.Status != broadcasts.Paused || b.Reason != broadcasts.SenderChanged || b.From != from ||
			b.Reason.Message() == "" {
			t.Errorf("after the change it is %s, %q, from %s", b.Status, b.Reason, b.From)
		}
		s.held(int(entered), id)
		s.Update(func(tx *db.Tx) error { // remove the pace so that the broadcast ends quickly
			_, err := tx.Exec(t.Context(), `UPDATE broadcasts SET options = '{}', next_at = 0`)
			return err
		})
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.until(id, broadcasts.Sent)

		s.mustCount(n, `SELECT COUNT(DISTINCT contact_id) FROM emails WHERE broadcast_id = $1
			AND last_event = 5 /* delivered */
			AND domain_id = $2`, db.ID(id), db.ID(second.ID))
		s.mustCount(n, `SELECT COUNT(*) FROM email_events WHERE outcome IS NOT NULL`)
		all := s.captured()
		for _, address := range to {
			text := all[address]
			envelope, _, _ := strings.Cut(text, "\r\n")
			if !strings.HasSuffix(envelope, "@send.second.example") || strings.Contains(text, testnode.Domain) ||
				!strings.Contains(text, "From: Second for Reader ") {
				t.Fatalf("the email to %s is %s", address, text)
			}
		}
		again, err := s.b.Duplicate(t.Context(), s.Acme.TeamID, id)
		if s.Must(err); again.From != from {
			t.Errorf("its duplicate is from %s", again.From)
		}
		s.mustRefuse(id, broadcasts.Change{From: new("a@second.example")}, fault.Invalid)
	})
}

// A sender can be changed while a broadcast waits for its domain: if it is scheduled, if it has paused when it was due,
// and if a user has paused it. Otherwise, only drafts can be changed.
func TestWhenTheSenderMayChange(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(3)
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		later := s.draft(s.news())
		_, err := s.b.Send(t.Context(), s.Acme, later, "in 1 hour")
		s.Must(err)
		due, paused := s.draft(s.news()), s.draft(s.news())
		_, err = s.b.Send(t.Context(), s.Acme, due, s.DB.Now().Add(300*time.Millisecond).Format(time.RFC3339Nano))
		s.Must(err)
		s.send(paused)
		stop := s.Run(s.b.Kinds()...)
		s.walked(paused, 3)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, paused))
		for _, id := range []string{later, paused} {
			s.mustRefuse(id, broadcasts.Change{From: new("a@second.example")}, fault.Invalid)
		}
		stop()
		s.loseDomain()
		s.runAll()
		s.until(due, broadcasts.Paused)
		reader := s.Acme
		reader.Scopes = teams.NewScopes(teams.BroadcastsWrite)
		limited := s.Acme
		limited.Limited = true
		restricted := s.Acme
		restricted.DomainID = s.Sender.ID
		for _, id := range []string{later, due, paused} {
			for _, by := range []teams.Actor{reader, limited, restricted} {
				if _, err := s.b.Update(t.Context(), by, id, broadcasts.Change{From: new("a@second.example")}); err == nil {
					t.Errorf("an actor that may not send from the domain changes the sender: %+v", by)
				}
			}
			s.Must(s.changeFrom(id, "a@second.example"))
		}
		if b := s.broadcast(later); b.Status != broadcasts.Scheduled || b.From != "a@second.example" {
			t.Errorf("the scheduled broadcast is %s, from %s", b.Status, b.From)
		}
		for _, id := range []string{due, paused} {
			s.Must(s.b.Resume(t.Context(), s.Acme, id))
			s.until(id, broadcasts.Sent)
		}
		s.mustCount(6, `SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */ AND sender = 'a@second.example'`)
	})
}

// Each variant that has a sender of its own can get another one. Emails of the other variants keep theirs.
func TestChangedSenderOfVariants(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		lost := s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "lost.example"})
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "third.example"})
		const n = 20
		s.readers(n)
		draft := s.news()
		draft.Variants = []broadcasts.Variant{{Subject: new("A")}, {Subject: new("B"), From: new("b@lost.example")}}
		draft.Options = broadcasts.Options{TestShare: 100, Metric: broadcasts.ByHand}
		id := s.draft(draft)
		s.send(id)
		s.enqueued(id, n)
		s.Must(s.Domains.Delete(t.Context(), s.Acme.TeamID, lost.ID))
		s.mustPause(id)
		s.mustRefuse(id, broadcasts.Change{From: new("a@third.example")}, fault.Forbidden) // the other variant is lost
		s.mustRefuse(id, broadcasts.Change{Variants: &[]broadcasts.Variant{{}}}, fault.Invalid)
		s.mustRefuse(id, broadcasts.Change{Variants: &[]broadcasts.Variant{{From: new("a@third.example")},
			{From: new("b@third.example")}}}, fault.Invalid)
		s.mustRefuse(id, broadcasts.Change{Variants: &[]broadcasts.Variant{{}, {Subject: new("C"),
			From: new("b@third.example")}}}, fault.Invalid)
		_, err := s.b.Update(t.Context(), s.Acme, id, broadcasts.Change{Variants: &[]broadcasts.Variant{{},
			{From: new("b@third.example")}}})
		s.Must(err)
		b := s.broadcast(id)
		if len(b.Variants) != 2 || *b.Variants[1].From != "b@third.example" || *b.Variants[1].Subject != "B" ||
			b.Variants[0].From != nil || b.From != draft.From {
			t.Errorf("after the change it is %+v", b)
		}
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.runAll()
		s.until(id, broadcasts.Sent)
		s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */ AND (subject = 'A' AND sender = $1
			OR subject = 'B' AND sender = 'b@third.example')`, draft.From)
		s.mustCount(2, `SELECT COUNT(DISTINCT sender) FROM emails`)
	})
}

// A job that has enqueued a page from the former sender enqueues the next page from the new one, even if the broadcast
// was paused, changed and resumed between the two pages.
func TestSenderChangedBetweenPages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 600 // more than a page
		s.readers(n)
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		id := s.draft(s.news())
		s.send(id)
		changed := false
		s.Recorder.Listen(afterCommit(func() {
			if changed {
				return // the changes record events, too
			}
			changed = true
			s.loseDomain()
			s.Must(s.changeFrom(id, "a@second.example"))
			s.Must(s.b.Resume(t.Context(), s.Acme, id))
		}))
		_, err := s.work(id)
		s.Must(err)
		s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1`, db.ID(id))
		if former := s.Count(`SELECT COUNT(*) FROM emails WHERE sender <> 'a@second.example'`); former != 100 && former != 500 {
			t.Errorf("%d emails are from the former sender", former)
		}
	})
}

// An email that was tried before the sender was changed keeps its Message-ID, because the first copy may have arrived.
func TestMessageIDOfChangedSender(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		id := s.entered(2)
		at := s.emailsOf(id)
		before := s.Email(at[0]).MessageID
		s.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET tries = 1 WHERE payload LIKE $1`, "%"+at[0]+"%")
			return err
		})
		s.loseDomain()
		s.Must(s.changeFrom(id, "a@second.example"))
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.runAll()
		s.until(id, broadcasts.Sent)
		if tried := s.Email(at[0]); tried.MessageID != before || tried.From != "a@second.example" ||
			tried.LastEvent != emails.Delivered {
			t.Errorf("the email that was tried is %s, %s, from %s", tried.MessageID, tried.LastEvent, tried.From)
		}
		if other := s.Email(at[1]); !strings.HasSuffix(other.MessageID, "@second.example>") {
			t.Errorf("the other email has the Message-ID %s", other.MessageID)
		}
	})
}
