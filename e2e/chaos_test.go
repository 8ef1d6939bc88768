//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// chaos is what goes wrong while nodes accept and deliver. A scenario runs on two nodes with PostgreSQL, on one with SQLite,
// or both, and is over when everything is well again and everything has arrived.
var chaos = []struct {
	name    string
	engines []string
	run     func(t *testing.T, engine string) sum
}{
	{"postgres-restarted", postgres, restarted},
	{"cut-in-commits", postgres, cutInCommits},
	{"postgres-away", postgres, away},
	{"postgres-hangs", postgres, hangs},
	{"one-node-cut-off", postgres, cutOff},
	{"one-node-hangs", postgres, cutOffSilently},
	{"killed", both, killed},
	{"stopped", both, stopped},
	{"rolled", both, rolled},
	{"clocks-apart", postgres, clocksApart},
	{"disk-full", both, diskFull},
	{"blobs-gone", both, blobsGone},
	{"hosts", both, badHosts},
}

var (
	postgres = []string{"postgres"}
	both     = []string{"sqlite", "postgres"}
)

// TestChaos prints a line for each scenario. No email that was accepted is lost; none arrives twice but for what was
// between a host's 250 and the commit when a node was killed or stopped; none arrives whose answer said that it was not
// accepted.
func TestChaos(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	t.Cleanup(func() {
		slices.Sort(lines)
		fmt.Printf("\n%s\n", strings.Join(lines, "\n"))
	})
	for _, c := range chaos {
		for _, engine := range c.engines {
			t.Run(c.name+"/"+engine, func(t *testing.T) {
				t.Parallel()
				s := c.run(t, engine)
				s.name, s.engine = c.name, engine
				line := s.String()
				for _, rule := range s.broken() {
					t.Error(rule)
				}
				if t.Failed() {
					line = "FAIL " + line
				} else {
					line = "ok   " + line
				}
				fmt.Println(line)
				mu.Lock()
				lines = append(lines, line)
				mu.Unlock()
			})
		}
	}
}

// restarted stops PostgreSQL in order, then as a crash would, twice each.
func restarted(t *testing.T, engine string) sum {
	w := newWorld(t, engine, setup{})
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
	w := newWorld(t, engine, setup{})
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
	w.settle()
	s := w.sum()
	s.more = fmt.Sprintf("commits cut: %d", lost)
	return s
}

