package e2e

import (
	"context"
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

// TestKillAutomation kills the program at random moments while an automation's runs send three emails each, separated
// by a delay and by an event. Each contact gets each email once, or twice if a kill falls between the sink's response
// and the commit.
func TestKillAutomation(t *testing.T) {
	t.Parallel()
	onEachEngine(t, killAutomation)
}

var subjectField = regexp.MustCompile(`(?im)^Subject: (.*?)\r?$`)

// steps records which emails from an automation have arrived, by recipient and subject.
type steps struct {
	mu     sync.Mutex
	ids    map[[2]string]string // Message-IDs
	copies int
	second chan string // receives each contact address after its second email has arrived
}

// arrived records an email that has arrived and returns a description of an error in the email, or "" if there is none.
func (s *steps) arrived(to string, data []byte) string {
	subject := subjectField.FindSubmatch(data)
	messageID := messageIDField.FindString(string(data))
	if subject == nil || messageID == "" {
		return fmt.Sprintf("%s has an email without a subject or an id", to)
	}
	key := [2]string{to, string(subject[1])}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.ids[key]; ok {
		if s.copies++; before != messageID {
			return fmt.Sprintf("%s has %q twice: %q and %q", to, key[1], before, messageID)
		}
		return ""
	}
	if s.ids[key] = messageID; key[1] == "Second" {
		s.second <- to
	}
	return ""
}

func (s *steps) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

func killAutomation(t *testing.T, env []string) {
	rounds, total := setting(t, "POSTRIDER_KILL_ROUNDS", 1), setting(t, "POSTRIDER_KILL_RUNS", 60)
	perRound := total/rounds + 1
	total = perRound * rounds
	seen := &steps{ids: map[[2]string]string{}, second: make(chan string, total)}
	sink, err := smtpsink.Config{OnMessage: func(_ string, to []string, data []byte) {
		if wrong := seen.arrived(to[0], data); wrong != "" {
			t.Error(wrong)
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
	automation := n.threeEmails(ctx)

	var up sync.RWMutex // posters hold a read lock while they post, so that no post starts during a restart
	var posters sync.WaitGroup
	// tell posts a custom event repeatedly until the API accepts it. Repeated events start only one automation run per
	// contact.
	tell := func(event, address string) {
		body := fmt.Sprintf(`{"event": %q, "email": %q}`, event, address)
		for told := false; !told && ctx.Err() == nil; {
			up.RLock()
			status, err := n.call(ctx, http.MethodPost, "/events/send", body, nil)
			told = err == nil && status == http.StatusAccepted
			up.RUnlock()
		}
	}
	next := make(chan string, total)
	for range 4 {
		posters.Go(func() {
			for address := range next {
				tell("signed_up", address)
			}
		})
		posters.Go(func() {
			for {
				select {
				case address := <-seen.second: // the automation run now waits for the event
					tell("paid", address)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for r := range rounds {
		for i := range perRound {
			next <- fmt.Sprintf("reader%d@example.net", r*perRound+i)
		}
		after := 3*r*perRound + rand.IntN(2*perRound)
		eventually(t, 2*time.Minute, "enough of the round has arrived", func() bool { return seen.count() >= after })
		n.kill()
		up.Lock()
		n.launch()
		up.Unlock()
	}
	close(next)
	eventually(t, 3*time.Minute, "each contact has its three emails", func() bool { return seen.count() >= 3*total })
	eventually(t, time.Minute, "all runs are completed", func() bool {
		var others struct{ Data []struct{ ID, Status string } }
		status, err := n.call(ctx, http.MethodGet, "/automations/"+automation+"/runs?status=running,failed,cancelled", "",
			&others)
		return err == nil && status == http.StatusOK && len(others.Data) == 0
	})
	var waiting int
	eventually(t, 3*time.Minute, "every outcome is recorded", func() bool {
		status, err := n.call(ctx, http.MethodGet, "/dev/waiting", "", &waiting)
		return err == nil && status == http.StatusOK && waiting == 0
	})
	cancel()
	posters.Wait()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for key := range seen.ids {
		if !strings.HasPrefix(key[0], "reader") {
			t.Errorf("%s got an email", key[0])
		}
	}
	if len(seen.ids) != 3*total {
		t.Errorf("%d emails of %d runs", len(seen.ids), total)
	}
	t.Logf("%d kills; %d runs, %d copies of emails more than one (killed between the sink's answer and the commit)",
		rounds, total, seen.copies)
}

// threeEmails creates an automation that sends its first email immediately, the second after one second, and the third
// after an event.
func (n *node) threeEmails(ctx context.Context) (automationID string) {
	n.t.Helper()
	for _, subject := range []string{"First", "Second", "Third"} {
		id := n.made(ctx, "/templates", map[string]any{"name": subject, "alias": strings.ToLower(subject),
			"from": "Acme <hello@acme.example>", "subject": subject, "html": "<p>Hello</p>"})
		n.must(http.MethodPost, "/templates/"+id+"/publish", "", nil)
	}
	step := func(key, kind string, config map[string]any) map[string]any {
		return map[string]any{"key": key, "type": kind, "config": config}
	}
	email := func(alias string) map[string]any {
		return step(alias, "send_email", map[string]any{"template": map[string]any{"id": alias}})
	}
	link := func(from, to, kind string) map[string]any {
		return map[string]any{"from": from, "to": to, "type": kind}
	}
	return n.made(ctx, "/automations", map[string]any{"name": "Welcome", "status": "enabled", "reentry": "once",
		"steps": []any{step("start", "trigger", map[string]any{"event_name": "signed_up"}), email("first"),
			step("pause", "delay", map[string]any{"duration": "1 second"}), email("second"),
			step("wait", "wait_for_event", map[string]any{"event_name": "paid", "timeout": "1 hour"}), email("third")},
		"connections": []any{link("start", "first", "default"), link("first", "pause", "default"),
			link("pause", "second", "default"), link("second", "wait", "default"), link("wait", "third", "event_received")}})
}
