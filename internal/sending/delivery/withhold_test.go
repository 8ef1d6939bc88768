package delivery

import (
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// losses are the ways in which the team Acme can lose the right to send from its domain, and can get it back.
var losses = map[string]struct{ lose, mend func(f *fixture) error }{
	"deleted": {
		lose: func(f *fixture) error { return f.Domains.Delete(f.T.Context(), f.Acme.TeamID, f.Sender.ID) },
		mend: func(f *fixture) error {
			_, err := f.Domains.AddVerified(f.T.Context(), f.Acme.TeamID, domains.NewDomain{Name: from})
			return err
		},
	},
	"sending disabled": {
		lose: func(f *fixture) error { return f.setSending(false) },
		mend: func(f *fixture) error {
			if err := f.setSending(true); err != nil {
				return err
			}
			_, err := f.Domains.AddVerified(f.T.Context(), f.Acme.TeamID, domains.NewDomain{Name: from})
			return err
		},
	},
}

func (f *fixture) setSending(enabled bool) error {
	return f.Domains.Update(f.T.Context(), f.Acme.TeamID, f.Sender.ID, domains.Change{
		Capabilities: domains.Capabilities{Sending: new(enabled), Receiving: new(true)}})
}

// withholding returns a fixture that also runs the jobs of package emails, which release withheld emails.
func withholding(t *testing.T, d *db.DB, c Config, n *network) *fixture {
	t.Helper()
	f := newFixture(t, d, c, n.dns)
	for _, k := range f.Emails.Kinds() {
		f.runner.Handle(k)
	}
	return f
}

func (f *fixture) held() int { return f.Count(`SELECT COUNT(*) FROM jobs WHERE held <> ''`) }

func eachLoss(t *testing.T, test func(t *testing.T, d *db.DB, lose, mend func(f *fixture) error)) {
	t.Helper()
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, d, loss.lose, loss.mend) })
		})
	}
}

// Emails from a domain that may not send are withheld, with one event for each job, and are delivered once when the
// domain may send again. Other domains and other teams do not release them.
func TestWithheldUntilTheDomainIsBack(t *testing.T) {
	t.Parallel()
	eachLoss(t, func(t *testing.T, d *db.DB, lose, mend func(f *fixture) error) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		n.host("example.org", "mx2.test", 10, mx.Addr)
		f := withholding(t, d, n.config(5), n)
		alone, several := f.send(address(1)), f.send(address(2), "b@example.org")
		f.Must(lose(f))
		f.run()
		f.wait(alone, events.EmailDelayed)
		f.wait(several, events.EmailDelayed, events.EmailDelayed)
		f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "second.example"})
		f.Verified(f.Other.TeamID, domains.NewDomain{Name: "other.example"})
		if held, wakes := f.held(), f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'emails.wake'`); held != 3 || wakes != 0 {
			t.Errorf("%d jobs are held, want 3, and %d jobs release them", held, wakes)
		}
		for _, id := range []string{alone, several} {
			if s := f.state(id); s != emails.Delayed {
				t.Errorf("an email is %s", s)
			}
		}
		if why := f.event(alone, events.EmailDelayed).Data.(*events.Delayed).Reason; why != "domain_not_verified" {
			t.Errorf("the reason is %q", why)
		}
		f.Must(mend(f))
		got, want := f.wait(alone, events.EmailDelivered), []string{"delivery_delayed", "sent", "delivered " + address(1)}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		got = f.wait(several, events.EmailDelivered, events.EmailDelivered)
		if sent := slices.DeleteFunc(got, func(e string) bool { return e != "sent" }); len(sent) != 1 {
			t.Errorf("the email with two recipients was recorded as sent %d times", len(sent))
		}
		if n := len(mx.Wait(3)); n != 3 || f.jobsLeft() != 0 {
			t.Errorf("%d messages arrived and %d jobs are left", n, f.jobsLeft())
		}
	})
}

// An email whose retry is due after the domain was lost is withheld, too.
func TestRetryIsWithheld(t *testing.T) {
	t.Parallel()
	eachLoss(t, func(t *testing.T, d *db.DB, lose, mend func(f *fixture) error) {
		var f *fixture
		refused := false
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, _ string) string {
			if refused {
				return ""
			}
			refused = true
			f.Must(lose(f))
			return "451 4.3.0 try again"
		}})
		n := one(mx.Addr)
		f = withholding(t, d, n.config(5), n)
		id := f.send(address(0))
		f.run()
		f.wait(id, events.EmailDelayed, events.EmailDelayed)
		f.Must(mend(f))
		want := []string{"sent", "delivery_delayed " + address(0), "delivery_delayed", "delivered " + address(0)}
		if got := f.wait(id, events.EmailDelivered); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// A withheld email fails a day after it was due. An email that was due earlier than that fails without a delay.
func TestWithheldForADay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := one("")
		f := withholding(t, d, n.config(5), n)
		soon, over, scheduled := f.send(address(1)), f.send(address(2)), f.send(address(3))
		f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID))
		f.Update(func(tx *db.Tx) error {
			ctx, due := t.Context(), tx.Now().Add(-emails.WithholdFor)
			tx.Queue(ctx, `UPDATE emails SET created_at = $2 WHERE id = $1`, db.ID(soon), due.Add(3*time.Second).UnixMicro())
			tx.Queue(ctx, `UPDATE emails SET created_at = $2 WHERE id = $1`, db.ID(over), due.UnixMicro())
			tx.Queue(ctx, `UPDATE emails SET created_at = $2, scheduled_at = $3 WHERE id = $1`, db.ID(scheduled),
				due.UnixMicro(), due.Add(time.Hour).UnixMicro())
			return nil
		})
		f.run()
		for id, want := range map[string][]string{over: {"failed"}, soon: {"delivery_delayed", "failed"}} {
			if got := f.wait(id, events.EmailFailed); !slices.Equal(got, want) {
				t.Errorf("events %q, want %q", got, want)
			}
			if reason := f.event(id, events.EmailFailed).Data.(*events.Failed).Reason; reason != "domain_not_verified" {
				t.Errorf("reason %q", reason)
			}
		}
		if f.wait(scheduled, events.EmailDelayed); f.state(scheduled) != emails.Delayed || f.jobsLeft() != 1 {
			t.Errorf("the scheduled email is %s, and %d jobs are left", f.state(scheduled), f.jobsLeft())
		}
	})
}

// If another team may send from the domain, withheld emails and emails that become due fail immediately.
func TestWithheldMailOfATakenDomainFails(t *testing.T) {
	t.Parallel()
	for name, withheld := range map[string]bool{"withheld": true, "not due yet": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				n := one("")
				f := withholding(t, d, n.config(5), n)
				alone, several := f.send(address(1)), f.send(address(2), "b@example.org")
				f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID))
				want := []string{"failed"}
				if withheld {
					f.run()
					f.wait(alone, events.EmailDelayed)
					f.wait(several, events.EmailDelayed, events.EmailDelayed)
					want = []string{"delivery_delayed", "failed"}
				}
				f.Verified(f.Other.TeamID, domains.NewDomain{Name: from})
				if !withheld {
					f.run()
				}
				if got := f.wait(alone, events.EmailFailed); !slices.Equal(got, want) {
					t.Errorf("events %q, want %q", got, want)
				}
				f.wait(several, events.EmailFailed, events.EmailFailed)
				if f.state(alone) != emails.Failed || f.state(several) != emails.Failed || f.jobsLeft() != 0 {
					t.Errorf("states %s and %s, %d jobs", f.state(alone), f.state(several), f.jobsLeft())
				}
			})
		})
	}
}
