package webhooks_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// TestOutcomesOutliveAnOutage makes the database unavailable while an endpoint answers a delivery and a replay. When
// the database is available again, the response is recorded, and no request is repeated.
func TestOutcomesOutliveAnOutage(t *testing.T) {
	t.Parallel() // runs after the simulated-time tests, whose clocks would have to catch up with its ids
	d, proxy := dbtest.Proxied(t, time.Second)
	f := loopback(t, d)
	x := receive(t, func(n int, _ http.ResponseWriter, _ *http.Request) {
		proxy.Refuse()
		time.AfterFunc(2*time.Second, func() {
			if err := proxy.Pass(); err != nil {
				t.Error(err)
			}
		})
	})
	e := f.endpoint(t, x.URL)
	ended := func(what string, want int) {
		t.Helper()
		testnode.Until(t, what, func() bool {
			var n int
			err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE kind = $1`, webhooks.Kind).Scan(&n)
			return err == nil && n == 0 && len(x.all()) >= want
		})
		if n := len(x.all()); n != want {
			t.Errorf("%s: the endpoint was asked %d times, want %d", what, n, want)
		}
	}
	f.suppress(t, "ann@example.net")
	ended("a delivery", 1)
	m := f.messages(t, e)[0]
	must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, m.ID))
	ended("a replay", 2)
	if m = f.messages(t, e)[0]; m.State != webhooks.Success || len(f.attempts(t, e, m)) != 2 {
		t.Errorf("the message is %s, with attempts %+v", m.State, f.attempts(t, e, m))
	}
}

// TestStoppingReplaysNothing starts a replay job while the node is stopping.
func TestStoppingReplaysNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f := newFixture(t, d, config(), loopbackOnly)
		x := receive(t, nil)
		e := f.endpoint(t, x.URL)
		stop := f.run()
		f.suppress(t, "ann@example.net")
		m := f.becomes(t, e, webhooks.Success)
		stop()
		must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, m.ID))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := jobs.NewRunner(d, f.Queue, slog.New(slog.DiscardHandler), 2*time.Second)
		for _, k := range f.Kinds() {
			if handle := k.Handle; k.Name == webhooks.Kind {
				k.Handle = func(handleCtx context.Context, j jobs.Job) error {
					cancel()
					return handle(handleCtx, j)
				}
				r.Handle(k)
			}
		}
		must(t, r.Run(ctx))
		if n := len(x.all()); n != 1 {
			t.Errorf("the endpoint was asked %d times, want once", n)
		}
	})
}
