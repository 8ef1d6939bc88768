package api

import (
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The periods cover every quarter hour of the time span, and countPeriods returns their number or at most one more.
func TestPeriods(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia",
		"Pacific/Kiritimati"}
	starts := []time.Time{time.Date(2011, 12, 28, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 6, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 23, 0, 0, 0, 0, time.UTC), time.Date(1969, 12, 30, 0, 0, 0, 0, time.UTC),
		time.Date(2024, 2, 27, 0, 0, 0, 0, time.UTC)}
	for range 400 {
		zone, err := time.LoadLocation(zones[r.IntN(len(zones))])
		if err != nil {
			t.Fatal(err)
		}
		in := metricsIn{granularity: []string{"hourly", "daily", "weekly", "monthly"}[r.IntN(4)], zone: zone}
		in.From = starts[r.IntN(len(starts))].Add(time.Duration(r.Int64N(int64(5 * 24 * time.Hour)))).Truncate(time.Second)
		in.To = in.From.Add(time.Duration(r.Int64N(int64(70 * 24 * time.Hour))))
		var want []string
		for q := in.From.Truncate(hourStep); q.Before(in.To); q = q.Add(hourStep) {
			want = append(want, in.period(q))
		}
		want = slices.Compact(want)
		got := slices.Compact(slices.Collect(in.periods()))
		if !slices.Equal(want, got) && !in.From.Equal(in.To) {
			t.Fatalf("%s in %v from %v to %v: %v\nwant %v", in.granularity, zone, in.From, in.To, got, want)
		}
		if n, extra := in.countPeriods(), int64(1); n < int64(len(got)) || n > int64(len(got))+extra {
			t.Fatalf("%s in %v from %v to %v: counted %d, there are %d", in.granularity, zone, in.From, in.To, n, len(got))
		}
	}
}

// A time span with more periods than a response may have is refused before any period is computed, even if the span is
// extremely long.
func TestSpansOfMetricsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	for _, c := range []struct {
		query string
		field string // field named in the error; empty if the request succeeds
		rows  int    // number of rows in the response
	}{
		{"granularity=hourly&start_date=0001-01-01", "granularity", 0},
		{"granularity=daily&start_date=0001-01-01", "granularity", 0},
		{"granularity=weekly&start_date=0001-01-01", "granularity", 0},
		{"granularity=monthly&start_date=0001-01-01", "granularity", 0},
		{"granularity=monthly&start_date=0000-01-01", "granularity", 0},
		{"granularity=monthly&start_date=0001-01-01&end_date=0833-12-31", "", 9996},
		{"granularity=monthly&start_date=0001-01-01&end_date=0834-06-01", "granularity", 0},
		{"granularity=monthly&start_date=0001-01-01&end_date=0293-04-12", "", 3508},
		{"granularity=weekly&start_date=1850-01-01&end_date=2020-01-01", "", 8871},
		{"granularity=daily&start_date=1993-01-01&end_date=2020-01-01", "", 9861},
		{"granularity=hourly&start_date=2019-01-01&end_date=2020-01-01", "", 8760},
		{"granularity=hourly&start_date=9999-12-31", "start_date", 0},
		{"granularity=daily&start_date=2020-01-02&end_date=2020-01-01", "start_date", 0},
		{"granularity=daily&start_date=2020-01-01&end_date=2020-01-01", "", 0},
		{"granularity=monthly&start_date=-0001-01-01", "start_date", 0},
		{"granularity=monthly&start_date=10000-01-01", "start_date", 0},
		{"granularity=monthly&start_date=0000-01-01T00:00:00%2B23:59&end_date=0000-01-01T00:00:00-23:59", "", 2},
		{"granularity=daily&start_date=0001-01-01&end_date=0001-01-03&timezone=America/New_York", "", 2},
		{"granularity=hourly&timezone=" + strings.Repeat("A", 5000), "timezone", 0},
		{"granularity=hourly&timezone=../../etc/passwd", "timezone", 0},
		{"metrics=" + strings.Repeat("a,", 3000), "metrics", 0},
		{"metrics=" + distinct(3000), "metrics", 0},
		{"domain_id=" + distinct(1500), "domain_id", 0},
	} {
		target := "/emails/metrics?dimensions=period&" + c.query
		if _, err := url.Parse(target); err != nil {
			t.Fatal(err)
		}
		w := f.do(t, "GET "+target)
		if c.field != "" {
			if w.Code != 422 || !strings.Contains(w.Body.String(), "`"+c.field+"`") {
				t.Errorf("%.200s: %d %.300s", c.query, w.Code, w.Body)
			}
			continue
		}
		if n := strings.Count(w.Body.String(), `"period":`); w.Code != 200 || n != c.rows {
			t.Errorf("%.200s: %d with %d rows, want %d; %.300s", c.query, w.Code, n, c.rows, w.Body)
		}
	}
}

func distinct(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + ",")
	}
	return b.String()
}
