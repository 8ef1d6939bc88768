//go:build chaos

package e2e

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// restarted restarts PostgreSQL twice after a clean shutdown and twice after a crash.
func restarted(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		for _, how := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGQUIT} {
			w.burst(w.nodes[0])
			w.server.Stop(how)
			time.Sleep(time.Second)
			if err := w.server.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second)
		}
	})
	w.settle()
	return w.sum()
}

// cutInCommits closes database connections during COMMITs, either before the command reaches the server or before the
// response reaches the node.
func cutInCommits(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	lost := 0
	w.during(func() {
		for i := range 100 {
			if i%2 == 0 {
				w.proxies[i/2%2].LoseAnswers(2)
			} else {
				w.proxies[i/2%2].DropCommits(1)
			}
			time.Sleep(400 * time.Millisecond)
		}
	})
	for _, p := range w.proxies {
		lost += p.Lost()
		if err := p.Pass(); err != nil {
			t.Fatal(err)
		}
	}
	if lost < 75 { // half of the 150 requested cuts
		t.Errorf("only %d commits were cut: the scenario tried little", lost)
	}
	w.settle()
	s := w.sum()
	s.more = fmt.Sprintf("commits cut: %d", lost)
	return s
}

// away makes PostgreSQL unreachable for all nodes for one minute.
func away(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		w.burst(w.nodes[0])
		for _, p := range w.proxies {
			p.Refuse()
		}
		time.Sleep(time.Minute)
		w.pass()
		time.Sleep(5 * time.Second)
	})
	w.settle()
	return w.sum()
}

// hangs keeps PostgreSQL from answering for 45 s while its connections stay open.
func hangs(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		w.burst(w.nodes[0])
		for _, p := range w.proxies {
			p.Hang()
		}
		time.Sleep(45 * time.Second)
		w.pass()
		time.Sleep(5 * time.Second)
	})
	w.settle()
	return w.sum()
}

// cutOff makes PostgreSQL unreachable for one of two nodes for one minute, so that the other node takes over its jobs.
func cutOff(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		w.burst(w.nodes[0])
		w.proxies[0].Refuse()
		w.apart()
		w.pass()
		time.Sleep(5 * time.Second)
	})
	w.settle()
	return w.sum()
}

// cutOffSilently is like cutOff, but the network drops all packets without an error.
func cutOffSilently(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	w.during(func() {
		w.burst(w.nodes[0])
		w.proxies[0].Hang()
		w.apart()
		w.pass()
		time.Sleep(5 * time.Second)
	})
	w.settle()
	return w.sum()
}

// apart waits for a minute while the first node cannot reach PostgreSQL. A node that cannot reach the database stops
// sending after 12 seconds, because another node may soon take over its jobs. The cut-off node cannot record the
// deliveries from its last 12 seconds, so the other node repeats them.
func (w *cluster) apart() {
	w.t.Helper()
	time.Sleep(15 * time.Second)
	w.inHand(0)
	time.Sleep(45 * time.Second)
}

// pass lets the proxies forward connections to PostgreSQL again.
func (w *cluster) pass() {
	w.t.Helper()
	for _, p := range w.proxies {
		if err := p.Pass(); err != nil {
			w.t.Fatal(err)
		}
	}
}
