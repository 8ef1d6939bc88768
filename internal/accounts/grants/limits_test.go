package grants_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
)

// limited creates a grant with limits for the fixture's client and returns the actor for that grant.
func (f *fixture) limited(l grants.Limits) teams.Actor {
	f.T.Helper()
	p := f.params()
	p.Scope = "full_access"
	r, err := f.CheckRequest(f.T.Context(), p)
	f.Must(err)
	r.Limits = l
	code, _, err := f.Approve(f.T.Context(), r, f.Acme)
	f.Must(err)
	tokens, err := f.Exchange(f.T.Context(), grants.ExchangeParams{ClientID: f.client.ID, Code: code,
		RedirectURI: redirect,
		Verifier:    verifier})
	f.Must(err)
	by, err := f.Node.Teams.Authenticate(f.T.Context(), tokens.Access)
	f.Must(err)
	return by
}

func (f *fixture) sendBy(by teams.Actor, to ...string) error {
	_, err := f.Emails.Send(f.T.Context(), by, testnode.Hello(to...), emails.Idempotency{})
	return err
}

// wantLimit checks that an error is a fault of the given kind whose message names the limit.
func wantLimit(t *testing.T, err error, kind fault.Kind, names string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), names) {
		t.Errorf("error %v, want one of the kind %d with %q", err, kind, names)
	}
}

// No operation that sends emails lets an app exceed its sending limits.
func TestLimits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		by := f.limited(grants.Limits{Recipients: 2, Emails: 5})
		if !by.Limited || by.Scopes.Has(teams.KeysWrite) {
			t.Errorf("the actor is limited: %v, with %s", by.Limited, by.Scopes)
		}
		one := testnode.Hello("a@reader.example")
		one.Cc, one.Bcc = []string{"b@reader.example"}, []string{"c@reader.example"}
		_, err := f.Emails.Send(ctx, by, one, emails.Idempotency{})
		wantLimit(t, err, fault.Invalid, "may write to 2 at once")
		f.Must(f.sendBy(by, "a@reader.example", "b@reader.example"))
		later := testnode.Hello("a@reader.example")
		later.ScheduledAt = "in 2 days"
		_, err = f.Emails.Send(ctx, by, later, emails.Idempotency{})
		f.Must(err)
		batch := []emails.Send{testnode.Hello("a@reader.example"), testnode.Hello("b@reader.example", "c@reader.example")}
		_, err = f.Emails.SendBatch(ctx, by, batch, false, emails.Idempotency{})
		wantLimit(t, err, fault.DailyQuota, "may send 5 emails a day")
		if u, err := f.Usage(ctx, f.Acme.TeamID, by.ID); err != nil || u.Sent != 3 || u.Emails != 5 {
			t.Errorf("used %+v, error %v", u, err)
		}
		f.Must(f.CheckLimits(ctx, by, 2))
		wantLimit(t, f.CheckLimits(ctx, by, 2, 1), fault.DailyQuota, "has sent 3 today")
		_, err = f.Emails.SendBatch(ctx, by, batch[:1], false, emails.Idempotency{})
		f.Must(err)
		f.Must(f.sendBy(by, "a@reader.example"))
		wantLimit(t, f.sendBy(by, "a@reader.example"), fault.DailyQuota, "may send 5 emails a day")

		// An app's limit does not apply to other actors of the team, and the app's count starts again at zero the next day.
		f.Send(testnode.Hello("a@reader.example", "b@reader.example", "c@reader.example"))
		f.exec(`UPDATE grant_volumes SET day = day - 1`)
		f.Must(f.sendBy(by, "a@reader.example"))
		if u, err := f.Usage(ctx, f.Acme.TeamID, by.ID); err != nil || u.Sent != 1 {
			t.Errorf("used %+v on the next day, error %v", u, err)
		}
	})
}

