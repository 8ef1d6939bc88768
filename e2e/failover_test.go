//go:build chaos && failover

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

const (
	failoverEvery = 40 * time.Second      // time between two failovers
	switchoverGap = 3 * time.Second       // maximum time between two accepted emails at a switchover
	killGap       = ttl + 5*time.Second   // the same when the leader is killed
	failoverLoad  = 5 * time.Millisecond  // time between two emails
	failoverThink = 20 * time.Millisecond // time that the receiving host takes for a message
	poolerGap     = 2 * time.Second       // additional time until the pooler reaches the new leader
)

// TestFailover replaces the leader of a Patroni cluster under load, by a switchover and by SIGKILL in turns. No
// accepted email is lost, and none arrives twice, because no node is killed.
//
// POSTRIDER_FAILOVER_MINUTES is the duration of the load. If POSTRIDER_FAILOVER_POOLER is set, nodes reach the leader
// through PgBouncer in transaction mode.
func TestFailover(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("POSTRIDER_FAILOVER_MINUTES"), 64)
	if err != nil {
		t.Fatalf("POSTRIDER_FAILOVER_MINUTES: %v", err)
	}
	p := startPatroni(t)
	env := []string{"POSTRIDER_DATABASE_URL=" + p.url()}
	name, more := "failover", time.Duration(0)
	if os.Getenv("POSTRIDER_FAILOVER_POOLER") != "" {
		pooler := dbtest.NewPooler(t, p.forward(), "transaction", 20)
		env = []string{"POSTRIDER_DATABASE_URL=" + pooler.URL("postgres://postgres@x/postgres?sslmode=disable"),
			"POSTRIDER_DATABASE_DIRECT_URL=" + p.url()}
		name, more = "failover-pgbouncer", poolerGap
	}
	w := failoverCluster(t, p, env)
	probing, writes := make(chan struct{}), make(chan []time.Time)
	go func() { writes <- p.probe(probing) }()
	var events []failoverEvent
	w.during(func() {
		for over := time.Now().Add(time.Duration(minutes * float64(time.Minute))); time.Now().Before(over); {
			e := failoverEvent{at: time.Now(), kill: len(events)%2 == 1}
			events = append(events, e)
			if e.kill {
				p.killLeader()
			} else {
				p.switchover()
			}
			time.Sleep(time.Until(e.at.Add(failoverEvery)))
			if !within(2*time.Minute, p.complete) {
				t.Errorf("the replaced server did not come back: %v", p.roles())
				return
			}
		}
	})
	close(probing)
	w.settle()
	s := w.sum()
	s.name, s.engine, s.more = name, "postgres", w.checkGaps(events, <-writes, more)
	fmt.Println(s)
	for _, rule := range s.broken() {
		t.Error(rule)
	}
	recorded, err := w.recorded()
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for i, f := range w.fates {
		if f == accepted && !recorded[i] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("the outcomes of %d accepted emails are not recorded", missing)
	}
}

// failoverEvent is one replacement of the leader.
type failoverEvent struct {
	at   time.Time
	kill bool
}

// failoverCluster starts two nodes that use the Patroni cluster.
func failoverCluster(t *testing.T, p *patroni, env []string) *cluster {
	t.Helper()
	w := &cluster{t: t, mail: newMailbox(t), every: failoverLoad, blobs: filepath.Join(t.TempDir(), "blobs"),
		fates: map[int]fate{}, posted: map[int]time.Time{}, answers: map[string]int{}, allowed: map[int]int{},
		server: &dbtest.Server{URL: p.url()}}
	w.mail.slow(failoverThink)
	relay := w.mail.listen("127.0.0.1:0", nil)
	env = append(env, "POSTRIDER_SECRET_KEY="+sharedSecret, "POSTRIDER_BLOB_URL="+w.blobs,
		"POSTRIDER_ROLES=api,delivery,jobs")
	for i := range 2 {
		n := prepare(t, binary, slices.Clone(env), "--relay", relay, "--relay-tls", "none")
		n.tail = 4000
		w.nodes, w.lives = append(w.nodes, n), append(w.lives, 0)
		w.launch(i)
	}
	w.nodes[0].addDomain("acme.example")
	return w
}

// checkGaps compares, for each event, the longest time without an accepted email with the limits and with the longest
// time without a write of probe, and returns these times as text. The limits are increased by more. If PostgreSQL
// itself takes longer than a limit, as on a busy machine, nodes must continue a second later.
func (w *cluster) checkGaps(events []failoverEvent, writes []time.Time, more time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.accepts, time.Time.Compare)
	var texts []string
	for i, e := range events {
		until := e.at.Add(time.Hour)
		if i+1 < len(events) {
			until = events[i+1].at
		}
		kind, limit := "switchover", switchoverGap
		if e.kill {
			kind, limit = "kill", killGap
		}
		gap, own := longest(w.accepts, e.at, until), longest(writes, e.at, until)
		texts = append(texts, fmt.Sprintf("%s %.1fs (PostgreSQL %.1fs)", kind, gap.Seconds(), own.Seconds()))
		if limit = max(limit, own+time.Second) + more; gap > limit {
			w.t.Errorf("%s: no email was accepted for %v, want at most %v", kind, gap, limit)
		}
	}
	return "gaps: " + strings.Join(texts, ", ")
}

// longest returns the longest time between two consecutive times, of which the second is between from and until.
func longest(times []time.Time, from, until time.Time) (gap time.Duration) {
	for k := 1; k < len(times); k++ {
		if times[k].After(from) && times[k].Before(until) {
			gap = max(gap, times[k].Sub(times[k-1]))
		}
	}
	return gap
}
