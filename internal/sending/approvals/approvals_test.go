package approvals_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a node on which a user has authorized a connected app to request approvals.
type fixture struct {
	*testnode.Node
	*approvals.Service
	user, program teams.Actor
	seen          testnode.Seen
	mails         []string
}

func each(t *testing.T, f func(t *testing.T, f *fixture)) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		x := &fixture{Node: n, Service: n.Approvals}
		x.user = n.Member(n.Acme.TeamID, "ann@acme.example", teams.Member)
		x.program = x.granted(x.user, grants.Limits{Approval: true})
		x.Mail = func(_ context.Context, _ *db.Tx, to, subject, text string) error {
			x.mails = append(x.mails, to+": "+text)
			return nil
		}
		n.Recorder.Listen(&x.seen)
		f(t, x)
	})
}

// granted authorizes a connected app for a user and returns the app as an actor.
func (f *fixture) granted(by teams.Actor, l grants.Limits) teams.Actor {
	f.T.Helper()
	const redirect, verifier = "http://127.0.0.1/callback", "0123456789012345678901234567890123456789012"
	ctx := f.T.Context()
	c, err := f.Grants.Register(ctx, grants.NewClient{Name: "Notes", RedirectURIs: []string{redirect}})
	f.Must(err)
	hash := sha256.Sum256([]byte(verifier))
	r, err := f.Grants.CheckRequest(ctx, grants.Params{ClientID: c.ID, ResponseType: "code", RedirectURI: redirect,
		Scope: "emails:send templates:write", Challenge: base64.RawURLEncoding.EncodeToString(hash[:]),
		ChallengeMethod: "S256"})
	f.Must(err)
	r.Limits = l
	code, _, err := f.Grants.Approve(ctx, r, by)
	f.Must(err)
	tokens, err := f.Grants.Exchange(ctx, grants.ExchangeParams{ClientID: c.ID, Code: code, RedirectURI: redirect,
		Verifier: verifier})
	f.Must(err)
	program, err := f.Teams.Authenticate(ctx, tokens.Access)
	f.Must(err)
	return program
}

func (f *fixture) ask(e emails.Send) approvals.Approval {
	f.T.Helper()
	a, err := f.Request(f.T.Context(), f.program, e, emails.Idempotency{})
	f.Must(err)
	return a
}

func (f *fixture) state(a approvals.Approval) approvals.Approval {
	f.T.Helper()
	a, err := f.Get(f.T.Context(), f.Acme, a.ID)
	f.Must(err)
	return a
}

func (f *fixture) emails() int { return f.Count(`SELECT COUNT(*) FROM emails`) }

func wantFault(t *testing.T, err error, kind fault.Kind, substring string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), substring) {
		t.Errorf("error %v, want one of the kind %d with %q", err, kind, substring)
	}
}

// If Approve is called four times concurrently, the email is sent once, on behalf of the connected app that requested
// it. Listeners receive the events for the request and for the decision.
func TestApprove(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.ask(testnode.Hello("a@reader.example"))
		if a.State != approvals.Pending || len(f.mails) != 1 || !strings.HasPrefix(f.mails[0], "ann@acme.example: Notes") ||
			!strings.Contains(f.mails[0], testnode.PublicURL+"/app/approvals/"+a.ID) ||
			strings.Contains(f.mails[0], "Hello.") {
			t.Errorf("asked for %+v, mailed %q", a, f.mails)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if got, err := f.Approve(t.Context(), f.user, a.ID); err != nil || got.State != approvals.Approved ||
					got.EmailID == "" {
					t.Errorf("approved: %+v, error %v", got, err)
				}
			})
		}
		wg.Wait()
		got := f.state(a)
		if e := f.Email(got.EmailID); f.emails() != 1 || e.Actor != f.program.Ref() || got.DecidedBy != f.user.Ref() ||
			got.Email != nil {
			t.Errorf("%d emails, sent by %v, decided by %v", f.emails(), e.Actor, got.DecidedBy)
		}
		var types []events.Type
		for _, e := range f.seen.Take() {
			if e.EmailID == "" {
				types = append(types, e.Type)
			}
		}
		if len(types) != 2 || types[0] != events.ApprovalRequested || types[1] != events.ApprovalDecided {
			t.Errorf("told of %v", types)
		}
		_, err := f.Reject(t.Context(), f.user, a.ID, "")
		wantFault(t, err, fault.Invalid, "approved already")
	})
}

