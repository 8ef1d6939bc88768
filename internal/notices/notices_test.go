package notices_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/notices"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/testnode"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestNotices(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, out := t.Context(), &testnode.Logged{}
		n := testnode.New(t, d, testnode.Options{Log: slog.New(slog.NewTextHandler(out, nil))})
		reachable := n.Other
		silent, err := n.Teams.Create(ctx, "Silent", "")
		n.Must(err)

		tell := func(from, teamID, subject string) {
			t.Helper()
			s := notices.New(notices.Config{From: from}, d, n.Queue, n.Emails, n.Teams, n.Log)
			n.Update(func(tx *db.Tx) error { return s.Tell(ctx, tx, teamID, subject, "Look at it.") })
			runAll(t, n, s.Kind(), 1)
		}
		const from = "Postrider <notices@acme.example>"
		tell(from, reachable.TeamID, "It fails")
		list, _, err := n.Emails.List(ctx, n.Acme.TeamID, page.Page{})
		n.Must(err)
		if e := list[0]; e.From != from || e.Subject != "It fails" || e.To[0] != "owner@acme.example" {
			t.Errorf("sent %+v", e)
		}
		for _, x := range []struct{ from, team, subject, why string }{
			{"", reachable.TeamID, "No sender", "set notice_from"}, {from, silent.ID, "No address", "the team has no address"},
			{"x@elsewhere.example", reachable.TeamID, "Not verified", "its email was refused"},
		} {
			tell(x.from, x.team, x.subject)
			if !strings.Contains(out.String(), x.why) {
				t.Errorf("%s: the log does not say %q", x.subject, x.why)
			}
		}
		if list, _, err = n.Emails.List(ctx, n.Acme.TeamID, page.Page{}); err != nil || len(list) != 1 {
			t.Errorf("%d emails were sent, %v", len(list), err)
		}

		another, _ := n.Team("Another")
		s := notices.New(notices.Config{From: from}, d, n.Queue, n.Emails, n.Teams, n.Log)
		n.Update(func(tx *db.Tx) error {
			for range 30 {
				if err := s.Tell(ctx, tx, reachable.TeamID, "It fails again", "Look at it."); err != nil {
					return err
				}
			}
			return s.Tell(ctx, tx, another.TeamID, "It fails, too", "Look at it.")
		})
		runAll(t, n, s.Kind(), 31)
		list, _, err = n.Emails.List(ctx, n.Acme.TeamID, page.Page{Limit: 100})
		n.Must(err)
		if len(list) != 1+20+1 || !strings.Contains(out.String(), "the team has had enough of them today") {
			t.Errorf("of 30 notices to a team and one to another, %d were sent", len(list)-1)
		}
	})
}

// runAll runs as many jobs as there are.
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
	if left := n.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, notices.Kind); left != 0 {
		t.Errorf("%d jobs are left", left)
	}
}
