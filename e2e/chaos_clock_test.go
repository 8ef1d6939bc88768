//go:build chaos

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// clocksApart runs a cluster whose nodes' clocks differ by 20 minutes. The first attempts of some deliveries and
// webhooks fail, and some emails are scheduled.
func clocksApart(t *testing.T, engine string) sum {
	shifted := buildShifted(t)
	w := newCluster(t, engine, setup{
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
	lost := max(s.accepted-hook.count(), 0)
	s.more = fmt.Sprintf("webhooks %d, lost %d, doubled %d; scheduled emails too early %d", hook.count(), lost, twice,
		early)
	if lost > 0 || twice > 0 || early > 0 {
		t.Error(s.more)
	}
	return s
}

// hookLog receives webhooks and rejects the first attempt of every third webhook.
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