// If an email is approved and rejected at the same time, only one of the decisions succeeds.
func TestApproveAndReject(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for range 5 {
			a, before := f.ask(testnode.Hello("a@reader.example")), f.emails()
			var wg sync.WaitGroup
			var approved, rejected error
			wg.Go(func() { _, approved = f.Approve(t.Context(), f.user, a.ID) })
			wg.Go(func() { _, rejected = f.Reject(t.Context(), f.Acme, a.ID, "No.") })
			wg.Wait()
			got := f.state(a)
			if (approved == nil) != (got.State == approvals.Approved) ||
				(rejected == nil) != (got.State == approvals.Rejected) {
				t.Errorf("it is %s: approved %v, rejected %v", got.State, approved, rejected)
			}
			if sent := f.emails() - before; (sent == 1) != (got.State == approvals.Approved) || sent > 1 ||
				got.State == approvals.Pending {
				t.Errorf("%d emails sent, and it is %s", sent, got.State)
			}
		}
	})
}

// Concurrent requests with the same idempotency key create a single approval, even on several nodes.
func TestAskOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		key := emails.Idempotency{Scope: "POST /approvals", Key: "k", Hash: "h"}
		// The second service shares no memory with the first, like a service on another node.
		other := testnode.Must(approvals.New(testnode.PublicURL, approvals.Deps{DB: f.DB,
			Recorder: f.Recorder, Grants: f.Grants,
			Members: f.Members, Teams: f.Teams, Audit: f.Audit, Emails: testnode.Must(emails.New(emails.Config{MaxSize: 1 << 20},
				f.Emails.Deps))}))
		var wg sync.WaitGroup
		for _, s := range []*approvals.Service{f.Service, f.Service, other, other} {
			wg.Go(func() {
				if _, err := s.Request(context.WithoutCancel(t.Context()), f.program, testnode.Hello("a@reader.example"),
					key); err != nil && fault.KindOf(err) != fault.InFlight {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		a, err := f.Request(t.Context(), f.program, testnode.Hello("a@reader.example"), key)
		f.Must(err)
		if n := f.Count(`SELECT COUNT(*) FROM approvals`); n != 1 || f.state(a).State != approvals.Pending {
			t.Errorf("%d approvals", n)
		}
		_, err = f.Request(t.Context(), f.program, testnode.Hello("a@reader.example"), emails.Idempotency{
			Scope: key.Scope, Key: "k", Hash: "other"})
		wantFault(t, err, fault.IdempotencyMismatch, "another payload")
	})
}

// Even with concurrent operations, each approved email is sent once and no other email is sent. If a limit is exceeded,
// the approval stays pending and Approve returns the error for that limit.
func TestAtTheSameTime(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := context.WithoutCancel(t.Context())
		both := func(one, other func() error) (first, second error) {
			var wg sync.WaitGroup
			wg.Go(func() { first = one() })
			wg.Go(func() { second = other() })
			wg.Wait()
			return first, second
		}
		approve := func(by teams.Actor, a approvals.Approval) func() error {
			return func() error {
				got, err := f.Approve(ctx, by, a.ID)
				if err == nil && (got.State != approvals.Approved || got.EmailID == "") {
					t.Errorf("approved: %+v", got)
				}
				return err
			}
		}
		used := func() int64 {
			u, err := f.Grants.Usage(ctx, f.Acme.TeamID, f.program.ID)
			f.Must(err)
			return u.Sent
		}
		hello, most := testnode.Hello("a@reader.example"), int64(0)
		limit := func() { // the quota allows one more email
			most = used() + 1
			_, err := f.Grants.SetLimits(ctx, f.Acme, f.program.ID, func(l *grants.Limits) error {
				*l = grants.Limits{Emails: most, Approval: true}
				return nil
			})
			f.Must(err)
		}
		for range 2 {
			// The limit allows only one email. The second Approve call returns the approved email, not an error about the
			// exceeded limit.
			limit()
			a, before := f.ask(hello), f.emails()
			if one, other := both(approve(f.user, a), approve(f.Acme, a)); one != nil || other != nil ||
				f.emails() != before+1 || used() != most {
				t.Errorf("approve and approve: %v, %v, %d emails", one, other, f.emails()-before)
			}

			limit()
			a, b, before := f.ask(hello), f.ask(hello), f.emails()
			one, other := both(approve(f.user, a), approve(f.Acme, b))
			if other == nil {
				one, other, a, b = other, one, b, a
			}
			if one != nil || f.state(a).State != approvals.Approved || f.emails() != before+1 || used() != most {
				t.Errorf("at the limit: %v, %d emails", one, f.emails()-before)
			}
			wantFault(t, other, fault.DailyQuota, "emails a day")
			if got := f.state(b); got.State != approvals.Pending || got.Email == nil {
				t.Errorf("beyond the limit: %+v", got)
			}
			limit()
			f.Must(approve(f.user, b)())

			limit()
			a, before = f.ask(hello), f.emails()
			f.exec(`UPDATE approvals SET expires_at = $1 WHERE id = $2`, f.DB.Now().UnixMicro()+500, db.ID(a.ID))
			one, other = both(approve(f.user, a), func() error { return f.Sweep(ctx) })
			f.Must(other)
			f.Must(f.Sweep(ctx))
			switch got := f.state(a); {
			case one == nil && got.State == approvals.Approved && f.emails() == before+1:
			case one != nil && got.State == approvals.Expired && f.emails() == before && used() == most-1:
				wantFault(t, one, fault.Invalid, "expired already")
			default:
				t.Errorf("approve and expire: %v, %s, %d emails", one, got.State, f.emails()-before)
			}
		}
	})
}

