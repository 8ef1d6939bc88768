package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// TestKillBroadcast kills the program at random moments while it sends a broadcast. Each contact gets one email, or two
// if a kill falls between the sink's response and the commit.
func TestKillBroadcast(t *testing.T) {
	t.Parallel()
	onEachEngine(t, killBroadcast)
}

var messageIDField = regexp.MustCompile(`(?im)^Message-ID: .*$`)

// made posts a request that creates an object and returns the new object's id.
func (n *node) made(ctx context.Context, path string, body map[string]any) string {
	n.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		n.t.Fatal(err)
	}
	var answer struct{ ID string }
	status, err := n.call(ctx, http.MethodPost, path, string(text), &answer)
	if err != nil || status/100 != 2 || answer.ID == "" {
		n.t.Fatalf("POST %s: %d, %v", path, status, err)
	}
	return answer.ID
}

func killBroadcast(t *testing.T, env []string) {
	rounds, total := setting(t, "POSTRIDER_KILL_ROUNDS", 1), setting(t, "POSTRIDER_KILL_RECIPIENTS", 100)
	var mu sync.Mutex
	arrived, ids := map[string]int{}, map[string]string{}
	sink, err := smtpsink.Config{OnMessage: func(_ string, to []string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		messageID := messageIDField.FindString(string(data))
		if arrived[to[0]]++; arrived[to[0]] > 1 && (messageID == "" || ids[to[0]] != messageID) {
			t.Errorf("%s has two emails: %q and %q", to[0], ids[to[0]], messageID)
		}
		ids[to[0]] = messageID
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	n := start(t, env, "--relay", sink.Addr(), "--relay-tls", "none")
	n.addDomain("acme.example")
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*time.Minute+5*time.Minute)
	defer cancel()
	segment := n.made(ctx, "/segments", map[string]any{"name": "Readers"})
	for i := range total {
		n.made(ctx, "/contacts", map[string]any{"email": fmt.Sprintf("reader%d@example.net", i),
			"segments": []string{segment}})
	}
	// At this pace, the broadcast lasts through all rounds of the test.
	pace := 3600 * total / (6 * rounds)
	id := n.made(ctx, "/broadcasts", map[string]any{"from": "Acme <news@acme.example>", "subject": "News",
		"segment_id": segment, "html": "<p>Dear {{{EMAIL}}}</p>", "pace": pace, "send": true})
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(arrived)
	}
	for r := range rounds {
		after := r*total/rounds + rand.IntN(total/rounds)
		eventually(t, 2*time.Minute, "enough of the round has arrived", func() bool { return count() >= after })
		n.kill()
		n.launch()
	}
	eventually(t, 3*time.Minute, "each contact has its email", func() bool { return count() == total })
	var results struct {
		State                       string
		Entered, Delivered, Waiting int
		LeftOut                     map[string]int `json:"left_out"`
	}
	eventually(t, 3*time.Minute, "the broadcast is sent, and every outcome is recorded", func() bool {
		status, err := n.call(ctx, http.MethodGet, "/broadcasts/"+id+"/results", "", &results)
		return err == nil && status == http.StatusOK && results.State == "sent" && results.Delivered == total
	})
	if results.Entered != total || results.Waiting != 0 || len(results.LeftOut) != 0 {
		t.Errorf("%+v of %d contacts", results, total)
	}
	mu.Lock()
	defer mu.Unlock()
	twice := 0
	for address, times := range arrived {
		if !strings.HasPrefix(address, "reader") {
			t.Errorf("%s got an email", address)
		}
		twice += times - 1
	}
	t.Logf("%d kills; %d contacts, %d copies more than one (killed between the sink's answer and the commit)", rounds,
		total, twice)
}
