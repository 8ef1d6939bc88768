package webhooks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// silence is a receiver that does not answer until the test releases it.
type silence struct {
	*receiver
	mu      sync.Mutex
	in      int // waiting requests
	most    int
	release chan struct{}
}

func silent(t *testing.T) *silence {
	x := &silence{release: make(chan struct{})}
	x.receiver = receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		x.in++
		x.most = max(x.most, x.in)
		x.mu.Unlock()
		select {
		case <-x.release:
		case <-r.Context().Done():
		}
		x.mu.Lock()
		x.in--
		x.mu.Unlock()
	})
	t.Cleanup(x.free)
	return x
}

func (x *silence) free() {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.release:
	default:
		close(x.release)
	}
}

func (x *silence) waiting() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.in
}

// endpoints adds n endpoints to a team; they select suppression events, and their URLs differ only in the path.
func (f *fixture) endpoints(t *testing.T, team, url string, n int) (all []webhooks.Endpoint) {
	t.Helper()
	for i := range n {
		e, err := f.Create(t.Context(), team, fmt.Sprintf("%s/%d", url, i), []string{"suppression.added",
			"suppression.removed"})
		must(t, err)
		all = append(all, e)
	}
	return all
}

// addresses records n suppression events for a team.
func (f *fixture) addresses(t *testing.T, team string, n int) {
	t.Helper()
	for i := range n {
		_, err := f.Suppressions.Add(t.Context(), team, []string{fmt.Sprintf("a%d@example.net", i)})
		must(t, err)
	}
}

func (f *fixture) count(t *testing.T, text string, args ...any) (n int) {
	t.Helper()
	return f.Count(`SELECT COUNT(*) FROM `+text, args...)
}

// If a team's endpoints never answer, the team occupies only its share of the workers, and another team's webhook
// arrives while all of the first team's attempts hang.
func TestTeamsShareWorkers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		c := config()
		c.Workers, c.Timeout = 32, time.Minute
		f := newFixture(t, d, c, loopbackOnly)
		bad, good := silent(t), receive(t, nil)
		f.endpoints(t, dbtest.ID("hostile"), bad.URL, 300)
		e := f.endpoint(t, good.URL)
		f.addresses(t, dbtest.ID("hostile"), 5)
		stop := f.run()
		testnode.Until(t, "the hostile team holds what it can", func() bool { return bad.waiting() == 28 }) // 7/8 of 32
		for i := range 20 {
			f.suppress(t, fmt.Sprintf("b%d@example.net", i))
			f.becomes(t, e, webhooks.Success)
		}
		if n := bad.waiting(); n != 28 || len(good.all()) != 20 {
			t.Errorf("%d hostile attempts hang, %d webhooks of the good team arrived", n, len(good.all()))
		}
		bad.free()
		stop()
	})
}

// One team has at most 64 connections to one address across all its endpoints. If a team has no free connection to an
// address, no attempt is made, and the message is delivered later.
func TestConnectionsToAnAddress(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		c := config()
		c.Timeout = time.Minute
		f := newFixture(t, d, c, loopbackOnly)
		victim := silent(t)
		f.endpoints(t, f.Acme.TeamID, victim.URL, 100)
		f.addresses(t, f.Acme.TeamID, 1)
		other, err := f.Create(t.Context(), dbtest.ID("other"), victim.URL+"/other", []string{"suppression.added"})
		must(t, err)
		f.run()
		testnode.Until(t, "all connections are held, and some deliveries found none", func() bool {
			return victim.waiting() == 64 && f.count(t, `jobs WHERE last_error LIKE '%as many connections%'`) > 0
		})
		f.addresses(t, dbtest.ID("other"), 1)
		testnode.Until(t, "another team gets in", func() bool { return victim.waiting() == 65 })
		victim.free()
		testnode.Until(t, "all are delivered", func() bool {
			return f.count(t, `webhook_deliveries WHERE status = 'success'`) == 101
		})
		if n := f.count(t, `webhook_attempts`); n != 101 || victim.most != 65 {
			t.Errorf("%d attempts at 101 messages, %d at once", n, victim.most)
		}
		_ = other
	})
}