// A connected app can neither approve nor reject emails, and it does not see other apps' requests.
func TestPrograms(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		a := f.ask(testnode.Hello("a@reader.example"))
		other := f.granted(f.user, grants.Limits{Approval: true})
		_, err := f.Get(ctx, other, a.ID)
		wantFault(t, err, fault.NotFound, "not found")
		if all, _, err := f.List(ctx, other, "", page.Page{}); err != nil || len(all) != 0 {
			t.Errorf("another program sees %v, error %v", all, err)
		}
		if all, _, err := f.List(ctx, f.program, approvals.Pending, page.Page{}); err != nil || len(all) != 1 {
			t.Errorf("the program sees %v, error %v", all, err)
		}
		_, err = f.Get(ctx, f.Other, a.ID)
		wantFault(t, err, fault.NotFound, "not found")
		for _, by := range []teams.Actor{f.program, other} {
			_, err = f.Approve(ctx, by, a.ID)
			wantFault(t, err, fault.OutOfScope, "Programs do not decide")
			_, err = f.Reject(ctx, by, a.ID, "")
			wantFault(t, err, fault.OutOfScope, "Programs do not decide")
		}
		_, err = f.Approve(ctx, f.Other, a.ID)
		wantFault(t, err, fault.NotFound, "not found")
		if f.emails() != 0 || f.state(a).State != approvals.Pending {
			t.Error("something was sent or decided")
		}
	})
}

