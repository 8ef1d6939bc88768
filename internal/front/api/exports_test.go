package api

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// An export of the request log has the same rows as the list, and none that belong to another team. The request log
// records the export request without the exported data.
func TestExportOfLogs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.do(t, "GET /domains\nUser-Agent: =1+1")
		f.do(t, "POST /domains\nUser-Agent: \"a,b\"\n\n{}")
		f.do(t, "GET /domains\nAuthorization: other")
		f.do(t, "GET /suppressions/export")
		w := f.do(t, "GET /logs/export?formulas=quote")
		rows, err := csv.NewReader(w.Body).ReadAll()
		if err != nil || len(rows) != 4 {
			t.Fatalf("%d %q, %v", w.Code, rows, err)
		}
		for i, want := range []string{"method endpoint response_status user_agent", "GET /suppressions/export 200 scenario/1",
			`POST /domains 422 "a,b"`, "GET /domains 200 '=1+1"} {
			if got := strings.Join([]string{rows[i][1], rows[i][2], rows[i][3], rows[i][5]}, " "); got != want {
				t.Errorf("row %d is %s, want %s", i, got, want)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM request_logs WHERE response_body LIKE '%endpoint%'`); n > 0 {
			t.Errorf("%d answers are kept", n)
		}
	})
}
