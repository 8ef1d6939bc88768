//go:build chaos

package e2e

import (
	"syscall"
	"testing"
	"time"
)

// killed kills nodes one after the other with SIGKILL.
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

// stopped suspends a node with SIGSTOP for 90 s. With PostgreSQL, the other node declares the suspended node dead
// during the 90 s.
func stopped(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		w.burst(w.nodes[0])
		w.nodes[0].cmd.Process.Signal(syscall.SIGSTOP)
		if engine == "postgres" {
			// Five seconds are enough for hosts to read the sent data, but too short for the node to be declared dead.
			time.Sleep(5 * time.Second)
			w.inHand(0)
			time.Sleep(85 * time.Second)
		} else {
			time.Sleep(90 * time.Second) // with SQLite no other node takes over, so every email must arrive only once
		}
		w.nodes[0].cmd.Process.Signal(syscall.SIGCONT)
		time.Sleep(10 * time.Second)
	})
	w.settle()
	return w.sum()
}

// rolled stops each node cleanly and replaces it with a new one, twice for every node. Hosts respond so slowly that a
// node's grace period at shutdown is long enough for open SMTP transactions, but not for new ones.
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

// kill kills a node with SIGKILL, counts the emails that it was sending, and restarts it.
func (w *cluster) kill(i int) {
	w.t.Helper()
	w.nodes[i].kill()
	gone := func() bool { return w.mail.open(w.life(i)) == 0 }
	eventually(w.t, time.Minute, "the hosts hear that the node is gone", gone)
	w.inHand(i)
	w.launch(i)
}

// roll stops a node cleanly and then starts a new node in its place.
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
