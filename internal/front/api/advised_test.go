package api

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// In development, every record counts as found: the advised ones, too, and the reports agree with them.
func TestAdvisedInDevelopment(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		on := true
		in := f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "in.example",
			Capabilities: domains.Capabilities{Receiving: &on}})
		path := "/domains/" + in.ID
		if w := f.do(t, "PUT "+path+"/mta-sts\n\n"+`{"mode":"testing"}`); w.Code != 200 {
			t.Fatalf("the policy: %d %s", w.Code, w.Body)
		}
		setup := f.do(t, "GET "+path+"/setup").Body.String()
		_, advised, _ := strings.Cut(setup, `"advised":`)
		advised, _, _ = strings.Cut(advised, `"keys":`)
		for _, part := range []string{`"purpose":"dmarc"`, `"purpose":"tls_reports"`, `"purpose":"mta_sts"`,
			`"value":"v=DMARC1; p=none`} {
			if !strings.Contains(advised, part) {
				t.Errorf("%s is not in %s", part, advised)
			}
		}
		if n, found := strings.Count(advised, `"status":`), strings.Count(advised, `"status":"verified"`); n != 4 || found != n {
			t.Errorf("%d of %d advised records are verified: %s", found, n, advised)
		}
		reports := f.do(t, "GET "+path+"/reports/dmarc").Body.String()
		if strings.Contains(reports, "no DMARC record") || !strings.Contains(reports, `"record":"v=DMARC1; p=none`) ||
			!strings.Contains(reports, `"next_record":"v=DMARC1; p=quarantine`) {
			t.Errorf("the reports contradict the advised record: %s", reports)
		}
		if w := f.do(t, "PUT "+path+"/setup\n\n"+`{"dmarc":"v=DMARC1; p=quarantine"}`); w.Code != 200 {
			t.Fatalf("the record: %d %s", w.Code, w.Body)
		}
		reports = f.do(t, "GET "+path+"/reports/dmarc").Body.String()
		if !strings.Contains(reports, `"next_record":"v=DMARC1; p=reject`) {
			t.Errorf("the reports contradict the chosen record: %s", reports)
		}
	})
}
