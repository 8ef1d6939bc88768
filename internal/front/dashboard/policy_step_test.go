package dashboard

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A record that a delegation hides is shown as such, although a look-up has failed or has found another value.
func TestHiddenRecord(t *testing.T) {
	r := domains.Record{Key: "receiving", Type: "MX", Status: domains.Failed, Hidden: true, Found: "10 mail.test",
		Value: "mail.test", Priority: 10}
	if v := viewOf(&r, &domains.Domain{}, time.Now()); v.State != "hidden" || !strings.Contains(v.Advice, "remove the NS") {
		t.Errorf("%+v", v)
	}
}

// The page of reports offers to publish the next DMARC record if this installation publishes the domain's records.
func TestPublishNextPolicy(t *testing.T) {
	const next, button = "v=DMARC1; p=quarantine; t=y", "Publish this record"
	for name, c := range map[string]struct {
		d      domains.Domain
		may    bool
		wanted string
	}{
		"delegated":       {domains.Domain{Setup: domains.SetupDelegation}, true, button},
		"published":       {domains.Domain{Setup: domains.SetupDelegation, DMARCRecord: next}, true, "is published"},
		"without a right": {domains.Domain{Setup: domains.SetupDelegation}, false, ""},
		"other set-up":    {domains.Domain{Setup: domains.SetupCNAME}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := reportsView{base: base{May: map[string]bool{"domains:write": c.may}}, Domain: c.d,
				DMARC: &domainreports.DMARCView{Readiness: domainreports.Readiness{Ready: true, Policy: "none", Next: next}},
				TLS:   &domainreports.TLSView{}}
			v.fill()
			w := httptest.NewRecorder()
			site := web.New(web.Config{}, nil, nil, slog.New(slog.DiscardHandler))
			if err := site.Show(w, httptest.NewRequest("GET", "/", nil), 200, domainReportsPage, v); err != nil {
				t.Fatal(err)
			}
			page := w.Body.String()
			if !strings.Contains(page, next) || !strings.Contains(page, c.wanted) ||
				c.wanted != button && strings.Contains(page, button) {
				t.Errorf("the page has no %q, or another part:\n%s", c.wanted, page)
			}
		})
	}
}