// Jobs from older releases, whose lanes contain only the endpoint id, are handled.
func TestLanesOfTheReleaseBefore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f, x := newFixture(t, d, config(), loopbackOnly), receive(t, nil)
		e := f.endpoint(t, x.URL)
		f.suppress(t, "a@example.net")
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE jobs SET lane = $1 WHERE kind = 'webhook'`, e.ID)
			return nil
		}))
		f.suppress(t, "b@example.net")
		f.run()
		testnode.Until(t, "both are delivered", func() bool {
			return f.count(t, `webhook_deliveries WHERE status = 'success'`) == 2
		})
	})
}

// A transaction that records an event writes only a few rows, however many endpoints select the event. The deliveries
// to many endpoints are inserted in small steps.
func TestManyEndpoints(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f := newFixture(t, d, config(), loopbackOnly)
		x := receive(t, nil)
		all := f.endpoints(t, f.Acme.TeamID, x.URL, 120)
		off := all[7]
		must(t, f.Service.Update(t.Context(), f.Acme.TeamID, off.ID, webhooks.Change{Status: new("disabled")}))
		f.suppress(t, "a@example.net")
		f.unsuppress(t, "a@example.net")
		rows := []int{f.count(t, `webhook_messages`), f.count(t, `webhook_fanouts`), f.count(t, `jobs`),
			f.count(t, `webhook_deliveries`)}
		if fmt.Sprint(rows) != "[2 2 2 0]" {
			t.Errorf("two events entered messages, fan-outs, jobs and deliveries %v", rows)
		}
		f.endpoints(t, f.Acme.TeamID, x.URL+"/late", 1)
		f.run()
		testnode.Until(t, "all are delivered", func() bool {
			return f.count(t,
				`webhook_deliveries WHERE status = 'success'`) == 2*119
		})
		order := map[string][]string{}
		for _, r := range x.all() {
			order[r.path] = append(order[r.path], r.id())
		}
		for path, ids := range order {
			if len(ids) != 2 || !slices.IsSorted(ids) {
				t.Errorf("at %s came %v", path, ids)
			}
		}
		if len(order) != 119 || f.count(t, `webhook_fanouts`) != 0 || f.count(t, `jobs WHERE kind LIKE 'webhook%'`) != 0 {
			t.Errorf("%d endpoints were told; %d fan-outs and %d jobs are left", len(order), f.count(t, `webhook_fanouts`),
				f.count(t, `jobs WHERE kind LIKE 'webhook%'`))
		}
	})
}

// The number of rows that one transaction writes for several events is also limited.
func TestManyEventsAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f := newFixture(t, d, config(), loopbackOnly)
		x := receive(t, nil)
		f.endpoints(t, f.Acme.TeamID, x.URL, 10)
		var all []events.Event
		for i := range 50 {
			all = append(all, events.Event{Type: events.SuppressionAdded,
				Data: suppressions.Suppression{Address: fmt.Sprintf("a%d@example.net", i)}})
		}
		f.happen(t, all...)
		if n := f.count(t, `webhook_deliveries`); n != 60 {
			t.Errorf("50 events for 10 endpoints entered %d deliveries at once", n)
		}
		f.run()
		testnode.Until(t, "all are delivered", func() bool {
			return f.count(t, `webhook_deliveries WHERE status = 'success'`) == 500
		})
	})
}

// Each endpoint gets each message once, however often the program restarts during a fan-out.
func TestManyEndpointsThroughRestarts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f := newFixture(t, d, config(), loopbackOnly)
		x := silent(t)
		f.endpoints(t, f.Acme.TeamID, x.URL, 110)
		const messages = 3
		f.addresses(t, f.Acme.TeamID, messages)
		for entered := 0; entered < messages*110; {
			stop := f.run()
			testnode.Until(t, "more is entered", func() bool {
				n := f.count(t, `webhook_deliveries`)
				return n > entered || n == messages*110
			})
			stop()
			entered = f.count(t, `webhook_deliveries`)
		}
		if n := f.count(t, `jobs WHERE kind = 'webhook'`); n != messages*110 {
			t.Errorf("%d jobs for %d deliveries", n, messages*110)
		}
		if d.Engine() == "postgres" { // only PostgreSQL has a column that shows which rows were inserted together
			var n int
			must(t, d.QueryRow(t.Context(),
				`SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM webhook_deliveries GROUP BY xmin) x`).Scan(&n))
			if n > 50 {
				t.Errorf("%d deliveries were entered in one transaction", n)
			}
		}
	})
}

// An endpoint with too many waiting messages accepts no new messages: they fail immediately and can be recovered, and
// the team is notified once.
func TestFullEndpoint(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		c := config()
		c.EndpointMax, c.Timeout = 40, time.Minute
		f := newFixture(t, d, c, loopbackOnly)
		x := silent(t)
		start := time.Now()
		e, beside := f.endpoint(t, x.URL), f.endpoint(t, receive(t, nil).URL)
		stop := f.run()
		sent := 0
		send := func() {
			sent++
			f.suppress(t, fmt.Sprintf("a%d@example.net", sent))
			f.becomes(t, beside, webhooks.Success) // on a slow machine, this endpoint would fill up too
		}
		testnode.Until(t, "the endpoint is full", func() bool {
			send()
			got, err := f.Get(t.Context(), f.Acme.TeamID, e.ID)
			must(t, err)
			return !got.FullSince.IsZero()
		})
		if sent < 40 {
			t.Errorf("it is full with %d messages, may have 40", sent)
		}
		var m webhooks.Message
		testnode.Until(t, "what comes then fails", func() bool { // this node applies the change only after the commit
			send()
			m = f.messages(t, e)[0]
			return m.State == webhooks.Failed
		})
		if n := len(f.attempts(t, e, m)); n != 0 {
			t.Errorf("%d attempts at the last message", n)
		}
		if err := f.Replay(t.Context(), f.Acme.TeamID, e.ID, m.ID); fault.KindOf(err) != fault.TooFast {
			t.Errorf("a replay at a full endpoint: %v", err)
		}
		testnode.Until(t, "the team is told", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.notices) > 0
		})
		stop()
		f.run() // after a restart, the endpoint remains full until its backlog shrinks
		f.suppress(t, "more@example.net")
		if m := f.messages(t, e)[0]; m.State != webhooks.Failed {
			t.Errorf("after a restart: %+v", m)
		}
		x.free()
		testnode.Until(t, "it is no longer full", func() bool {
			got, err := f.Get(t.Context(), f.Acme.TeamID, e.ID)
			must(t, err)
			return got.FullSince.IsZero()
		})
		must(t, f.Recover(t.Context(), f.Acme.TeamID, e.ID, start))
		testnode.Until(t, "all is delivered", func() bool {
			return f.count(t, `webhook_deliveries WHERE status = 'success'`) == 2*(sent+1)
		})
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.notices) != 1 || !strings.Contains(f.notices[0], x.URL) {
			t.Errorf("notices %q", f.notices)
		}
	})
}

// A recovery leaves space for new messages: it uses half of the maximum backlog, and continues when its messages have
// been delivered.
func TestRecoverInParts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		c := config()
		f := newFixture(t, d, c, loopbackOnly)
		x := receive(t, nil)
		start := time.Now()
		e := f.endpoint(t, x.URL)
		f.addresses(t, f.Acme.TeamID, 350)
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE webhook_deliveries SET status = 'failed'`)
			tx.Queue(t.Context(), `DELETE FROM jobs`)
			return nil
		}))
		c.EndpointMax = 600
		f = f.again(t, c, loopbackOnly)
		must(t, f.Recover(t.Context(), f.Acme.TeamID, e.ID, start.Add(-time.Minute)))
		f.run()
		testnode.Until(t, "all is delivered", func() bool {
			return f.count(t, `webhook_deliveries WHERE status = 'success'`) == 350
		})
		if n := len(x.all()); n != 350 {
			t.Errorf("%d requests for 350 messages", n)
		}
	})
}

