package emails_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If the database fails at any point during a release, the email either stays scheduled or its delivery is enqueued. A
// database failure never causes the email to fail.
func TestReleaseWithoutDatabase(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	f := newFixture(t, d)
	release := f.Emails.Kinds()[0]
	failed := 0
	for skip, torn := 0, true; torn && skip < 60; skip++ {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		id := f.Send(s)
		j := jobs.Job{Kind: emails.ReleaseKind, Lane: f.Acme.TeamID, TeamID: f.Acme.TeamID, Payload: id, Attempt: 1}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1`, db.ID(id))
			return tx.QueryRow(t.Context(),
				`UPDATE jobs SET run_at = $2, attempt = 1, holder = id WHERE dedupe = $1 RETURNING id`, id,
				time.Now().Add(time.Minute).UnixMicro()).Scan((*db.ID)(&j.ID))
		}); err != nil {
			t.Fatal(err)
		}
		d.Hint("domains", f.Sender.ID) // makes the cached sending domain expire
		before := proxy.Torn()
		proxy.Tear(skip, 1)
		err := release.Handle(t.Context(), j)
		torn = proxy.Torn() > before
		if err := proxy.Pass(); err != nil {
			t.Fatal(err)
		}
		want := emails.Queued
		if err != nil {
			want = emails.Scheduled
			failed++
			if fault.KindOf(err) != fault.Unavailable {
				t.Errorf("answer %d torn: %v, want unavailable", skip, err)
			}
		}
		if got := f.state(id); got != want {
			t.Errorf("answer %d torn: %s, error %v; want %s", skip, got, err, want)
		}
	}
	if failed < 5 {
		t.Errorf("%d releases failed: the test reaches too little", failed)
	}
}
