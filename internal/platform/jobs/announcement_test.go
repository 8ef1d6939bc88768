package jobs

import (
	"errors"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestLostAnnouncementOfADeadNode declares a node dead and loses the answer to the heartbeat that registers it again.
// After the lost answer, the next heartbeat finds the node registered, but the node has lost its earlier jobs.
func TestLostAnnouncementOfADeadNode(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	r := testRunner(t, d)
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := Job{life: r.life.Load()}
	w := watcher{r: r, pulse: r.pulse, known: map[string]seen{}}
	exec(t, d, `DELETE FROM nodes`)
	proxy.LoseAnswers(1)
	w.beat(t.Context())
	w.beat(t.Context())
	if err := before.Sure(t.Context()); proxy.Lost() != 1 || !errors.Is(err, ErrLost) {
		t.Errorf("with %d answers lost a job from before the burial is %v, want %v", proxy.Lost(), err, ErrLost)
	}
	if err := (Job{life: r.life.Load()}).Sure(t.Context()); err != nil {
		t.Errorf("a job from after it is %v", err)
	}
}

// TestLateAnnouncementOfADeadNode is like TestLostAnnouncementOfADeadNode, but the next heartbeat begins before the
// server has executed the lost COMMIT. The heartbeat waits for that COMMIT and succeeds.
func TestLateAnnouncementOfADeadNode(t *testing.T) {
	url := dbtest.PostgresURL(t)
	proxy, beside := dbtest.ProxyTo(t, url), dbtest.Open(t, url)
	r := testRunner(t, dbtest.OpenThrough(t, proxy, 0))
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, beside, `DELETE FROM nodes`)
	exec(t, beside, `CREATE FUNCTION await() RETURNS TRIGGER LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END'`)
	exec(t, beside, `CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
		EXECUTE FUNCTION await()`)
	locked, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		beside.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`)
			close(locked)
			<-free
			return err
		})
	})
	<-locked
	proxy.LoseAnswers(1)
	if _, dead, err := r.beat(t.Context()); !dead || err == nil {
		t.Errorf("the heartbeat whose answer is lost: dead %v, %v", dead, err)
	}
	wg.Go(func() {
		if _, dead, err := r.beat(t.Context()); !dead || err != nil {
			t.Errorf("the heartbeat that waits for the registration: dead %v, %v", dead, err)
		}
	})
	for waiting := 0; waiting < 2; {
		if err := beside.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND datname = current_database()`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	close(free)
	wg.Wait()
	if _, dead, err := r.beat(t.Context()); dead || err != nil {
		t.Errorf("the heartbeat after it: dead %v, %v", dead, err)
	}
}
