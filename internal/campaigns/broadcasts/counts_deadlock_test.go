package broadcasts_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Two transactions that update the same counter shard do not deadlock, even if they change recipients of two variants
// in opposite orders.
func TestCountsDoNotDeadlock(t *testing.T) {
	d, _ := dbtest.PostgresTraced(t)
	s := newSender(t, testnode.New(t, d, testnode.Options{}))
	const n = 20
	s.readers(n)
	id := s.twoVariants(100)
	s.send(id)
	s.enqueued(id, n)
	s.Update(func(tx *db.Tx) error { // make both database processes use the same shard
		_, err := tx.Exec(t.Context(), `DO $$ BEGIN EXECUTE REPLACE(
			pg_get_functiondef('broadcast_recipients_count'::REGPROC), 'pg_backend_pid() % 16', '0'); END $$`)
		return err
	})
	open := func(tx *db.Tx, variant, nth int) error {
		_, err := tx.Exec(t.Context(), `UPDATE broadcast_recipients SET opened = TRUE WHERE broadcast_id = $1
			AND contact_id = (SELECT contact_id FROM broadcast_recipients WHERE broadcast_id = $1 AND variant = $2
			ORDER BY contact_id LIMIT 1 OFFSET $3)`, db.ID(id), variant, nth)
		return err
	}
	var runs, second atomic.Int64
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	defer begin()
	var wg sync.WaitGroup
	wg.Go(func() {
		<-begun
		s.Update(func(tx *db.Tx) error {
			runs.Add(1)
			if err := open(tx, 1, 0); err != nil {
				return err
			}
			second.Store(1)
			return open(tx, 0, 1)
		})
	})
	s.Update(func(tx *db.Tx) error {
		runs.Add(1)
		if err := open(tx, 0, 0); err != nil {
			return err
		}
		begin()
		// Wait until the second transaction has made its first change or is blocked by this transaction.
		for deadline := time.Now().Add(20 * time.Second); second.Load() == 0; {
			waiting := 0
			err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database()`).Scan(&waiting)
			if err != nil || waiting > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Error("the other transaction does not begin")
				break
			}
		}
		return open(tx, 1, 1)
	})
	wg.Wait()
	if runs.Load() != 2 {
		t.Errorf("two transactions were run %d times", runs.Load())
	}
	s.mustCount(4, `SELECT SUM(opened) FROM broadcast_counts WHERE broadcast_id = $1`, db.ID(id))
}
