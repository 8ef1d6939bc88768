//go:build chaos

package e2e

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// restarted stops PostgreSQL in order, then as a crash would, twice each.
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

// cutInCommits ends connections in the middle of COMMITs, whose answers are lost, or which do not reach the server.
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
	if lost < 75 { // of 150
		t.Errorf("only %d commits were cut: the scenario tried little", lost)
	}
	w.settle()
	s := w.sum()
	s.more = fmt.Sprintf("commits cut: %d", lost)
	return s
}

// away has nobody reach PostgreSQL for a minute.
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

// hangs has PostgreSQL answer nobody for 45 s, while connections stay open.
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

// cutOff has one of two nodes not reach PostgreSQL for a minute, so that the other takes over.
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

// cutOffSilently is cutOff by a network that loses everything.
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

// apart waits for a minute while the first node cannot reach PostgreSQL. What hosts have taken from it until it was no
// longer sure of its jobs, after 12 seconds, it cannot record, and so another sends that again when it takes over.
func (w *cluster) apart() {
	w.t.Helper()
	time.Sleep(15 * time.Second)
	w.inHand(0)
	time.Sleep(45 * time.Second)
}

// pass lets PostgreSQL be reached again.
func (w *cluster) pass() {
	w.t.Helper()
	for _, p := range w.proxies {
		if err := p.Pass(); err != nil {
			w.t.Fatal(err)
		}
	}
}
