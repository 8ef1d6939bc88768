//go:build chaos

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// chaos lists the scenarios: faults that the test injects while nodes accept and deliver email. A scenario runs on two
// nodes with PostgreSQL or on one node with SQLite. A scenario ends when its fault is over and all emails have arrived.
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
	{"slow-hosts", both, slowHosts},
	{"senders-stopped", both, sendersStopped},
	{"domain-lost", both, domainLost},
	{"contacts-deleted", both, contactsDeleted},
	{"apps-limited", both, appsLimited},
}

var (
	postgres = []string{"postgres"}
	both     = []string{"sqlite", "postgres"}
)

// TestChaos prints one line of counts per scenario. It checks that no accepted email is lost and that no refused email
// arrives. An email may arrive twice only if a node was killed or suspended between the host's 250 response and the
// node's commit.
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

// sum holds the email counts of a scenario.
type sum struct {
	name, engine                     string
	accepted, arrived, lost, doubled int
	unexplained                      int   // second copies of emails that were not in transit when a node was killed
	kills                            []int // number of emails in transit at each kill
	refused, refusedArrived          int
	unclear, unclearArrived          int
	silent, silentArrived            int
	wrong                            int    // number of errors that do not tell the client when to retry
	more                             string // additional text for the scenario's output line
}

// sum counts the scenario's emails by the response to the client and by the number of copies that arrived.
func (w *cluster) sum() sum {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := sum{kills: w.kills, wrong: w.wrong}
	for text, n := range w.answers {
		w.t.Logf("%d times: %s", n, text)
	}
	for i, f := range w.fates {
		n := len(w.mail.copies(i))
		came := min(n, 1)
		switch f {
		case accepted:
			s.accepted++
			s.arrived += came
			s.lost += 1 - came
		case refused:
			s.refused++
			s.refusedArrived += came
		case unclear:
			s.unclear++
			s.unclearArrived += came
		case silence:
			s.silent++
			s.silentArrived += came
		}
		s.doubled += max(n-1, 0)
		s.unexplained += max(n-1-w.allowed[i], 0)
	}
	return s
}

// String returns the scenario's output line for TestChaos.
func (s sum) String() string {
	line := fmt.Sprintf("%-20s %-8s accepted %5d  arrived %5d  lost %d  doubled %d", s.name, s.engine, s.accepted,
		s.arrived, s.lost, s.doubled)
	if len(s.kills) > 0 {
		line += fmt.Sprintf(" of those in hand %v", s.kills)
	}
	line += fmt.Sprintf("  unknown: refused %d (arrived %d), unclear %d (%d), no answer %d (%d)", s.refused,
		s.refusedArrived, s.unclear, s.unclearArrived, s.silent, s.silentArrived)
	if s.more != "" {
		line += "  " + s.more
	}
	return line
}

// broken lists the guarantees that a scenario violated.
func (s sum) broken() (all []string) {
	if s.lost > 0 {
		all = append(all, fmt.Sprintf("%d emails were accepted and lost", s.lost))
	}
	if s.unexplained > 0 {
		all = append(all, fmt.Sprintf("%d copies of emails that were not in hand when a node ended", s.unexplained))
	}
	if s.refusedArrived > 0 {
		all = append(all, fmt.Sprintf("%d emails arrived whose answer said that they were not accepted", s.refusedArrived))
	}
	if s.wrong > 0 {
		all = append(all, fmt.Sprintf("%d errors were not 503 with Retry-After", s.wrong))
	}
	if s.accepted < 200 {
		all = append(all, fmt.Sprintf("only %d emails were accepted: the scenario tried little", s.accepted))
	}
	return all
}
