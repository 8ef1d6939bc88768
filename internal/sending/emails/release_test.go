package emails_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// makeDue makes a scheduled email due and runs its release job.
func (f *fixture) makeDue(t *testing.T, id string) {
	t.Helper()
	if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1`, db.ID(id))
		tx.Queue(t.Context(), `UPDATE jobs SET run_at = 1 WHERE dedupe = $1`, id)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f.release(t, func() bool { return f.state(id) != emails.Scheduled })
}

// A scheduled email fails if another team has its domain when it is due, or if its team was suspended after the email
// was accepted.
func TestReleaseRefuses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		fails := func(reason string, spoil func() error) {
			t.Helper()
			id := f.Send(s)
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			f.makeDue(t, id)
			timeline, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, id, page.Page{})
			if err != nil || f.state(id) != emails.Failed || !strings.Contains(timeline[len(timeline)-1].Data, reason) {
				t.Errorf("it is %s, and not failed by %s: %+v, %v", f.state(id), reason, timeline, err)
			}
		}
		fails("domain_not_verified", func() error {
			if err := f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID); err != nil {
				return err
			}
			other, err := f.Domains.AddVerified(t.Context(), f.Other.TeamID, domains.NewDomain{Name: "acme.example"})
			if err != nil {
				return err
			}
			f.Sender = other
			return nil
		})
		if err := f.Domains.Delete(t.Context(), f.Other.TeamID, f.Sender.ID); err != nil {
			t.Fatal(err)
		}
		f.Sender = f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "acme.example"})
		fails("account_suspended", func() error { return f.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true) })
	})
}

// A scheduled email whose domain was deleted is enqueued when it is due, because package delivery withholds it. If the
// team has added the domain again, the email belongs to the new domain.
func TestReleaseWithoutDomain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		lost, back := f.Send(s), f.Send(s)
		if err := f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID); err != nil {
			t.Fatal(err)
		}
		f.makeDue(t, lost)
		again := f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "acme.example"})
		f.makeDue(t, back)
		for id, domainID := range map[string]string{lost: f.Sender.ID, back: again.ID} {
			if e := f.Email(id); e.LastEvent != emails.Queued || e.DomainID != domainID {
				t.Errorf("an email is %s, of the domain %s, want %s", e.LastEvent, e.DomainID, domainID)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, emails.DeliveryKind); n != 2 {
			t.Errorf("%d emails are enqueued", n)
		}
	})
}
