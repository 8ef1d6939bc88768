package notifications_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/notifications"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestNotify(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, out := t.Context(), &testnode.Logged{}
		n := testnode.New(t, d, testnode.Options{Log: slog.New(slog.NewTextHandler(out, nil))})
		reachable := n.Other
		silent, err := n.Teams.Create(ctx, "Silent", "")
		n.Must(err)

		notify := func(from, teamID, subject string) {
			t.Helper()
			s := notifications.New(notifications.Config{From: from}, d, n.Queue, n.Emails, n.Teams, n.Log)
			n.Update(func(tx *db.Tx) error { return s.Notify(ctx, tx, teamID, subject, "Look at it.") })
			runAll(t, n, s.Kind(), 1)
		}
		const from = "Postrider <notices@acme.example>"
		notify(from, reachable.TeamID, "It fails")
		list, _, err := n.Emails.List(ctx, n.Acme.TeamID, page.Page{})
		n.Must(err)
		if e := list[0]; e.From != from || e.Subject != "It fails" || e.To[0] != "owner@acme.example" {
			t.Errorf("sent %+v", e)
		}
		for _, x := range []struct{ from, team, subject, why string }{
			{"", reachable.TeamID, "No sender", "set notice_from"}, {from, silent.ID, "No address", "the team has no address"},
			{"x@elsewhere.example", reachable.TeamID, "Not verified", "its email was refused"},
		} {
			notify(x.from, x.team, x.subject)
			if !strings.Contains(out.String(), x.why) {
				t.Errorf("%s: the log does not say %q", x.subject, x.why)
			}
		}
		if list, _, err = n.Emails.List(ctx, n.Acme.TeamID, page.Page{}); err != nil || len(list) != 1 {
			t.Errorf("%d emails were sent, %v", len(list), err)
		}

		another, _ := n.Team("Another")
		s := notifications.New(notifications.Config{From: from}, d, n.Queue, n.Emails, n.Teams, n.Log)
		n.Update(func(tx *db.Tx) error {
			for range 30 {
				if err := s.Notify(ctx, tx, reachable.TeamID, "It fails again", "Look at it."); err != nil {
					return err
				}
			}
			return s.Notify(ctx, tx, another.TeamID, "It fails, too", "Look at it.")
		})
		runAll(t, n, s.Kind(), 31)
		list, _, err = n.Emails.List(ctx, n.Acme.TeamID, page.Page{Limit: 100})
		n.Must(err)
		if len(list) != 1+20+1 || !strings.Contains(out.String(), "the team has reached its daily limit") {
			t.Errorf("of 30 notices to a team and one to another, %d were sent", len(list)-1)
		}
	})
}

// If the emails of several notices are refused, the log contains the text of each, although it limits lines with the
// same cause.
func TestEachRefusedNoticeIsLogged(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const many = 3 * lograte.Burst
		ctx, out := t.Context(), &testnode.Logged{}
		n := testnode.New(t, d, testnode.Options{Log: slog.New(lograte.NewHandler(slog.NewTextHandler(out, nil)))})
		s := notifications.New(notifications.Config{From: "x@elsewhere.example"}, d, n.Queue, n.Emails, n.Teams, n.Log)
		n.Update(func(tx *db.Tx) error {
			for i := range many {
				if err := s.Notify(ctx, tx, n.Other.TeamID, "It fails", fmt.Sprintf("Notice <%d>.", i)); err != nil {
					return err
				}
			}
			return nil
		})
		runAll(t, n, s.Kind(), many)
		for i := range many {
			if text := fmt.Sprintf("Notice <%d>.", i); !strings.Contains(out.String(), text) {
				t.Errorf("the log does not contain %q", text)
			}
		}
	})
}

// An email to a person is sent to that person's address. The text of an email to a person may contain a secret link, so
// it is never logged.
func TestMailIsNotLogged(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, out := t.Context(), &testnode.Logged{}
		n := testnode.New(t, d, testnode.Options{Log: slog.New(slog.NewTextHandler(out, nil))})
		for i, from := range []string{"notices@acme.example", "", "x@elsewhere.example"} {
			s := notifications.New(notifications.Config{From: from}, d, n.Queue, n.Emails, n.Teams, n.Log)
			n.Update(func(tx *db.Tx) error {
				return s.Mail(ctx, tx, "ann@one.example", "Come",
					"https://secret.example")
			})
			runAll(t, n, s.Kind(), 1)
			list, _, err := n.Emails.List(ctx, n.Acme.TeamID, page.Page{})
			n.Must(err)
			if len(list) != 1 || list[0].To[0] != "ann@one.example" || list[0].Subject != "Come" ||
				list[0].From != "notices@acme.example" {
				t.Errorf("%q: %+v", from, list)
			}
			if text := out.String(); strings.Contains(text, "secret") || strings.Count(text, "not sent") != i {
				t.Errorf("%q: log\n%s", from, text)
			}
		}
	})
}

