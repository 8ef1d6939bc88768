package api

import (
	"context"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/telemetry"
)

// readyIf returns a report that depends only on the database.
func readyIf(d *db.DB) func(context.Context) telemetry.Report {
	return telemetry.NewHealth(telemetry.Check{Name: "database", Vital: true, Run: d.Ready}).Report
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	report := telemetry.Report{}
	f := newFixture(t, dbtest.SQLite(t), Options{Ready: func(context.Context) telemetry.Report { return report }})
	for _, c := range []struct {
		status int
		body   string
		telemetry.Report
	}{
		{200, `{"status":"ok"}`, telemetry.Report{Status: telemetry.StatusOK}},
		{200, `{"status":"degraded","checks":[{"name":"dns","status":"degraded","message":"It is away."}]}`,
			telemetry.Report{Status: telemetry.StatusDegraded, Checks: []telemetry.Result{{Name: "dns",
				Status: telemetry.StatusDegraded, Message: "It is away."}}}},
		{503, `{"status":"unavailable","checks":[{"name":"database","status":"unavailable"}]}`,
			telemetry.Report{Status: telemetry.StatusUnavailable, Checks: []telemetry.Result{{Name: "database",
				Status: telemetry.StatusUnavailable}}}},
	} {
		report = c.Report
		w := f.do(t, "GET /readyz")
		if w.Code != c.status || w.Body.String() != c.body || (w.Header().Get("Retry-After") != "") != (c.status == 503) {
			t.Errorf("%d %s, want %d %s", w.Code, w.Body, c.status, c.body)
		}
	}
}
