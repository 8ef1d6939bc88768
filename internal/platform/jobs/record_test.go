package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// TestRecord checks that Record repeats its update during an outage and records the outcome once, unless another worker
// has the job or the context ends.
func TestRecord(t *testing.T) {
	later := func(f func() error) {
		time.AfterFunc(time.Second, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, tc := range []struct {
		name string
		fail func(*pgproxy.Proxy, *db.DB)
		ends bool // whether the handler's context ends
		want error
		left int // number of remaining jobs
	}{
		{name: "nothing fails"},
		{name: "away for a second", fail: func(p *pgproxy.Proxy, _ *db.DB) { p.Refuse(); later(p.Pass) }},
		{name: "a commit is lost", fail: func(p *pgproxy.Proxy, _ *db.DB) { p.DropCommits(1) }},
		{name: "an answer is lost", fail: func(p *pgproxy.Proxy, _ *db.DB) { p.LoseAnswers(1) }},
		{name: "another has the job", fail: func(_ *pgproxy.Proxy, beside *db.DB) {
			exec(t, beside, `UPDATE jobs SET attempt = attempt + 1`)
		}, want: ErrLost, left: 1},
		{name: "another has the job after an outage", fail: func(p *pgproxy.Proxy, beside *db.DB) {
			exec(t, beside, `UPDATE jobs SET attempt = attempt + 1`)
			p.Refuse()
			later(p.Pass)
		}, want: ErrLost, left: 1},
		{name: "away, and the time is over", fail: func(p *pgproxy.Proxy, _ *db.DB) { p.Refuse() }, ends: true,
			want: db.ErrUnavailable, left: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := dbtest.PostgresURL(t)
			beside := dbtest.Open(t, url)
			proxy := dbtest.ProxyTo(t, url)
			d, err := db.Open(t.Context(), dbtest.Through(proxy, db.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			q := NewQueue(d)
			insert(t, beside, New{Kind: "k"})
			exec(t, beside, `UPDATE jobs SET attempt = 1`)
			j := Job{Attempt: 1}
			if err := beside.QueryRow(t.Context(), `SELECT id FROM jobs`).Scan((*db.ID)(&j.ID)); err != nil {
				t.Fatal(err)
			}
			if tc.fail != nil {
				tc.fail(proxy, beside)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.ends {
				cancel()
			}
			if err := q.Record(ctx, func(tx *db.Tx) error {
				q.Finish(ctx, tx, j)
				return nil
			}); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			var left int
			if err := beside.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs`).Scan(&left); err != nil || left != tc.left {
				t.Errorf("%d jobs are left, %v; want %d", left, err, tc.left)
			}
		})
	}
}
