package delivery

import (
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// cancel cancels an email, and checks whether it is canceled or refused.
func (f *fixture) cancel(emailID string, allowed bool) {
	f.T.Helper()
	err := f.Emails.Cancel(f.T.Context(), f.Acme.TeamID, emailID)
	if allowed && err != nil || !allowed && fault.KindOf(err) != fault.Invalid {
		f.T.Errorf("cancel: %v", err)
	}
}

// mustBeCanceled waits until no delivery job is left, and checks that emails are canceled with all their recipients.
func (f *fixture) mustBeCanceled(emailIDs ...string) {
	f.T.Helper()
	testnode.Until(f.T, "no job is left", func() bool { return f.jobsLeft() == 0 })
	for _, id := range emailIDs {
		if f.state(id) != emails.Canceled {
			f.T.Errorf("an email is %s", f.state(id))
		}
		f.event(id, events.EmailCanceled)
		to, err := f.Emails.Recipients(f.T.Context(), f.Acme.TeamID, id)
		f.Must(err)
		for _, r := range to {
			if r.State != emails.Canceled {
				f.T.Errorf("the recipient %s is %s", r.Address, r.State)
			}
		}
	}
}

// A withheld email can be canceled. It is not sent when the domain is back.
func TestCancelWithheld(t *testing.T) {
	t.Parallel()
	eachLoss(t, func(t *testing.T, d *db.DB, lose, mend func(f *fixture) error) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		n.host("example.org", "mx2.test", 10, mx.Addr)
		f := withholding(t, d, n.config(5), n)
		alone, several, sent := f.send(address(1)), f.send(address(2), "b@example.org"), f.send(address(3))
		f.cancel(alone, false) // it may be on its way
		f.Must(lose(f))
		f.run()
		for _, id := range []string{alone, sent} {
			f.wait(id, events.EmailDelayed)
		}
		f.wait(several, events.EmailDelayed, events.EmailDelayed)
		f.cancel(alone, true)
		f.cancel(several, true)
		f.cancel(alone, false)
		f.Must(mend(f))
		f.wait(sent, events.EmailDelivered)
		f.cancel(sent, false)
		f.mustBeCanceled(alone, several)
		if got := f.wait(alone); !slices.Equal(got, []string{"delivery_delayed", "canceled"}) {
			t.Errorf("events %q", got)
		}
		if all := mx.Wait(1); len(all) != 1 || all[0].To[0] != address(3) {
			t.Errorf("messages arrived for %+v", all)
		}
	})
}

// An email that was withheld before a retry can be canceled, too.
func TestCancelWithheldRetry(t *testing.T) {
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
		f.cancel(id, true)
		f.Must(mend(f))
		f.mustBeCanceled(id)
	})
}

// A withheld email cannot be canceled while the job of one of its recipients may send it: its job has been released, or
// has never been withheld.
func TestCancelWhileReleased(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var f *fixture
		id, held := "", make(chan bool)
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, _ string) string {
			f.cancel(id, false)
			close(held)
			return ""
		}})
		n := one(mx.Addr)
		f = withholding(t, d, n.config(5), n)
		id = f.send(address(1), "b@example.org")
		f.Must(losses["deleted"].lose(f))
		f.run()
		f.wait(id, events.EmailDelayed, events.EmailDelayed)
		f.Update(func(tx *db.Tx) error { // only the first destination goes on
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET held = 'test' WHERE lane LIKE 'example.org%'`)
			return err
		})
		f.Must(losses["deleted"].mend(f))
		<-held
		f.wait(id, events.EmailDelivered)
	})
}

// withheldSender is a sender whose email is withheld.
type withheldSender struct {
	key       teams.Key
	user, app teams.Actor // app is connected by user
}

// stops are changes while an email is withheld, each with the reason for which the email then fails when the domain is
// back; "" if the email is delivered.
var stops = map[string]struct {
	byKey  bool // whether the email was sent with a key; otherwise an app sent it
	stop   func(f *fixture, of withheldSender)
	reason string
}{
	"no change of a key":  {true, func(*fixture, withheldSender) {}, ""},
	"no change of an app": {false, func(*fixture, withheldSender) {}, ""},
	"key deleted": {true, func(f *fixture, of withheldSender) {
		f.Must(f.Teams.DeleteKey(f.T.Context(), f.Acme.TeamID, of.key.ID))
	}, ""},
	"suspended": {true, func(f *fixture, _ withheldSender) {
		f.Must(f.Teams.SetSuspended(f.T.Context(), f.Acme.TeamID, true))
	}, "account_suspended"},
	"revoked": {false, func(f *fixture, of withheldSender) {
		_, err := f.Grants.Revoke(f.T.Context(), of.app.TeamID, of.app.ID, grants.FromAPI)
		f.Must(err)
	}, "invalid_api_key"},
	"needs approval": {false, func(f *fixture, of withheldSender) { f.Limit(of.app, grants.Limits{Approval: true}) },
		"app_not_allowed"},
	"limited": {false, func(f *fixture, of withheldSender) { f.Limit(of.app, grants.Limits{Recipients: 1}) },
		"app_not_allowed"},
	"limited, but not too far": {false, func(f *fixture, of withheldSender) {
		f.Limit(of.app, grants.Limits{Recipients: 2})
	}, ""},
	"demoted": {false, func(f *fixture, of withheldSender) { f.SetRole(of.user, teams.Viewer) }, "app_not_allowed"},
}

// While an email is withheld, its sender may lose the right to send. An email that a key has sent goes out although the
// key was deleted. The email of a suspended team fails when the domain is back, and so does the email of an app that
// could not send a scheduled email either.
func TestSenderStopsWhileWithheld(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				mx := smtptest.NewServer(t, smtptest.Config{})
				n := one(mx.Addr)
				f := withholding(t, d, n.config(5), n)
				user := f.Member(f.Acme.TeamID, "ann@acme.example", teams.Admin)
				app, _ := f.Connect(user, "full_access", grants.Limits{})
				key, token := f.Key(f.Acme.TeamID, teams.NewKey{Name: "key", Permission: teams.FullAccess})
				by := app
				if c.byKey {
					var err error
					by, err = f.Teams.Authenticate(t.Context(), token)
					f.Must(err)
				}
				id, err := f.Emails.Send(t.Context(), by, testnode.Hello(address(1), address(2)), emails.Idempotency{})
				f.Must(err)
				f.Must(losses["deleted"].lose(f))
				f.run()
				f.wait(id, events.EmailDelayed)
				c.stop(f, withheldSender{key, user, app})
				f.Must(losses["deleted"].mend(f))
				if c.reason == "" {
					f.wait(id, events.EmailDelivered, events.EmailDelivered)
					return
				}
				f.wait(id, events.EmailFailed)
				if why := f.event(id, events.EmailFailed).Data.(*events.Failed).Reason; why != c.reason {
					t.Errorf("it failed with the reason %q", why)
				}
				if f.state(id) != emails.Failed || f.jobsLeft() != 0 {
					t.Errorf("it is %s, and %d jobs are left", f.state(id), f.jobsLeft())
				}
			})
		})
	}
}