// The operator's team can list an email that it sent to a person, but cannot read its text.
func TestMail(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		n := testnode.New(t, d, testnode.Options{})
		s := notifications.New(notifications.Config{From: "notices@acme.example"}, d, n.Queue, n.Emails, n.Teams, n.Log)
		const secret = "https://postrider.test/password/reset?token=secret"
		n.Update(func(tx *db.Tx) error { return s.Mail(ctx, tx, "ada@two.example", "Choose", "Here: "+secret) })
		runAll(t, n, s.Kind(), 1)
		list, _, err := n.Emails.List(ctx, n.Acme.TeamID, page.Page{})
		n.Must(err)
		emailID := list[0].ID
		link, err := n.Emails.Share(ctx, n.Acme.TeamID, emailID, "")
		n.Must(err)
		shared, err := url.Parse(link)
		n.Must(err)
		byLink, _, err := n.Emails.Shared(ctx, shared.Query().Get("token"))
		n.Must(err)
		within, _, err := n.Emails.GetWithin(ctx, n.Acme.TeamID, emailID, 1<<20)
		n.Must(err)
		for _, e := range []emails.Email{n.Email(emailID), byLink, within} {
			if e.Subject != "Choose" || e.To[0] != "ada@two.example" || e.Text == nil || strings.Contains(*e.Text,
				"token") {
				t.Errorf("the operator's team reads %+v", e)
			}
		}
		if n.Count(`SELECT COUNT(*) FROM email_bodies WHERE body_text LIKE '%token=secret%'`) != 1 {
			t.Error("the recipient does not get the link")
		}

		// A team's own email with the private tag remains readable, because only Postrider can mark an email as
		// private.
		own := testnode.Hello("ada@two.example")
		own.Tags = []emails.Tag{emails.Private}
		if e := n.Email(n.Send(own)); *e.Text != *own.Text {
			t.Errorf("a team does not read its own text but %q", *e.Text)
		}
	})
}

// TestMailAndSuppressions: an email to a person is sent even if an earlier email to the address bounced, but not after
// a complaint or a manual suppression. A notice to a team is not sent after a bounce, a complaint, or a manual
// suppression of the team's address.
func TestMailAndSuppressions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		n := testnode.New(t, d, testnode.Options{})
		s := notifications.New(notifications.Config{From: "notices@acme.example"}, d, n.Queue, n.Emails, n.Teams, n.Log)
		origins := map[string]bool{"bounce": true, "complaint": false, "manual": false}
		for origin := range origins {
			_, err := n.Suppressions.Add(ctx, n.Acme.TeamID, []string{origin + "@one.example"})
			n.Must(err)
			n.Update(func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `UPDATE suppressions SET origin = $1 WHERE address = $2`, origin,
					origin+"@one.example"); err != nil {
					return err
				}
				return s.Mail(ctx, tx, origin+"@one.example", "Choose", "Here.")
			})
		}
		team, err := n.Teams.Create(ctx, "Bounced", "bounce@one.example")
		n.Must(err)
		n.Update(func(tx *db.Tx) error { return s.Notify(ctx, tx, team.ID, "A notice", "Look at it.") })
		runAll(t, n, s.Kind(), 4)
		list, _, err := n.Emails.List(ctx, n.Acme.TeamID, page.Page{})
		n.Must(err)
		for _, e := range list {
			origin, _, _ := strings.Cut(e.To[0], "@")
			goes := origins[origin] && e.Subject == "Choose"
			if sent := e.LastEvent != emails.Suppressed; sent != goes {
				t.Errorf("%q to %s: %s", e.Subject, e.To[0], e.LastEvent)
				continue
			}
			o, err := n.Emails.Outgoing(ctx, emails.Delivery{TeamID: n.Acme.TeamID, EmailID: e.ID, To: e.To, First: true})
			n.Must(err)
			if skipped, err := n.Emails.DropSuppressed(ctx, o); err != nil || (len(skipped) == 0) != goes {
				t.Errorf("looked up again: %v, %v", skipped, err)
			}
		}
		if len(list) != 4 {
			t.Errorf("%d emails", len(list))
		}
	})
}

// runAll runs all queued jobs.
func runAll(t *testing.T, n *testnode.Node, k jobs.Kind, there int) {
	t.Helper()
	handle, worked := k.Handle, make(chan error, there)
	k.Handle = func(ctx context.Context, j jobs.Job) error {
		err := handle(ctx, j)
		worked <- err
		return err
	}
	stop := n.Run(k)
	limit := time.After(30 * time.Second)
	for range there {
		select {
		case err := <-worked:
			n.Must(err)
		case <-limit:
			t.Fatal("not all jobs were worked")
		}
	}
	stop()
	if left := n.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, notifications.Kind); left != 0 {
		t.Errorf("%d jobs are left", left)
	}
}
