package delivery

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If a database statement fails in a job that contacts no host, the handler returns an error and the job stays
// unchanged. The job does not open any connection.
func TestJobsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := one("")
		cfg := n.config(5)
		cfg.Dial = refuseDial(t)
		f := newFixture(t, d, cfg, n.dns)
		exec := func(text string, args ...any) {
			t.Helper()
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), text,
					args...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		f.Verified(f.Other.TeamID, domains.NewDomain{Name: "taken.example"})
		var id string
		for name, spoil := range map[string]func(){
			"of an email that is gone": func() {
				exec(`DELETE FROM email_bodies WHERE email_id = $1`, db.ID(id))
				exec(`DELETE FROM email_recipients WHERE email_id = $1`, db.ID(id))
				exec(`DELETE FROM emails WHERE id = $1`, db.ID(id))
			},
			"of a domain that another team has": func() {
				exec(`UPDATE emails SET domain_id = NULL, sender = 'a@taken.example' WHERE id = $1`, db.ID(id))
			},
			"to a suppressed address": func() { f.suppress("manual", address(1)) },
		} {
			var j jobs.Job
			failed := trace.EachBroken(t, func() {
				exec(`DELETE FROM jobs`)
				exec(`DELETE FROM suppressions`)
				id = f.send(address(1))
				spoil()
				j = jobs.Job{Kind: emails.DeliveryKind, TeamID: f.Acme.TeamID, Attempt: 2, Tries: 1, CreatedAt: time.Now()}
				if err := d.Update(t.Context(), func(tx *db.Tx) error {
					return tx.QueryRow(t.Context(), `UPDATE jobs SET attempt = 2, holder = id WHERE kind = $1
						RETURNING id, lane, payload`, j.Kind).Scan((*db.ID)(&j.ID), &j.Lane, &j.Payload)
				}); err != nil {
					t.Fatal(err)
				}
			}, func() error { return f.service.Kind().Handle(t.Context(), j) }, func(err error) {
				if left := f.jobsLeft(); left != map[bool]int{true: 1}[err != nil] {
					t.Errorf("%s: %d jobs are left after %v", name, left, err)
				}
			})
			if failed < 2 {
				t.Errorf("%s: it fails %d times alone", name, failed)
			}
		}
	})
}