// API keys and users may also request approvals. The email is sent on behalf of the requester, and the approval records
// who approved it.
func TestAskers(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		key, token := f.Key(f.Acme.TeamID, teams.NewKey{Name: "sender", Permission: teams.SendingAccess})
		sender, err := f.Teams.Authenticate(ctx, token)
		f.Must(err)
		ask := func(by teams.Actor) approvals.Approval {
			t.Helper()
			a, err := f.Request(ctx, by, testnode.Hello("a@reader.example"), emails.Idempotency{})
			f.Must(err)
			return a
		}
		other := f.Member(f.Acme.TeamID, "bob@acme.example", teams.Member)
		for _, by := range []teams.Actor{sender, f.user, other} {
			a, err := f.Approve(ctx, f.user, ask(by).ID)
			f.Must(err)
			if e := f.Email(a.EmailID); e.Actor != by.Ref() || a.DecidedBy != f.user.Ref() {
				t.Errorf("asked by %v, sent by %v, decided by %v", by.Ref(), e.Actor, a.DecidedBy)
			}
			if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE action = $1 AND target = $2 AND actor_id = $3`,
				audit.ApprovalApproved, a.ID, db.ID(f.user.ID)); n != 1 {
				t.Errorf("the audit log tells %d times that %s approved", n, f.user.ID)
			}
		}
		byKey, byViewer, byUser := ask(sender), ask(other), ask(other)
		f.Must(f.Teams.DeleteKey(ctx, f.Acme.TeamID, key.ID))
		f.failed(byKey, "API key that asked has been deleted")
		_, err = f.Members.SetRole(ctx, teams.System(f.Acme.TeamID), other.ID, teams.Viewer)
		f.Must(err)
		f.failed(byViewer, "approvals:request")
		f.Must(f.Members.Remove(ctx, teams.System(f.Acme.TeamID), other.ID))
		f.failed(byUser, "not a member of the team any more")
	})
}

// failed approves an email and checks that the approval fails for the expected reason and that no email is sent.
func (f *fixture) failed(a approvals.Approval, substring string) {
	f.T.Helper()
	before := f.emails()
	got, err := f.Approve(f.T.Context(), f.user, a.ID)
	if err != nil || got.State != approvals.Failed || !strings.Contains(got.Reason, substring) || f.emails() != before {
		f.T.Errorf("%+v, error %v, %d emails; want it failed with %q", got, err, f.emails()-before, substring)
	}
}

// If an approved email can no longer be sent, the approval is marked as failed, with the reason. A temporary error
// leaves the approval unchanged.
func TestApproveTooLate(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		limited := f.ask(testnode.Hello("a@reader.example"))
		set := func(l grants.Limits) {
			_, err := f.Grants.SetLimits(ctx, f.Acme, f.program.ID, func(old *grants.Limits) error { *old = l; return nil })
			f.Must(err)
		}
		two := f.ask(testnode.Hello("a@reader.example", "b@reader.example"))
		set(grants.Limits{Emails: 1, Approval: true})
		_, err := f.Approve(ctx, f.user, two.ID)
		wantFault(t, err, fault.DailyQuota, "may send 1 emails a day")
		if got := f.state(two); got.State != approvals.Pending || got.Email == nil {
			t.Errorf("beyond the limit it is %+v", got)
		}
		_, err = f.Request(ctx, f.program, testnode.Hello("a@reader.example", "b@reader.example"), emails.Idempotency{})
		wantFault(t, err, fault.DailyQuota, "may send 1 emails a day")
		set(grants.Limits{Recipients: 1, Approval: true})
		got, err := f.Approve(ctx, f.user, two.ID)
		if err != nil || got.State != approvals.Failed || !strings.Contains(got.Reason, "may write to 1 at once") {
			t.Errorf("with too many recipients: %+v, error %v", got, err)
		}
		f.Must(f.Members.Remove(ctx, teams.System(f.Acme.TeamID), f.user.ID))
		got, err = f.Approve(ctx, f.Acme, limited.ID)
		if err != nil || got.State != approvals.Failed || !strings.Contains(got.Reason, "may no longer act for the team") {
			t.Errorf("after the user left: %+v, error %v", got, err)
		}
		if f.emails() != 0 {
			t.Errorf("%d emails were sent", f.emails())
		}
	})
}

// The audit log has no entry for a decision that was rolled back.
func TestAuditBeyondQuota(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.ask(testnode.Hello("a@reader.example", "b@reader.example"))
		f.Must(f.Quotas.Set(t.Context(), f.Teams, f.Acme.TeamID, func(q *teams.Quota) { q.Daily = 5 }))
		for range 4 { // uses up most of the quota, so that the approved email would exceed it
			f.Send(testnode.Hello("a@reader.example"))
		}
		ctx := audit.With(t.Context(), audit.Entry{TeamID: f.Acme.TeamID, Action: audit.ApprovalApproved, Target: a.ID})
		_, err := f.Approve(ctx, f.user, a.ID)
		wantFault(t, err, fault.DailyQuota, "")
		if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE action = $1`, audit.ApprovalApproved); n != 0 {
			t.Errorf("the audit log tells of %d approvals", n)
		}
	})
}

// If nobody decides on an approval, it expires without the email being sent, and it is deleted later.
func TestExpiry(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		a := f.ask(testnode.Hello("a@reader.example"))
		f.Must(f.Sweep(ctx))
		if got := f.state(a).State; got != approvals.Pending {
			t.Errorf("at once it is %s", got)
		}
		f.exec(`UPDATE approvals SET expires_at = created_at`)
		_, err := f.Approve(ctx, f.user, a.ID)
		wantFault(t, err, fault.Invalid, "expired already")
		f.Must(f.Sweep(ctx))
		if got := f.state(a); got.State != approvals.Expired || got.Email != nil || f.emails() != 0 {
			t.Errorf("expired: %+v", got)
		}
		if n := len(f.seen.Take()); n != 2 {
			t.Errorf("told of %d events", n)
		}
		f.exec(`UPDATE approvals SET decided_at = 1`)
		f.Must(f.Sweep(ctx))
		_, err = f.Get(ctx, f.Acme, a.ID)
		wantFault(t, err, fault.NotFound, "not found")
	})
}

