package domains_test

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
	"github.com/postrider/postrider/internal/sending/domains"
)

// meanwhile runs f on both database engines. After f has called arm, the function do starts as soon as a transaction is
// about to run a statement that contains the string asks. The transaction continues once do has returned or has been
// blocked by the transaction.
func meanwhile(t *testing.T, asks string, f func(t *testing.T, d *db.DB,
	arm func(do func() error) (ended func() error))) {
	run := func(t *testing.T, url string) {
		var armed atomic.Pointer[func() error]
		ended := make(chan error, 1)
		o := db.Options{URL: url, MaxConns: 6, Log: slog.New(slog.DiscardHandler)}
		o.Trace = func(s db.Statement) {
			if !strings.Contains(s.SQL, asks) {
				return
			}
			do := armed.Swap(nil)
			if do == nil {
				return
			}
			now := make(chan error, 1)
			go func() { now <- (*do)() }()
			select {
			case err := <-now:
				ended <- err
			case <-time.After(200 * time.Millisecond):
				go func() { ended <- <-now }()
			}
		}
		d, err := db.Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		if _, err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, d, func(do func() error) func() error {
			armed.Store(&do)
			return func() error {
				if armed.Swap(nil) != nil {
					t.Fatal("it was not begun")
				}
				return <-ended
			}
		})
	}
	t.Run("sqlite", func(t *testing.T) { run(t, dbtest.SQLiteFile(t)) })
	t.Run("postgres", func(t *testing.T) { run(t, dbtest.PostgresURL(t)) })
}

// hold claims the look-up job for a domain, as a worker does.
func hold(t *testing.T, d *db.DB, domainID string) (j jobs.Job) {
	t.Helper()
	j = jobs.Job{Kind: domains.VerifyKind, Payload: domainID, Attempt: 1}
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRow(t.Context(), `UPDATE jobs SET run_at = $2, attempt = 1, holder = id WHERE dedupe = $1
			RETURNING id, lane, team_id`, domainID, time.Now().Add(time.Minute).UnixMicro()).
			Scan((*db.ID)(&j.ID), &j.Lane, (*db.ID)(&j.TeamID))
	}); err != nil {
		t.Fatal(err)
	}
	return j
}

// A verification request takes effect even if the result of a look-up is being recorded at the same time.
func TestVerifyWhileALookUpIsRecorded(t *testing.T) {
	meanwhile(t, "DELETE FROM domain_names", func(t *testing.T, d *db.DB, arm func(func() error) func() error) {
		s, _, _ := build(t, d, newZone(), domains.Config{})
		oneKey(t, s)
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		if err := s.Verify(t.Context(), dbtest.ID("team"), dom.ID); err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-100 * time.Hour).UnixMicro() // at this point, the records have been missing for 100 hours
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(),
				`UPDATE domains SET checks = REPLACE(checks, '"since":', '"since":1,"was":'), verify_since = $2
				WHERE id = $1`, db.ID(dom.ID), long)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ended := arm(func() error { return s.Verify(context.Background(), dbtest.ID("team"), dom.ID) })
		if err := s.Kind().Handle(t.Context(), hold(t, d, dom.ID)); err != nil {
			t.Fatal(err)
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE dedupe = $1 AND holder IS NULL`,
			dom.ID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if status, _ := statuses(t, s, dom.ID); status != domains.Pending || n != 1 {
			t.Errorf("the domain is %s, with %d look-ups that wait", status, n)
		}
	})
}

// If a setting changes while the result of a look-up is recorded, the new setting is kept.
func TestUpdateWhileALookUpIsRecorded(t *testing.T) {
	meanwhile(t, "DELETE FROM domain_names", func(t *testing.T, d *db.DB, arm func(func() error) func() error) {
		s, _, _ := build(t, d, newZone(), domains.Config{})
		oneKey(t, s)
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		if err := s.Verify(t.Context(), dbtest.ID("team"), dom.ID); err != nil {
			t.Fatal(err)
		}
		enforced := domains.Enforced
		ended := arm(func() error {
			return s.Update(context.Background(), dbtest.ID("team"), dom.ID, domains.Change{TLS: &enforced})
		})
		if err := s.Kind().Handle(t.Context(), hold(t, d, dom.ID)); err != nil {
			t.Fatal(err)
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), dbtest.ID("team"), dom.ID); err != nil || got.TLS != enforced {
			t.Errorf("TLS is %s, %v", got.TLS, err)
		}
	})
}

// If verification of a claim is requested during a look-up, another look-up follows soon, because the current one may
// have started too early.
func TestVerifyAClaimDuringALook(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _, _ := build(t, d, newZone(), domains.Config{})
		oneKey(t, s)
		mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		claim, _, err := s.Claim(t.Context(), dbtest.ID("other"), domains.NewDomain{Name: "acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE domain_claims SET created_at = created_at - 7200000000`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		again := func() time.Duration {
			t.Helper()
			if err := s.Kind().Handle(t.Context(), hold(t, d, claim.DomainID)); err != nil {
				t.Fatal(err)
			}
			var at int64
			if err := d.QueryRow(t.Context(), `SELECT run_at FROM jobs WHERE dedupe = $1`,
				claim.DomainID).Scan(&at); err != nil {
				t.Fatal(err)
			}
			return time.Until(time.UnixMicro(at))
		}
		if wait := again(); wait < 10*time.Minute {
			t.Fatalf("an old claim is looked at every %v", wait)
		}
		j := hold(t, d, claim.DomainID)
		if _, err := s.VerifyClaim(t.Context(), dbtest.ID("other"), claim.DomainID); err != nil {
			t.Fatal(err)
		}
		if err := s.Kind().Handle(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if wait := again(); wait > time.Minute {
			t.Errorf("it is looked at again after %v", wait)
		}
	})
}
