package domains_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A domain is rechecked a day after its last look-up, or an hour after it if a record is missing.
func TestRecheckSchedule(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _, _ := build(t, d, resolve.Fake{}, domains.Config{TrustDomains: true})
		oneKey(t, s)
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
		for i, c := range []struct {
			ago     time.Duration
			missing bool
			due     int
		}{
			{50 * time.Minute, false, 0}, {70 * time.Minute, false, 0}, {23 * time.Hour, false, 0}, {25 * time.Hour, false, 1},
			{50 * time.Minute, true, 0}, {70 * time.Minute, true, 1}, {25 * time.Hour, true, 1},
		} {
			dom, err := s.AddVerified(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: fmt.Sprintf("d%d.example", i)})
			if err != nil {
				t.Fatal(err)
			}
			exec(`UPDATE domains SET checked_at = $2 WHERE id = $1`, db.ID(dom.ID), db.Now().Add(-c.ago).UnixMicro())
			if c.missing {
				exec(`UPDATE domains SET checks = REPLACE(checks, 'verified', 'temporary_failure') WHERE id = $1`,
					db.ID(dom.ID))
			}
			if err := s.Recheck(t.Context()); err != nil {
				t.Fatal(err)
			}
			var n int
			if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE dedupe = $1`, dom.ID).Scan(&n); err != nil ||
				n != c.due {
				t.Errorf("looked at %v ago, a record missing %v: %d looks are due, want %d (%v)", c.ago, c.missing, n, c.due, err)
			}
		}
	})
}