// away has nobody reach PostgreSQL for a minute.
func away(t *testing.T, engine string) sum {
	w := newWorld(t, engine, setup{})
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
	w := newWorld(t, engine, setup{})
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
	w := newWorld(t, engine, setup{})
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
	w := newWorld(t, engine, setup{})
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

// apart waits for a minute while the first node cannot reach PostgreSQL. It cannot record what hosts have taken until it is no longer
// sure of its jobs, after 12 seconds, and another node sends these again after 20.
func (w *world) apart() {
	w.t.Helper()
	time.Sleep(15 * time.Second)
	w.inHand(0)
	time.Sleep(45 * time.Second)
}

// pass lets PostgreSQL be reached again.
func (w *world) pass() {
	w.t.Helper()
	for _, p := range w.proxies {
		if err := p.Pass(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// killed ends nodes as a power cut would, one after the other.
func killed(t *testing.T, engine string) sum {
	w := newWorld(t, engine, setup{})
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
	w := newWorld(t, engine, setup{})
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

// rolled stops the nodes in order and starts new ones, one after the other, twice.
func rolled(t *testing.T, engine string) sum {
	w := newWorld(t, engine, setup{})
	w.during(func() {
		for range 2 {
			for i := range w.nodes {
				w.burst(w.nodes[i])
				w.roll(i)
				time.Sleep(5 * time.Second)
			}
		}
	})
	w.settle()
	return w.sum()
}

// clocksApart runs nodes whose clocks are 20 minutes apart, with first tries that fail, emails for later, and webhooks that
// fail at first.
func clocksApart(t *testing.T, engine string) sum {
	shifted := buildShifted(t)
	w := newWorld(t, engine, setup{
		end: func(number, n int) ending {
			if number%3 == 0 && n == 1 {
				return refuse
			}
			return take
		},
		env: []string{"POSTRIDER_RETRY_SCHEDULE=3s,3s,3s,3s,3s,3s", "POSTRIDER_WEBHOOK_SCHEDULE=3s,3s,3s,3s,3s,3s"},
		program: func(node int) (string, []string) {
			return shifted, []string{clockShift + "=" + []string{"-600", "600"}[node%2]}
		},
		every: 60 * time.Millisecond,
	})
	hook := &hookLog{tries: map[string]int{}, taken: map[string]int{}}
	server := httptest.NewServer(hook)
	t.Cleanup(server.Close)
	w.nodes[0].must(http.MethodPost, "/webhooks", `{"endpoint":"`+server.URL+`","events":["email.delivered"]}`, nil)
	began := time.Now()
	later := func(i int) time.Time { return began.Add(time.Duration(i)*w.every + 20*time.Second) }
	w.email = func(i int) map[string]any {
		if i%5 != 0 {
			return nil
		}
		return map[string]any{"scheduled_at": later(i).UTC().Format(time.RFC3339Nano)}
	}
	w.during(func() { time.Sleep(45 * time.Second) })
	w.settle()
	s := w.sum()
	within(arrivalWait, func() bool { return hook.count() >= s.accepted })
	time.Sleep(stillness)
	early := 0
	for i := range w.fates {
		if c := w.mail.copies(i); i%5 == 0 && len(c) > 0 && c[0].at.Before(later(i).Add(-time.Second)) {
			early++
		}
	}
	twice := 0
	for _, n := range hook.taken {
		twice += n - 1
	}
	s.more = fmt.Sprintf("webhooks %d, lost %d, doubled %d; scheduled emails too early %d", hook.count(), max(s.accepted-hook.count(), 0), twice, early)
	if hook.count() < s.accepted || twice > 0 || early > 0 {
		t.Error(s.more)
	}
	return s
}

// hookLog takes webhooks, one in three at its second try.
type hookLog struct {
	mu    sync.Mutex
	tries map[string]int
	taken map[string]int
}

func (h *hookLog) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	time.Sleep(latency)
	id := r.Header.Get("svix-id")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries[id]++
	if h.tries[id] == 1 && len(h.tries)%3 == 0 {
		http.Error(rw, "later", http.StatusServiceUnavailable)
		return
	}
	h.taken[id]++
}

func (h *hookLog) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.taken)
}

// diskFull takes all the room of the file system that the database is on for half a minute. It mounts one, which root may.
func diskFull(t *testing.T, engine string) sum {
	size := "64m"
	if engine == "postgres" {
		size = "300m"
	}
	dir, err := os.MkdirTemp("", "postrider-full-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0755"); err != nil {
		t.Fatalf("mount a small file system on %s: %v (this scenario has to be run as root, where mounting is allowed)", dir, err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	w := newWorld(t, engine, setup{data: dir})
	w.during(func() {
		w.burst(w.nodes[0])
		ballast := fill(t, dir)
		time.Sleep(30 * time.Second)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if w.server != nil && !w.server.Up() { // its log had no room, so it had to stop
			w.server.Stop(syscall.SIGQUIT)
			if err := w.server.Start(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
	})
	w.settle()
	return w.sum()
}

// blobsGone takes the folder of the attachments away for a minute, while emails wait for their turn at a slow destination.
func blobsGone(t *testing.T, engine string) sum {
	connections := map[string]string{"sqlite": "2", "postgres": "1"}[engine] // of each node: fewer than there is mail for
	w := newWorld(t, engine, setup{args: []string{"--lane-concurrency", connections}, every: 100 * time.Millisecond})
	w.email = func(int) map[string]any { return map[string]any{"attachments": attachment(2000)} }
	w.during(func() {
		time.Sleep(5 * time.Second)
		if err := os.Rename(w.blobs, w.blobs+".away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := os.Rename(w.blobs+".away", w.blobs); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
	})
	w.settle()
	return w.sum()
}

// What the bad hosts of badHosts do. Each has domains of its own.
var badEndings = []struct {
	name    string
	domains int
	end     ending
}{{"stalls", 30, stall}, {"drops", 5, drop}, {"endless", 5, endless}}

// badHosts sends to good hosts beside others which keep what they are sent and do not say so: these stall after the final
// dot, hang up, or answer without end.
func badHosts(t *testing.T, engine string) sum {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	records := []string{"example.net. 60 IN MX 10 example.net.", "example.net. 60 IN A 127.0.0.1"}
	for b, bad := range badEndings {
		for d := range bad.domains {
			name := fmt.Sprintf("%s%d.example.", bad.name, d)
			records = append(records, name+" 60 IN MX 10 "+name, fmt.Sprintf("%s 60 IN A 127.0.%d.%d", name, 2+b, 1+d))
		}
	}
	w := newWorld(t, engine, setup{direct: true, args: []string{"--transport", "direct", "--smtp-port", port,
		"--dns-servers", serveDNS(t, records...)}, env: []string{"POSTRIDER_BENCH_LOOPBACK=1", "POSTRIDER_RETRY_SCHEDULE=" +
		strings.TrimSuffix(strings.Repeat("2s,", 30), ",")}})
	w.mail.listen("127.0.0.1:"+port, nil)
	bad := newMailbox(t) // of those that keep and do not say so
	var sent int
	for b, how := range badEndings {
		for d := range how.domains {
			bad.listen(fmt.Sprintf("127.0.%d.%d:%s", 2+b, 1+d, port), func(int, int) ending { return how.end })
			var batch []map[string]any
			for range 30 {
				batch = append(batch, map[string]any{"from": "hello@acme.example", "subject": "Receipt", "text": "Thank you.",
					"to": fmt.Sprintf("u%d@%s%d.example", sent, how.name, d)})
				sent++
			}
			body, err := json.Marshal(batch)
			if err != nil {
				t.Fatal(err)
			}
			w.nodes[d%len(w.nodes)].must(http.MethodPost, "/emails/batch", string(body), nil)
		}
	}
	w.during(func() { time.Sleep(60 * time.Second) })
	w.repeat()
	if !within(arrivalWait, func() bool { return len(w.missing()) == 0 }) {
		t.Errorf("good hosts have not got %d emails", len(w.missing()))
	}
	time.Sleep(stillness)
	s := w.sum()
	var waits []time.Duration
	for i, at := range w.posted {
		if c := w.mail.copies(i); len(c) > 0 {
			waits = append(waits, c[0].at.Sub(at))
		}
	}
	slices.Sort(waits)
	most, total, strange := 0, 0, 0
	bad.mu.Lock()
	for _, all := range bad.arrivals {
		most, total = max(most, len(all)), total+len(all)
		for _, a := range all {
			if a.id != all[0].id {
				strange++
			}
		}
	}
	heard := len(bad.arrivals)
	bad.mu.Unlock()
	s.more = fmt.Sprintf("good hosts waited %.1f s (p50), %.1f s (most); bad hosts: %d emails, %d copies of %d, at most %d of one, %d with another Message-ID",
		waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds(), sent, total, heard, most, strange)
	if most > copiesMax || strange > 0 || heard == 0 {
		t.Error(s.more)
	}
	return s
}

// copiesMax is how often a host that does not say whether it took a message may get it while badHosts runs: after two such
// tries an email is held back for long.
const copiesMax = 2
