package api

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Extreme times and durations are either accepted with their exact values or refused with an error that names the
// field.
func TestExtremeTimes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		email := `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t"`
		var sent emailID
		if err := json.Unmarshal(f.do(t, "POST /emails\n\n"+email+"}").Body.Bytes(), &sent); err != nil || sent.ID == "" {
			t.Fatalf("%+v, error %v", sent, err)
		}
		refused := func(request, field string) {
			t.Helper()
			if w := f.do(t, request); w.Code != 422 || !strings.Contains(w.Body.String(), "`"+field+"`") {
				t.Errorf("%.200s: %d %.300s", request, w.Code, w.Body)
			}
		}
		times := []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "1677-09-21T00:12:43Z", "2262-04-11T23:47:17Z",
			"9999-12-31T23:59:59-23:59",
			"10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "in 3650 days", "in 99999999999999999999 seconds",
			"in 9223372036854775807 weeks"}
		for _, at := range times {
			refused("POST /emails\n\n"+email+`,"scheduled_at":"`+at+`"}`, "scheduled_at")
			refused("PATCH /emails/"+sent.ID+"\n\n"+`{"scheduled_at":"`+at+`"}`, "scheduled_at")
			refused("POST /emails/"+sent.ID+"/share\n\n"+`{"expires_in":"`+strings.TrimPrefix(at, "in ")+`"}`, "expires_in")
		}
		for query, rows := range map[string]bool{"from=0000-01-01&to=9999-12-31T23:59:59-23:59": true,
			"from=1677-09-20": true, "to=0001-01-01": false,
			"from=9999-12-31T23:59:59-23:59": false, "to=2262-04-12": true} {
			w := f.do(t, "GET /logs?"+query)
			if w.Code != 200 || strings.Contains(w.Body.String(), `"endpoint"`) != rows {
				t.Errorf("%s: %d %.300s", query, w.Code, w.Body)
			}
		}
		refused("GET /logs?from=9999-12-31&to=0001-01-01", "from")
		refused("GET /logs?endpoint="+strings.Repeat("_", 1001), "endpoint")
		refused("GET /logs?user_agent="+strings.Repeat("_", 501), "user_agent")
		if w := f.do(t, "GET /logs?user_agent="+strings.Repeat("_", 500)); w.Code != 200 {
			t.Errorf("a long filter: %d %s", w.Code, w.Body)
		}
	})
}
