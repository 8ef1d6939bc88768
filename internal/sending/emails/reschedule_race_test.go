package emails_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// eachArmed is like each, but its database can call a function before the next statement that contains the string asks.
// The function arm sets the function to call. The function that arm returns reports whether the call has happened.
func eachArmed(t *testing.T, asks string, run func(t *testing.T, f *fixture, arm func(func()) func() bool)) {
	t.Helper()
	eachArmedAt(t, func(sql string) bool { return strings.Contains(sql, asks) }, run)
}

// eachArmedAt is like eachArmed, with a function that selects the statements.
func eachArmedAt(t *testing.T, asks func(sql string) bool, run func(t *testing.T, f *fixture,
	arm func(func()) func() bool)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := db.Options{URL: dbtest.SQLiteFile(t), MaxConns: 6, Log: slog.New(slog.DiscardHandler)}
		if d.Engine() == "postgres" {
			o.URL = dbtest.PostgresURL(t)
		}
		var armed atomic.Pointer[func()]
		o.Trace = func(s db.Statement) {
			if asks(s.SQL) {
				if do := armed.Swap(nil); do != nil {
					(*do)()
				}
			}
		}
		d, err := db.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		if _, err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, newFixture(t, d), func(do func()) func() bool {
			armed.Store(&do)
			return func() bool { return armed.Load() == nil }
		})
	})
}

// If a change is requested after a release job has read the email but before it writes, the change takes effect.
func TestChangesDuringRelease(t *testing.T) {
	later := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339Nano) }
	for name, c := range map[string]struct {
		at      time.Duration // the email's scheduled time when the release job reads it, relative to now
		refused bool
		change  func(f *fixture, id string) error
		state   emails.State
		due     time.Duration // time at which the release job is due after the change; 0 if there is no job
	}{
		"earlier": {time.Hour, false, func(f *fixture, id string) error {
			return f.Emails.Reschedule(context.Background(), f.Acme.TeamID, id, later(10*time.Minute))
		}, emails.Scheduled, 10 * time.Minute},
		"later": {-time.Minute, false, func(f *fixture, id string) error {
			return f.Emails.Reschedule(context.Background(), f.Acme.TeamID, id, later(10*time.Minute))
		}, emails.Scheduled, 10 * time.Minute},
		"canceled": {-time.Minute, false, func(f *fixture, id string) error {
			return f.Emails.Cancel(context.Background(), f.Acme.TeamID, id)
		}, emails.Canceled, 0},
		"canceled before its time": {time.Hour, false, func(f *fixture, id string) error {
			return f.Emails.Cancel(context.Background(), f.Acme.TeamID, id)
		}, emails.Canceled, 0},
		"later, and refused": {-time.Minute, true, func(f *fixture, id string) error {
			return f.Emails.Reschedule(context.Background(), f.Acme.TeamID, id, later(10*time.Minute))
		}, emails.Scheduled, 10 * time.Minute},
		"canceled, and refused": {-time.Minute, true, func(f *fixture, id string) error {
			return f.Emails.Cancel(context.Background(), f.Acme.TeamID, id)
		}, emails.Canceled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachArmed(t, " FROM teams ", func(t *testing.T, f *fixture, arm func(func()) func() bool) {
				s := hello("a@one.example")
				s.ScheduledAt = "in 2 hours"
				id := f.Send(s)
				if c.refused {
					if err := f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID); err != nil {
						t.Fatal(err)
					}
				}
				j := jobs.Job{Kind: emails.ReleaseKind, Lane: f.Acme.TeamID, TeamID: f.Acme.TeamID, Payload: id, Attempt: 1}
				if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
					tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = $2 WHERE id = $1`, db.ID(id),
						time.Now().Add(c.at).UnixMicro())
					return tx.QueryRow(t.Context(), `UPDATE jobs SET run_at = $2, attempt = 1, holder = id WHERE dedupe = $1
						RETURNING id`, id, time.Now().Add(time.Minute).UnixMicro()).Scan((*db.ID)(&j.ID))
				}); err != nil {
					t.Fatal(err)
				}
				changed := arm(func() {
					if err := c.change(f, id); err != nil {
						t.Errorf("the change is answered with %v", err)
					}
				})
				if err := f.Emails.Kinds()[0].Handle(t.Context(), j); err != nil {
					t.Fatal(err)
				}
				if !changed() {
					t.Fatal("nothing was changed")
				}
				if got := f.state(id); got != c.state {
					t.Errorf("the email is %s, want %s", got, c.state)
				}
				if n := f.Count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1 AND type IN (9, 2)`,
					db.ID(id)); n != 0 {
					t.Errorf("%d events of an email that was not to go out", n)
				}
				if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 0 {
					t.Error("it goes out")
				}
				var due int64
				n := f.Count(`SELECT COUNT(*) FROM jobs WHERE dedupe = $1 AND holder IS NULL`, id)
				if n > 0 {
					if err := f.DB.QueryRow(t.Context(), `SELECT run_at FROM jobs WHERE dedupe = $1`, id).Scan(&due); err != nil {
						t.Fatal(err)
					}
				}
				if off := time.Until(time.UnixMicro(due)) - c.due; (n > 0) != (c.due != 0) || n > 0 && off.Abs() > time.Minute {
					t.Errorf("%d releases wait, until %v", n, time.UnixMicro(due))
				}
			})
		})
	}
}
