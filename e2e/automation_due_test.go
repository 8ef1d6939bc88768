package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// TestDueSteps runs an automation with delays of two seconds during a broadcast, and reports how late the steps ran.
// docs/performance.md describes how to run it with many recipients.
func TestDueSteps(t *testing.T) {
	t.Parallel()
	onEachEngine(t, dueSteps)
}

func dueSteps(t *testing.T, env []string) {
	total := setting(t, "POSTRIDER_DUE_RECIPIENTS", 300)
	sink, err := smtpsink.Config{}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	n := start(t, env, "--relay", sink.Addr(), "--relay-tls", "none")
	n.addDomain("acme.example")
	ctx := t.Context()
	segment := n.made(ctx, "/segments", map[string]any{"name": "Readers"})
	var file bytes.Buffer
	file.WriteString("email\n")
	for i := range total {
		fmt.Fprintf(&file, "reader%d@example.net\n", i)
	}
	id := n.importFile(ctx, file.Bytes(), map[string]string{"segments": `[{"id":"` + segment + `"}]`})
	eventually(t, 10*time.Minute, "the contacts are imported", func() bool {
		var i struct{ Status string }
		n.must(http.MethodGet, "/contacts/imports/"+id, "", &i)
		return i.Status == "completed"
	})
	automation := n.made(ctx, "/automations", map[string]any{"name": "Pause", "status": "enabled",
		"steps": []any{map[string]any{"key": "start", "type": "trigger", "config": map[string]any{"event_name": "go"}},
			map[string]any{"key": "pause", "type": "delay", "config": map[string]any{"duration": "2 seconds"}}},
		"connections": []any{map[string]any{"from": "start", "to": "pause"}}})
	broadcast := n.made(ctx, "/broadcasts", map[string]any{"from": "Acme <news@acme.example>", "subject": "News",
		"segment_id": segment, "html": "<p>Dear {{{EMAIL}}}</p>", "send": true})
	began, runs := time.Now(), 0
	for sent := false; !sent || runs < 10; runs++ {
		n.must(http.MethodPost, "/events/send", fmt.Sprintf(`{"event": "go", "email": "waits%d@example.net"}`, runs), nil)
		var results struct{ State string }
		n.must(http.MethodGet, "/broadcasts/"+broadcast+"/results", "", &results)
		sent = results.State == "sent"
		pause(ctx, 200*time.Millisecond)
	}
	took := time.Since(began)
	eventually(t, time.Minute, "all runs are completed", func() bool {
		var others struct{ Data []struct{ ID string } }
		n.must(http.MethodGet, "/automations/"+automation+"/runs?status=running", "", &others)
		return len(others.Data) == 0
	})
	late := n.lateness(automation)
	if len(late) != runs {
		t.Fatalf("%d of %d runs are completed", len(late), runs)
	}
	slices.Sort(late)
	t.Logf("%d recipients in %s, %d runs: steps were late by %s, 99 in 100 by at most %s, the last by %s", total,
		took.Round(time.Second), runs, late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// lateness returns how late each delay step ended in the completed runs of an automation.
func (n *node) lateness(automationID string) (all []time.Duration) {
	n.t.Helper()
	runs := "/automations/" + automationID + "/runs"
	for after := ""; ; {
		var some struct {
			Data    []struct{ ID string }
			HasMore bool `json:"has_more"`
		}
		n.must(http.MethodGet, runs+"?status=completed&limit=100"+after, "", &some)
		for _, r := range some.Data {
			var one struct {
				Steps []struct {
					Key         string
					CompletedAt string `json:"completed_at"`
					Output      struct{ Until time.Time }
				}
			}
			n.must(http.MethodGet, runs+"/"+r.ID, "", &one)
			for _, s := range one.Steps {
				if s.Key != "pause" {
					continue
				}
				completed, err := time.Parse("2006-01-02 15:04:05.999999Z07", s.CompletedAt)
				if err != nil {
					n.t.Fatal(err)
				}
				all = append(all, completed.Sub(s.Output.Until))
			}
			after = "&after=" + r.ID
		}
		if !some.HasMore {
			return all
		}
	}
}
