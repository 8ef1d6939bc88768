package emails

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// If the attachments of an email cannot be fetched, three tries are made. If other emails keep a host busy, the email
// waits up to six hours. Waiting for a busy host does not count as a try, and files that have been fetched are kept.
func TestFetchAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		q := jobs.NewQueue(d)
		s := &Service{Deps: Deps{DB: d, Queue: q, Recorder: &events.Recorder{}, Log: slog.New(slog.DiscardHandler)}}
		broken := errors.New("the host answered 500")
		for _, c := range []struct {
			name    string
			tries   int
			age     time.Duration
			fetched []*Attachment
			cause   error
			left    int
			counted int
			wait    time.Duration
		}{
			{"first try", 0, time.Minute, nil, broken, 1, 1, fetchWaits[0]},
			{"second try", 1, time.Minute, nil, broken, 1, 1, fetchWaits[1]},
			{"third try", 2, time.Minute, nil, broken, 0, 0, 0},
			{"third try, and some was fetched", 2, time.Minute, []*Attachment{{}}, broken, 1, 1, fetchWaits[1]},
			{"busy", 2, 5 * time.Hour, nil, netguard.ErrBusy, 1, 0, fetchWaits[1]},
			{"busy for too long", 0, 7 * time.Hour, nil, netguard.ErrBusy, 0, 0, 0},
		} {
			e := &Email{ID: dbtest.ID(c.name), TeamID: dbtest.ID("team")}
			j := jobs.Job{Tries: c.tries, CreatedAt: d.Now().Add(-c.age)}
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				q.Insert(t.Context(), tx, fetchJob(e))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := d.QueryRow(t.Context(), `SELECT id, kind, lane FROM jobs WHERE dedupe = $1`, e.ID).
				Scan((*db.ID)(&j.ID), &j.Kind,
					&j.Lane); err != nil {
				t.Fatal(err)
			}
			before := d.Now()
			if err := s.retryFetch(t.Context(), j, e, c.fetched, c.cause); err != nil {
				t.Fatal(err)
			}
			var left, counted int
			var at int64
			if err := d.QueryRow(t.Context(),
				`SELECT COUNT(*), COALESCE(SUM(tries), 0), COALESCE(MAX(run_at), 0) FROM jobs WHERE id = $1`,
				db.ID(j.ID)).Scan(&left, &counted, &at); err != nil {
				t.Fatal(err)
			}
			if wait := db.Time(at).Sub(before); left != c.left || counted != c.counted || left > 0 &&
				(wait < c.wait/2 || wait > 2*c.wait) {
				t.Errorf("%s: %d jobs are left with %d more tries, in %v", c.name, left, counted, wait)
			}
		}
	})
}
