package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// TestKillBeforeWebhook kills the program at random moments between events and their webhooks. Every recorded event
// reaches the receiver at least once with a valid signature, and each email's events arrive in order.
func TestKillBeforeWebhook(t *testing.T) {
	t.Parallel()
	onEachEngine(t, killWebhooks)
}

// told records the webhooks that reached a receiver: each email's event types in the order of first arrival, and how
// many times each message arrived.
type told struct {
	mu     sync.Mutex
	secret string
	types  map[string][]string
	times  map[string]int
	forged int
}

func (x *told) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, readErr := io.ReadAll(r.Body)
	var m struct {
		Type string
		Data struct {
			EmailID string `json:"email_id"`
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w, err := standard.NewWebhook(x.secret)
	if err != nil || readErr != nil || w.Verify(body, r.Header) != nil || json.Unmarshal(body, &m) != nil {
		x.forged++
		return
	}
	id := r.Header.Get("svix-id")
	if x.times[id]++; x.times[id] == 1 {
		x.types[m.Data.EmailID] = append(x.types[m.Data.EmailID], m.Type)
	}
}

func killWebhooks(t *testing.T, env []string) {
	rounds := setting(t, "POSTRIDER_KILL_ROUNDS", 1)
	const perRound = 40
	n := start(t, env)
	n.addDomain("acme.example")
	x := &told{types: map[string][]string{}, times: map[string]int{}}
	receiver := httptest.NewServer(x)
	defer receiver.Close()
	var hook struct {
		Secret string `json:"signing_secret"`
	}
	n.must(http.MethodPost, "/webhooks", `{"endpoint":"`+receiver.URL+`","events":["email.sent","email.delivered"]}`,
		&hook)
	x.mu.Lock()
	x.secret = hook.Secret
	x.mu.Unlock()

	var accepted []string
	for r := range rounds {
		var mu sync.Mutex
		var posters sync.WaitGroup
		for w := range 4 {
			posters.Go(func() {
				for i := range perRound / 4 {
					var made struct{ ID string }
					status, err := n.call(t.Context(), http.MethodPost, "/emails", fmt.Sprintf(`{"from":"hello@acme.example",`+
						`"to":"user%d-%d-%d@example.net","subject":"Receipt","text":"Thank you."}`, r, w, i), &made)
					if err == nil && status == http.StatusOK {
						mu.Lock()
						accepted = append(accepted, made.ID)
						mu.Unlock()
					}
				}
			})
		}
		if r%2 == 0 {
			posters.Wait() // in every second round, the kill comes after all emails have been posted
		}
		pause, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(60))*time.Millisecond)
		<-pause.Done()
		cancel()
		n.kill()
		posters.Wait()
		n.launch()
	}
	eventually(t, 2*time.Minute, "every event of every accepted email arrives", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, id := range accepted {
			if len(x.types[id]) < 2 {
				return false
			}
		}
		return true
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, types := range x.types {
		// If the response to an email was lost, the webhook for its second event may still be in transit.
		if got := fmt.Sprint(types); got != "[email.sent email.delivered]" &&
			(got != "[email.sent]" || slices.Contains(accepted, id)) {
			t.Errorf("email %s: %v", id, types)
		}
	}
	twice := 0
	for _, times := range x.times {
		twice += times - 1
	}
	if x.forged > 0 || len(accepted) < rounds*perRound/4 {
		t.Errorf("%d requests were not signed rightly; %d emails accepted", x.forged, len(accepted))
	}
	t.Logf("%d kills; %d emails accepted, %d messages, %d of them more than once", rounds, len(accepted), len(x.times),
		twice)
}