// In a permissive batch, the emails within the app's limits are sent, and the refused emails are listed as errors. If
// the daily limit allows none of the emails, the whole batch is refused with the same error as a single email.
func TestLimitsOfPermissiveBatch(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		by := f.limited(grants.Limits{Recipients: 2, Emails: 4})
		to := func(n int) emails.Send {
			return testnode.Hello([]string{"a@reader.example", "b@reader.example", "c@reader.example"}[:n]...)
		}
		broken := to(1)
		broken.Subject = ""
		batch := []emails.Send{to(3), to(2), broken, to(1), to(2), to(1), to(1)}
		_, err := f.Emails.SendBatch(ctx, by, batch, false, emails.Idempotency{})
		if err == nil || f.Count(`SELECT COUNT(*) FROM emails`) != 0 {
			t.Errorf("a strict batch: %v", err)
		}
		key := emails.Idempotency{Scope: "POST /emails/batch", Key: "k", Hash: "h"}
		for range 2 {
			got, err := f.Emails.SendBatch(ctx, by, batch, true, key)
			f.Must(err)
			var refused []string
			for _, e := range got.Errors {
				refused = append(refused, fmt.Sprint(e.Index, " ", e.Message))
			}
			all := strings.Join(refused, "\n")
			if len(got.IDs) != 3 || len(refused) != 4 || !strings.HasPrefix(all, "0 The email has 3 recipients") ||
				!strings.Contains(all, "\n2 Missing `subject`") ||
				!strings.Contains(all, "\n4 This app may send 4 emails a day") ||
				!strings.Contains(all, "\n6 This app may") {
				t.Errorf("%d emails were accepted, refused: %s", len(got.IDs), all)
			}
		}
		if u, err := f.Usage(ctx, f.Acme.TeamID, by.ID); err != nil || u.Sent != 4 {
			t.Errorf("used %+v, error %v", u, err)
		}
		_, err = f.Emails.SendBatch(ctx, by, batch, true, emails.Idempotency{})
		wantLimit(t, err, fault.DailyQuota, "has sent 4 today")
		got, err := f.Emails.SendBatch(ctx, by, []emails.Send{to(3), broken}, true, emails.Idempotency{})
		if err != nil || len(got.IDs) != 0 || len(got.Errors) != 2 {
			t.Errorf("%+v, error %v", got, err)
		}
	})
}

// If a node with a slow clock accepts an email just after midnight, the email counts toward the new day, so that the
// new day's count is not reset. A stored count for a day after the next one comes from a wrong clock and is ignored.
func TestLimitAtMidnight(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		by := f.limited(grants.Limits{Emails: 2})
		f.Must(f.sendBy(by, "a@reader.example"))
		f.exec(`UPDATE grant_volumes SET day = day + 1`)
		f.Must(f.sendBy(by, "a@reader.example"))
		wantLimit(t, f.sendBy(by, "a@reader.example"), fault.DailyQuota, "has sent 2 today")
		if n := f.Count(`SELECT COUNT(*) FROM grant_volumes WHERE used = 2`); n != 1 {
			t.Error("the count began twice")
		}
		f.exec(`UPDATE grant_volumes SET day = day + 1`)
		f.Must(f.sendBy(by, "a@reader.example"))
	})
}

// Concurrent emails do not exceed the daily limit, and refused emails do not count toward the limits of the app or the
// team.
func TestLimitAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.Must(f.Quotas.Set(t.Context(), f.Node.Teams, f.Acme.TeamID, func(q *teams.Quota) { q.Daily = 1000 }))
		by := f.limited(grants.Limits{Emails: 7})
		var sent atomic.Int64
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				for range 4 {
					switch err := f.sendBy(by, "a@reader.example"); {
					case err == nil:
						sent.Add(1)
					case fault.KindOf(err) != fault.DailyQuota:
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		u, err := f.Quotas.Usage(t.Context(), f.Acme.TeamID)
		f.Must(err)
		if sent.Load() != 7 || u.Day != 7 {
			t.Errorf("%d emails were accepted, and %d counted for the team", sent.Load(), u.Day)
		}
	})
}

// An app with limits cannot send broadcasts, because a broadcast can have any number of recipients.
func TestLimitedSendsNoBroadcast(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := testnode.Must(broadcasts.New(broadcasts.Config{MaxSize: 1 << 20}, broadcasts.Deps{DB: f.Node.DB, Queue: f.Queue,
			Recorder: f.Recorder, Emails: f.Emails, Contents: f.Contents,
			Domains: f.Domains, Contacts: f.Contacts, Teams: f.Node.Teams,
			Log: f.Log, Notify: f.Quotas.Notify}))
		by := f.limited(grants.Limits{Recipients: 1})
		wantLimit(t, s.Resume(t.Context(), by, "x"), fault.Forbidden, "does not send broadcasts")
		c := content.Compile(&content.Content{TeamID: f.Acme.TeamID, From: "hello@" + testnode.Domain, Subject: "Hi",
			HTML: new("<p>Hello</p>")})
		_, err := f.Emails.MailingOf(t.Context(), by, c, true)
		wantLimit(t, err, fault.Forbidden, "does not send broadcasts")
		if _, err := f.Emails.MailingOf(t.Context(), f.Acme, c, true); err != nil {
			t.Errorf("a key sends: %v", err)
		}
	})
}

