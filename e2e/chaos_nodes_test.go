//go:build chaos

package e2e

import (
	"syscall"
	"testing"
	"time"
)

// killed ends nodes as a power cut would, one after the other.
func killed(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		for i := range 5 {
			w.burst(w.nodes[i%len(w.nodes)])
			w.kill(i % len(w.nodes))
			time.Sleep(7 * time.Second)
		}
	})
	w.settle()
	return w.sum()
}

// stopped suspends a node for 90 s; on PostgreSQL another takes it for dead meanwhile.
func stopped(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		w.burst(w.nodes[0])
		w.nodes[0].cmd.Process.Signal(syscall.SIGSTOP)
		if engine == "postgres" {
			time.Sleep(5 * time.Second) // for what had been said to be heard, and less than it takes to be taken for dead
			w.inHand(0)
			time.Sleep(85 * time.Second)
		} else {
			time.Sleep(90 * time.Second) // nobody takes over, so nothing may be doubled
		}
		w.nodes[0].cmd.Process.Signal(syscall.SIGCONT)
		time.Sleep(10 * time.Second)
	})
	w.settle()
	return w.sum()
}

// rolled stops the nodes in order and starts new ones, one after the other, twice. Hosts become slow then: the grace of
// a node is enough to end the conversations that it is in, and not for others after them.
func rolled(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{env: []string{"POSTRIDER_SHUTDOWN_GRACE=12s"}})
	w.during(func() {
		for range 2 {
			for i := range w.nodes {
				w.mail.slow(8 * time.Second)
				w.burst(w.nodes[i])
				w.roll(i)
				w.mail.slow(latency)
				time.Sleep(5 * time.Second)
			}
		}
	})
	w.settle()
	return w.sum()
}

// kill ends a node as a power cut would, counts what it had in hand, and starts it again.
func (w *cluster) kill(i int) {
	w.t.Helper()
	w.nodes[i].kill()
	gone := func() bool { return w.mail.open(w.life(i)) == 0 }
	eventually(w.t, time.Minute, "the hosts hear that the node is gone", gone)
	w.inHand(i)
	w.launch(i)
}

// roll asks a node to stop, and starts a new one when it has.
func (w *cluster) roll(i int) {
	w.t.Helper()
	began := time.Now()
	w.nodes[i].cmd.Process.Signal(syscall.SIGTERM)
	if err := w.nodes[i].cmd.Wait(); err != nil {
		w.t.Errorf("asked to stop, the node ended with %v", err)
	}
	if took := time.Since(began); took > 45*time.Second {
		w.t.Errorf("a node took %v to stop", took)
	}
	w.launch(i)
}
