package tlspolicies_test

import (
	"net/http"
	"testing"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A domain that is in memory needs no statement, whether it has a policy or not.
func TestMemoryNeedsNoStatements(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		f.publish(site, "1", enforced)
		f.lab.Set("broken.example", ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
		domains := []string{site, "broken.example", "plain.example"}
		for range 2 {
			for _, domain := range domains {
				f.s.For(t.Context(), domain)
			}
		}
		before := len(trace.Take())
		for _, domain := range domains {
			f.s.For(t.Context(), domain)
		}
		if all := trace.Take(); before == 0 || len(all) > 0 {
			t.Errorf("%d statements, and with all domains in memory %d: %v", before, len(all), all)
		}
	})
}
