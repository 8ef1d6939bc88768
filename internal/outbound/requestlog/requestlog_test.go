package requestlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

func count(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.QueryRow(context.Background(), `SELECT COUNT(*) FROM request_logs`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEntry(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, s := t.Context(), requestlog.New(d, quiet)
		body := []byte(`{"subject": "Hi", "token": "x"}`)
		s.Add(ctx, requestlog.Request{TeamID: dbtest.ID("team"), Actor: key("key"), RequestID: "r-1", Method: "POST",
			Path:      "/emails",
			UserAgent: "a\xffb\x00c",
			Status:    200, Duration: 3 * time.Millisecond, Body: body, Answer: []byte(`{"id":"1"}`)})
		clear(body) // callers of Add may reuse the buffer
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		all, more, _, err := s.List(ctx, dbtest.ID("team"), requestlog.Filter{}, page.Page{Limit: 20})
		if err != nil || more || len(all) != 1 {
			t.Fatalf("%+v, more %v, %v", all, more, err)
		}
		got, err := s.Get(ctx, dbtest.ID("team"), all[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(got.CreatedAt); age < 0 || age > time.Minute {
			t.Errorf("it is of %v", got.CreatedAt)
		}
		want := requestlog.Entry{ID: all[0].ID, TeamID: dbtest.ID("team"), Actor: key("key"), RequestID: "r-1",
			Method:   "POST",
			Endpoint: "/emails", Status: 200,
			UserAgent: "abc", Duration: 3 * time.Millisecond, CreatedAt: got.CreatedAt,
			RequestBody:  `{"subject":"Hi","token":"[redacted]"}`,
			ResponseBody: `{"id":"1"}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if _, err := s.Get(ctx, dbtest.ID("other"), got.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team: %v", err)
		}
	})
}

func key(id string) teams.ActorRef { return teams.ActorRef{Kind: teams.KeyActor, ID: dbtest.ID(id)} }

func TestFilters(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, s := t.Context(), requestlog.New(d, quiet)
		for i, r := range []requestlog.Request{
			{Method: "GET", Path: "/emails", Status: 200, UserAgent: "Node/1", Actor: key("k1")},
			{Method: "POST", Path: "/emails/batch", Status: 422, UserAgent: "node/2", Actor: key("k2")},
			{Method: "GET", Path: "/e_ails", Status: 404, UserAgent: "100%", Actor: key("k1")},
			{Method: "DELETE", Path: "/domains/x", Status: 500, Actor: key("k2")},
			{Method: "GET", Path: "/emails", Status: 200, TeamID: dbtest.ID("other")},
			{Method: "PATCH", Path: "/domains/x", Status: 300,
				Actor: teams.ActorRef{Kind: teams.UserActor, ID: dbtest.ID("k2")}},
		} {
			if r.TeamID == "" {
				r.TeamID = dbtest.ID("team")
			}
			r.Duration = time.Duration(i) * time.Second
			s.Add(ctx, r)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for name, x := range map[string]struct {
			f    requestlog.Filter
			want string // durations in seconds, newest first
		}{
			"all":            {requestlog.Filter{}, "53210"},
			"a class":        {requestlog.Filter{Status: "4xx"}, "21"},
			"a code":         {requestlog.Filter{Status: "404"}, "2"},
			"a method":       {requestlog.Filter{Method: "GET"}, "20"},
			"a beginning":    {requestlog.Filter{Endpoint: "/emails"}, "10"},
			"no pattern":     {requestlog.Filter{Endpoint: "/e_"}, "2"},
			"an agent":       {requestlog.Filter{UserAgent: "NODE"}, "10"},
			"a sign of LIKE": {requestlog.Filter{UserAgent: "%"}, "2"},
			"a key":          {requestlog.Filter{KeyID: dbtest.ID("k2")}, "31"},
			"no id of a key": {requestlog.Filter{KeyID: "k2"}, ""},
			"until now":      {requestlog.Filter{From: now.Add(-time.Minute), To: now.Add(time.Minute)}, "53210"},
			"later":          {requestlog.Filter{From: now.Add(time.Minute)}, ""},
			"earlier":        {requestlog.Filter{To: now.Add(-time.Minute)}, ""},
			"two at once":    {requestlog.Filter{Status: "2xx", KeyID: dbtest.ID("k1")}, "0"},
		} {
			all, _, _, err := s.List(ctx, dbtest.ID("team"), x.f, page.Page{Limit: 20})
			got := ""
			for _, e := range all {
				got += fmt.Sprint(int(e.Duration.Seconds()))
			}
			if err != nil || got != x.want {
				t.Errorf("%s: %q, %v, want %q", name, got, err, x.want)
			}
		}
		for _, f := range []requestlog.Filter{{Status: "9xx"}, {Status: "20"}, {Method: "get"},
			{From: now, To: now.Add(-1)}} {
			if _, _, _, err := s.List(ctx, dbtest.ID("team"), f, page.Page{}); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%+v: %v", f, err)
			}
		}
	})
}

// TestAdjacentSpans: each entry is in exactly one of two adjacent time spans, wherever they meet and however long
// adding the entry took.
func TestAdjacentSpans(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, s := t.Context(), requestlog.New(d, quiet)
		large := []byte(`["` + strings.Repeat(`y","`, 500_000) + `"]`)
		for range 3 {
			s.Add(ctx, requestlog.Request{TeamID: dbtest.ID("team"), Method: "POST", Path: "/", Status: 422, Body: large})
			s.Add(ctx, requestlog.Request{TeamID: dbtest.ID("team"), Method: "GET", Path: "/", Status: 200})
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		all, _, _, err := s.List(ctx, dbtest.ID("team"), requestlog.Filter{}, page.Page{Limit: 20})
		if err != nil || len(all) != 6 {
			t.Fatalf("%d entries, %v", len(all), err)
		}
		for _, e := range all {
			for _, after := range []time.Duration{-time.Millisecond, 0, time.Microsecond, time.Millisecond,
				2 * time.Millisecond} {
				var listed, parted []string
				meet := e.CreatedAt.Add(after)
				for _, f := range []requestlog.Filter{{From: meet}, {To: meet}} {
					some, _, _, err := s.List(ctx, dbtest.ID("team"), f, page.Page{Limit: 20})
					if err != nil {
						t.Fatal(err)
					}
					readBatch, _, err := s.Batch(ctx, dbtest.ID("team"), f, "")
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range some {
						listed = append(listed, e.ID)
					}
					for _, e := range readBatch {
						parted = append(parted, e.ID)
					}
				}
				for i, want := range all {
					if len(listed) != len(all) || len(parted) != len(all) || listed[i] != want.ID || parted[i] != want.ID {
						t.Fatalf("with a cut %s after an entry %q are listed and %q exported, want %d", after, listed, parted,
							len(all))
					}
				}
			}
		}
	})
}

// TestRareEntries: a filter that selects few entries costs no more than a filter that selects many. Listing searches
// the log in steps along its primary key, up to a limit.
func TestRareEntries(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := requestlog.New(d, quiet)
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			ids, statuses := make([]db.ID, 100_000), make([]int64, 100_000)
			for i := range ids {
				ids[i], statuses[i] = db.ID(dbtest.ID(fmt.Sprint("l", 100_000+i))), 200
			}
			statuses[1], statuses[99_998] = 500, 500
			_, err := tx.InsertRows(t.Context(), `request_logs (team_id, id, request_id, method, endpoint, status, user_agent,
				duration, request_body, response_body, created_at, actor_kind)`, "", db.ID(dbtest.ID("team")), ids, "", "GET",
				"/", statuses, "",
				int64(0), "", "", int64(0), "api_key")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		failed := requestlog.Filter{Status: "5xx"}
		trace.Take()
		all, more, next, err := s.List(t.Context(), dbtest.ID("team"), failed, page.Page{Limit: 2})
		if err != nil || len(all) != 1 || all[0].ID != dbtest.ID("l199998") || !more || next == "" {
			t.Errorf("%+v, more %v, next %q, %v", all, more, next, err)
		}
		asked := trace.Take()
		if len(asked) != 100 {
			t.Errorf("%d statements", len(asked))
		}
		for _, x := range asked[len(asked)-2:] {
			plan := trace.Plan(t, x)
			bounded := strings.Contains(plan, "team_id=? AND id") || d.Engine() == "postgres" &&
				strings.Contains(plan, "request_logs_default_pkey") && strings.Contains(plan, "(id < '6c")
			if !bounded || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "Sort  (") {
				t.Errorf("%s\n%s", x.SQL, plan)
			}
		}
		all, more, next, err = s.List(t.Context(), dbtest.ID("team"), failed, page.Page{Limit: 2, After: next})
		if err != nil || len(all) != 1 || all[0].ID != dbtest.ID("l100001") || more || next != "" {
			t.Errorf("the rest: %+v, more %v, next %q, %v", all, more, next, err)
		}
		all, more, next, err = s.List(t.Context(), dbtest.ID("team"), failed, page.Page{Limit: 2,
			Before: dbtest.ID("l100000")})
		if err != nil || len(all) != 1 || all[0].ID != dbtest.ID("l100001") || !more || next != dbtest.ID("l197000") {
			t.Errorf("backwards: %+v, more %v, next %q, %v", all, more, next, err)
		}
		trace.Take()
		all, more, _, err = s.List(t.Context(), dbtest.ID("team"), requestlog.Filter{Method: "GET"}, page.Page{Limit: 20})
		if n := len(trace.Take()); err != nil || len(all) != 20 || !more || n > 30 {
			t.Errorf("a common filter: %d entries by %d statements, %v", len(all), n, err)
		}
	})
}

// Run writes all entries that concurrent callers added before its context ended, in several batches.
func TestStopWritesTheQueue(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := requestlog.New(d, quiet)
		ctx, stop := context.WithCancel(t.Context())
		var run, adders sync.WaitGroup
		run.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		const workers, each = 8, 60
		for range workers {
			adders.Go(func() {
				for range each {
					s.Add(ctx, requestlog.Request{TeamID: dbtest.ID("team"), Method: "GET", Path: "/", Status: 200,
						Body: []byte(`{"a":"b"}`)})
				}
			})
		}
		adders.Wait()
		stop()
		run.Wait()
		if n := count(t, d); n != workers*each {
			t.Errorf("%d entries of %d", n, workers*each)
		}
	})
}

// If the database is too slow, requests wait briefly and then continue without a log entry, and Run logs the number of
// discarded entries. A team that has used up its share of the queue does not delay the requests of other teams.
func TestFullQueue(t *testing.T) {
	var log strings.Builder
	d := dbtest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := requestlog.New(d, slog.New(slog.NewTextHandler(&log, nil)))
		text := `"` + strings.Repeat("x", 15<<10) + `"`
		body := []byte("[" + strings.Join([]string{text, text, text, text}, ",") + "]")
		start, n := time.Now(), 0
		for ; time.Since(start) == 0; n++ {
			s.Add(t.Context(), requestlog.Request{TeamID: dbtest.ID("team"), Status: 500, Body: body})
		}
		if waited := time.Since(start); waited != time.Second || n < 440 || n > 500 {
			t.Errorf("%d entries until one waited for %v", n, waited)
		}
		start = time.Now()
		s.Add(t.Context(), requestlog.Request{TeamID: dbtest.ID("another"), Status: 500, Body: body})
		if waited := time.Since(start); waited != 0 {
			t.Errorf("another team's entry waited for %v", waited)
		}
		n++
		d.Close()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		said := 0
		for _, m := range regexp.MustCompile(`dropped=(\d+)`).FindAllStringSubmatch(log.String(), -1) {
			k, _ := strconv.Atoi(m[1])
			said += k
		}
		if said != n {
			t.Errorf("%d dropped of %d, by the log:\n%s", said, n, log.String())
		}
	})
}

// Old entries of a team are deleted in batches, and those of other teams stay.
func TestRemoveBefore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := requestlog.New(d, quiet)
		for range 700 {
			s.Add(ctx, requestlog.Request{TeamID: dbtest.ID("a")})
			s.Add(ctx, requestlog.Request{TeamID: dbtest.ID("b")})
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		next, err := s.RemoveBefore(ctx, dbtest.ID("a"), now.Add(-time.Hour), "")
		if err != nil || next != "" || count(t, d) != 1400 {
			t.Fatalf("%d left of what is young, next %q, %v", count(t, d), next, err)
		}
		for _, want := range []int{900, 700} {
			if next, err = s.RemoveBefore(ctx, dbtest.ID("a"), now.Add(time.Minute), next); err != nil || count(t, d) != want ||
				(next == "") != (want == 700) {
				t.Errorf("%d left of what is old, next %q, %v", count(t, d), next, err)
			}
		}
	})
}

// BenchmarkAdd measures adding a logged request with a body of 10 KB. BenchmarkWrite also measures writing the request
// to the database.
func BenchmarkAdd(b *testing.B) { benchAdd(b, false) }

func BenchmarkWrite(b *testing.B) { benchAdd(b, true) }

func benchAdd(b *testing.B, write bool) {
	body := []byte(`{"from":"Acme <hello@example.org>","html":"` +
		strings.Repeat("<p>Some text of an email, with its tags.</p>", 10_000/43) + `"}`)
	answer := []byte(`{"id":"01890000-0000-7000-8000-000000000000"}`)
	d := dbtest.SQLite(b)
	s := requestlog.New(d, quiet)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.Add(b.Context(), requestlog.Request{TeamID: dbtest.ID("team"), Actor: key("key"), Method: "POST", Path: "/emails",
			Status: 200,
			Body:   body, Answer: answer})
		if n++; n%256 != 0 {
			continue
		}
		if !write {
			b.StopTimer()
		}
		if err := s.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
