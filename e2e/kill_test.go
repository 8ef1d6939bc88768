package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// setting reads a number from an environment variable, because `make kill` runs more rounds than `make test`.
func setting(t *testing.T, name string, deflt int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return deflt
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestKill kills the program at random moments while it accepts and delivers emails. Every email that the API accepted
// with status 200 reaches the sink. TestKill counts the emails that arrive twice, which is allowed only if a kill falls
// between the sink's response and the commit.
func TestKill(t *testing.T) {
	t.Parallel()
	onEachEngine(t, killRounds)
}

// ledger records, by email number, which emails were accepted and which have arrived.
type ledger struct {
	mu       sync.Mutex
	tried    int
	accepted map[int]bool
	arrived  map[int]int
}

func (l *ledger) missing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.accepted {
		if l.arrived[i] == 0 {
			n++
		}
	}
	return n
}

var numbered = regexp.MustCompile(`(?m)^X-Number: (\d+)\r?$`)

func killRounds(t *testing.T, env []string) {
	rounds, total := setting(t, "POSTRIDER_KILL_ROUNDS", 1), setting(t, "POSTRIDER_KILL_EMAILS", 150)
	l := &ledger{accepted: map[int]bool{}, arrived: map[int]int{}}
	sink, err := smtpsink.Config{OnMessage: func(_ string, _ []string, data []byte) {
		if m := numbered.FindSubmatch(data); m != nil {
			i, _ := strconv.Atoi(string(m[1]))
			l.mu.Lock()
			l.arrived[i]++
			l.mu.Unlock()
		}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	n := start(t, env, "--relay", sink.Addr(), "--relay-tls", "none")
	n.addDomain("acme.example")

	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*time.Minute+5*time.Minute)
	defer cancel()
	var up sync.RWMutex // posters hold a read lock while they post, so that no post starts during a restart
	var posters sync.WaitGroup
	perRound := total/rounds + 1
	next := make(chan int)
	for range 8 {
		posters.Go(func() {
			for i := range next {
				for made := false; !made && ctx.Err() == nil; {
					up.RLock()
					made = post(ctx, n, l, i)
					up.RUnlock()
				}
			}
		})
	}
	posters.Go(func() {
		defer close(next)
		for i := range rounds * perRound {
			next <- i
		}
	})
	for r := range rounds {
		// The test kills the program while posts are in progress. Some posts fail because of the kill, although the
		// program may have accepted their emails.
		after := r*perRound + rand.IntN(perRound-perRound/10)
		eventually(t, time.Minute, "enough of the round was posted", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.tried >= after
		})
		n.kill()
		up.Lock()
		n.launch()
		up.Unlock()
	}
	posters.Wait()

	eventually(t, 3*time.Minute, "every accepted email arrives", func() bool { return l.missing() == 0 })
	var waiting int
	eventually(t, 3*time.Minute, "every outcome is recorded", func() bool {
		status, err := n.call(ctx, http.MethodGet, "/dev/waiting", "", &waiting)
		return err == nil && status == http.StatusOK && waiting == 0
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	twice := 0
	for _, times := range l.arrived {
		if times > 1 {
			twice += times - 1
		}
	}
	if len(l.accepted) < total/2 {
		t.Errorf("only %d of %d emails were accepted: the test tested little", len(l.accepted), total)
	}
	t.Logf("%d kills; %d emails accepted, %d arrived, %d copies more than one (killed between the sink's answer and "+
		"the commit)",
		rounds, len(l.accepted), len(l.arrived), twice)
}

// post sends email number i and records whether the response status was 200. Without a response, the test does not know
// whether the email was accepted. If the connection failed, no request was sent, and post returns false.
func post(ctx context.Context, n *node, l *ledger, i int) (made bool) {
	body, _ := json.Marshal(map[string]any{"from": "Acme <hello@acme.example>", "to": fmt.Sprintf("user%d@example.net", i),
		"subject": "Receipt", "html": "<p>Thank you.</p>", "headers": map[string]string{"X-Number": strconv.Itoa(i)}})
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var answer struct{ ID string }
	status, err := n.call(ctx, http.MethodPost, "/emails", string(body), &answer)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried++
	if err == nil && status == http.StatusOK && answer.ID != "" {
		l.accepted[i] = true
	}
	return true
}