// The email that is sent is identical to the one shown for approval, even if the template has changed in between. The
// email is sent at its scheduled time.
func TestTemplateIsFixed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		made, err := f.Templates.Create(ctx, f.Acme.TeamID, templates.NewTemplate{Name: "Hello", Alias: "hello",
			HTML: new("<p>Hello {{{NAME}}}, {{{POSTRIDER_UNSUBSCRIBE_URL}}}</p>"), Variables: []templates.Declaration{
				{Key: "NAME", Type: "string"}}})
		f.Must(err)
		_, err = f.Templates.Publish(ctx, f.Acme.TeamID, made.ID)
		f.Must(err)
		in := testnode.Hello("a@reader.example")
		in.Text, in.HasTemplate, in.TemplateID, in.ScheduledAt = nil, true, made.ID, "in 1 hour"
		in.Variables = map[string]scalar.Value{"NAME": scalar.OfText("you")}
		topic, err := f.Contacts.CreateTopic(ctx, f.Acme.TeamID, contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		f.Must(err)
		in.TopicID = topic.ID
		a := f.ask(in)
		if a.Email.HTML == nil || *a.Email.HTML != "<p>Hello you, {{{POSTRIDER_UNSUBSCRIBE_URL}}}</p>" ||
			a.Email.TemplateID != "" ||
			!strings.HasSuffix(a.Email.ScheduledAt, "Z") {
			t.Fatalf("kept is %+v", a.Email)
		}
		_, err = f.Templates.Update(ctx, f.Acme.TeamID, made.ID, templates.Change{HTML: new("<p>Changed {{{NAME}}}</p>")})
		f.Must(err)
		_, err = f.Templates.Publish(ctx, f.Acme.TeamID, made.ID)
		f.Must(err)
		got, err := f.Approve(ctx, f.user, a.ID)
		f.Must(err)
		if e := f.Email(got.EmailID); e.HTML == nil ||
			*e.HTML != "<p>Hello you, {{{POSTRIDER_UNSUBSCRIBE_URL}}}</p>" || e.ScheduledAt.IsZero() {
			t.Errorf("sent is %+v", e)
		}
	})
}

// The numbers of pending requests and of notices are limited for each connected app.
func TestMany(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.ask(testnode.Hello("a@reader.example"))
		for range 99 {
			f.ask(testnode.Hello("a@reader.example"))
		}
		_, err := f.Request(t.Context(), f.program, testnode.Hello("a@reader.example"), emails.Idempotency{})
		wantFault(t, err, fault.Forbidden, "100 emails of this program wait")
		if len(f.mails) != 20 {
			t.Errorf("%d mails", len(f.mails))
		}
		_, err = f.Reject(t.Context(), f.user, first.ID, "")
		f.Must(err)
		f.ask(testnode.Hello("a@reader.example"))
		large := testnode.Hello("a@reader.example")
		large.Text = new(strings.Repeat("x", 900<<10))
		f.Must(f.EraseTeam(t.Context(), f.Acme.TeamID))
		f.ask(large)
	})
}

// When an address is erased, the pending approvals that contain it are deleted.
func TestEraseAddress(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.ask(testnode.Hello("Ann.Reader@reader.example"))
		remaining := f.ask(testnode.Hello("joann.reader@reader.example"))
		address, err := erasure.Parse("ann.reader@reader.example")
		f.Must(err)
		for _, dry := range []bool{true, false} {
			found, err := approvals.EraseAddress(ctx, f.DB, address, erasure.Scope{Teams: []string{f.Acme.TeamID}, DryRun: dry})
			f.Must(err)
			if len(found) != 1 || found[0].N != 1 {
				t.Errorf("found %v", found)
			}
		}
		all, _, err := f.List(ctx, f.Acme, "", page.Page{})
		f.Must(err)
		if len(all) != 1 || all[0].ID != remaining.ID {
			t.Errorf("left are %v", all)
		}
	})
}

func (f *fixture) exec(text string, args ...any) {
	f.T.Helper()
	f.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(context.WithoutCancel(f.T.Context()), text, args...)
		return err
	})
}