// A person can change an app's limits with immediate effect, but an app cannot change them.
func TestSetLimits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		tokens := f.granted(f.Acme, "full_access")
		by := f.works(tokens.Access, true)
		if by.Limited || !by.Scopes.Has(teams.KeysWrite) {
			t.Errorf("limited %v from the start", by.Limited)
		}
		set := func(l grants.Limits) func(*grants.Limits) error {
			return func(old *grants.Limits) error { *old = l; return nil }
		}
		_, err := f.SetLimits(ctx, by, by.ID, set(grants.Limits{}))
		wantLimit(t, err, fault.OutOfScope, "cannot change limits")
		_, err = f.SetLimits(ctx, f.Other, by.ID, set(grants.Limits{}))
		wantLimit(t, err, fault.NotFound, "not found")
		_, err = f.SetLimits(ctx, f.Acme, by.ID, set(grants.Limits{Recipients: 151}))
		wantLimit(t, err, fault.Invalid, "1 to 150")
		_, err = f.SetLimits(ctx, f.Acme, by.ID, set(grants.Limits{Emails: -1}))
		wantLimit(t, err, fault.Invalid, "1 to 1000000")
		_, err = f.SetLimits(ctx, f.Acme, by.ID, set(grants.Limits{Approval: true}))
		f.Must(err)
		if by = f.works(tokens.Access, true); by.Scopes.Has(teams.EmailsSend) || !by.Scopes.Has(teams.ApprovalsRequest) {
			t.Errorf("under approval it has %s", by.Scopes)
		}
		if f.recorded("grant.revoked") != 0 {
			t.Error("revoked")
		}
		_, err = f.Revoke(ctx, f.Acme.TeamID, by.ID, grants.FromAPI)
		f.Must(err)
		_, err = f.SetLimits(ctx, f.Acme, by.ID, set(grants.Limits{}))
		wantLimit(t, err, fault.NotFound, "not found")
	})
}

// A member's grants in a team are revoked when the membership ends. All grants of a user are revoked when the user is
// disabled or deleted.
func TestGrantsEndWithTheirUser(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		for name, end := range map[string]func(userID string) error{
			"left":     func(userID string) error { return f.Node.Members.Leave(ctx, f.Acme.TeamID, userID) },
			"removed":  func(userID string) error { return f.Node.Members.Remove(ctx, teams.System(f.Acme.TeamID), userID) },
			"disabled": func(userID string) error { return f.Users.SetDisabled(ctx, userID, true) },
			"deleted":  func(userID string) error { return f.Users.Delete(ctx, userID) },
		} {
			by := f.member(name+"@acme.example", teams.Member)
			token := f.granted(by, "emails:read").Access
			grantID := f.works(token, true).ID
			f.Must(end(by.ID))
			f.works(token, false)
			if n := f.Count(`SELECT COUNT(*) FROM oauth_grants WHERE id = $1 AND revoked_reason = 'user_left'`,
				db.ID(grantID)); n != 1 {
				t.Errorf("%s: the grant is not revoked", name)
			}
		}
	})
}

// Two concurrent changes to limits do not undo each other, for example if a person requires approval while a script
// sets a daily limit.
func TestSetLimitsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		by := f.limited(grants.Limits{})
		for round := int64(1); round <= 20; round++ {
			_, err := f.SetLimits(t.Context(), f.Acme, by.ID, func(l *grants.Limits) error {
				*l = grants.Limits{}
				return nil
			})
			f.Must(err)
			var all sync.WaitGroup
			for _, change := range []func(*grants.Limits){func(l *grants.Limits) { l.Approval = true },
				func(l *grants.Limits) { l.Emails = round }, func(l *grants.Limits) { l.Recipients = round }} {
				all.Go(func() {
					_, err := f.SetLimits(t.Context(), f.Acme, by.ID, func(l *grants.Limits) error {
						change(l)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			want := grants.Limits{Recipients: round, Emails: round, Approval: true}
			if got := f.only().Limits; got != want {
				t.Fatalf("round %d: %+v", round, got)
			}
		}
	})
}

// Concurrent permissive batches send exactly as many emails as the daily limit allows.
func TestLimitsOfPermissiveBatchesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		const limit = 10
		for range 5 {
			by := f.limited(grants.Limits{Emails: limit})
			var sent atomic.Int64
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					batch := []emails.Send{testnode.Hello("a@reader.example"), testnode.Hello("b@reader.example"),
						testnode.Hello("c@reader.example")}
					got, err := f.Emails.SendBatch(t.Context(), by, batch, true, emails.Idempotency{})
					switch {
					case err == nil && len(got.IDs)+len(got.Errors) == len(batch):
						sent.Add(int64(len(got.IDs)))
					case fault.KindOf(err) != fault.DailyQuota:
						t.Errorf("%+v, %v", got, err)
					}
				})
			}
			all.Wait()
			if sent.Load() != limit {
				t.Errorf("%d emails went, of %d that may", sent.Load(), limit)
			}
		}
	})
}
