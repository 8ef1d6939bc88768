package grants_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/emails"
)

// An app's scheduled email is sent only if the app may still send it when it is due. A person may have demanded
// approval or set a limit in the meantime, or the user who connected the app may have a lower role.
func TestScheduledEmailOfApp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		granted grants.Limits // at the consent
		change  func(n *testnode.Node, user, app teams.Actor)
		reason  string // "" if the email is sent
		used    int64  // of the daily limit after the email was due
	}{
		"unchanged": {},
		"revoked": {reason: "invalid_api_key", change: func(n *testnode.Node, _, app teams.Actor) {
			_, err := n.Grants.Revoke(n.T.Context(), app.TeamID, app.ID, grants.FromAPI)
			n.Must(err)
		}},
		"needs approval": {reason: "app_not_allowed", change: func(n *testnode.Node, _, app teams.Actor) {
			n.Limit(app, grants.Limits{Approval: true})
		}},
		"too many recipients": {reason: "app_not_allowed", change: func(n *testnode.Node, _, app teams.Actor) {
			n.Limit(app, grants.Limits{Recipients: 1})
		}},
		"recipients within the limit": {change: func(n *testnode.Node, _, app teams.Actor) {
			n.Limit(app, grants.Limits{Recipients: 2})
		}},
		"too many a day": {reason: "app_limit_exceeded", change: func(n *testnode.Node, _, app teams.Actor) {
			n.Limit(app, grants.Limits{Emails: 1})
		}},
		"within the daily limit": {used: 2, change: func(n *testnode.Node, _, app teams.Actor) {
			n.Limit(app, grants.Limits{Emails: 2})
		}},
		"counted when it was accepted": {granted: grants.Limits{Emails: 2}, used: 2,
			change: func(n *testnode.Node, _, app teams.Actor) { n.Limit(app, grants.Limits{Emails: 3}) }},
		"demoted": {reason: "app_not_allowed", change: func(n *testnode.Node, user, _ teams.Actor) {
			n.SetRole(user, teams.Viewer)
		}},
		"demoted, but may still send": {change: func(n *testnode.Node, user, _ teams.Actor) {
			n.SetRole(user, teams.Member)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				n := testnode.New(t, d, testnode.Options{})
				user := n.Member(n.Acme.TeamID, "ann@acme.example", teams.Admin)
				app, _ := n.Connect(user, "emails:send", c.granted)
				e := testnode.Hello("a@reader.example", "b@reader.example")
				e.ScheduledAt = "in 1 hour"
				emailID, err := n.Emails.Send(t.Context(), app, e, emails.Idempotency{})
				n.Must(err)
				if c.change != nil {
					c.change(n, user, app)
				}
				wantDue(n, emailID, c.reason)
				u, err := n.Grants.Usage(t.Context(), app.TeamID, app.ID)
				if err != nil || u.Sent != c.used {
					t.Errorf("the app has sent %d, error %v", u.Sent, err)
				}
			})
		})
	}
}

// A scheduled email that a person approved is sent although the app needs approval, or has got a daily limit. If the
// user who connected the app loses the right to request approvals, the email is not sent.
func TestScheduledApprovedEmail(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		for role, reason := range map[teams.Role]string{teams.Admin: "", teams.Viewer: "app_not_allowed"} {
			user := n.Member(n.Acme.TeamID, string(role)+"@acme.example", teams.Admin)
			app, _ := n.Connect(user, "emails:send", grants.Limits{Approval: true})
			e := testnode.Hello("a@reader.example", "b@reader.example")
			e.ScheduledAt = "in 1 hour"
			a, err := n.Approvals.Request(t.Context(), app, e, emails.Idempotency{})
			n.Must(err)
			a, err = n.Approvals.Approve(t.Context(), n.Acme, a.ID)
			if err != nil || a.State != approvals.Approved {
				t.Fatalf("%s, %v", a.State, err)
			}
			n.SetRole(user, role)
			n.Limit(app, grants.Limits{Emails: 1}) // the approved email does not count
			wantDue(n, a.EmailID, reason)
		}
	})
}

// wantDue makes a scheduled email due. An empty reason means that the email must be queued; otherwise it must fail for
// that reason.
func wantDue(n *testnode.Node, emailID, reason string) {
	n.T.Helper()
	now := time.Now().Add(-time.Second).Format(time.RFC3339)
	n.Must(n.Emails.Reschedule(n.T.Context(), n.Acme.TeamID, emailID, now))
	defer n.Run(n.Emails.Kinds()...)()
	testnode.Until(n.T, "the email is due", func() bool { return n.Email(emailID).LastEvent != emails.Scheduled })
	state := emails.Queued
	if reason != "" {
		state = emails.Failed
	}
	if got := n.Email(emailID).LastEvent; got != state {
		n.T.Errorf("the email is %s, want %s", got, state)
	}
	if reason != "" && n.Count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1 AND type = 9 /* failed */
		AND data LIKE '%' || $2 || '%'`, db.ID(emailID), reason) != 1 {
		n.T.Errorf("the email did not fail because of %s", reason)
	}
}