// However often a message is replayed, at most one replay waits, and the number of stored attempts is limited.
func TestReplayFlood(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f, x := newFixture(t, d, config(), loopbackOnly), receive(t, nil)
		e := f.endpoint(t, x.URL)
		f.suppress(t, "a@example.net")
		stop := f.run()
		m := f.becomes(t, e, webhooks.Success)
		stop()
		for range 50 {
			must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, m.ID))
		}
		if n := f.count(t, `jobs WHERE kind = 'webhook'`); n != 1 {
			t.Errorf("%d replays of one message wait", n)
		}
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			for i := range 150 {
				tx.Queue(t.Context(), `INSERT INTO webhook_attempts (webhook_id, message_id, id, team_id, status_code, response,
					error, started_at, duration) VALUES ($1, $2, $3, $4, 500, '', 'no', 0,
					0)`, db.ID(e.ID), db.ID(id.Expand(strings.TrimPrefix(m.ID, webhooks.MessagePrefix))),
					db.ID(id.First(time.UnixMilli(int64(i)))), db.ID(f.Acme.TeamID))
			}
			return nil
		}))
		f.run()
		testnode.Until(t, "the replay is made", func() bool {
			return len(x.all()) == 2 &&
				f.count(t, `jobs WHERE kind = 'webhook'`) == 0
		})
		all, more, err := f.Attempts(t.Context(), f.Acme.TeamID, e.ID, m.ID, page.Page{Limit: 100})
		if err != nil || len(all) != 100 || more || all[0].Code != 200 {
			t.Errorf("%d attempts are kept, more %v, %v", len(all), more, err)
		}
	})
}

// Only the beginning of a response is stored, and less of it for a successful attempt than for a failed one. The
// connection can be reused after a long response.
func TestAnswersKept(t *testing.T) {
	t.Parallel()
	c := config()
	c.Schedule = []time.Duration{time.Millisecond}
	f := newFixture(t, dbtest.SQLite(t), c, loopbackOnly)
	x := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			w.WriteHeader(500)
		}
		fmt.Fprint(w, strings.Repeat("ü", 10_000))
	})
	e := f.endpoint(t, x.URL)
	f.suppress(t, "a@example.net")
	f.run()
	m := f.becomes(t, e, webhooks.Success)
	all := f.attempts(t, e, m)
	if len(all) != 2 || all[1].Response != strings.Repeat("ü", 512) || all[0].Response != strings.Repeat("ü", 128) {
		t.Errorf("%d attempts, %.400v", len(all), all)
	}
	if got := x.all(); got[0].from != got[1].from {
		t.Errorf("the second attempt came over another connection")
	}
}
