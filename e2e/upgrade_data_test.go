package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// lists holds the API paths of a team's lists.
var lists = []string{"/domains", "/api-keys", "/emails", "/contacts", "/segments", "/templates", "/broadcasts",
	"/automations", "/webhooks", "/suppressions"}

// before holds the data that the old program returned before the upgrade.
type before struct {
	Lists       map[string]map[string]any // objects by list path and id
	Keys        map[string]string         // API keys by permission
	ScheduledID string
	RunID       string
	Automation  string
}

// fill creates objects of each kind that the old program supports.
func (n *node) fill() before {
	n.t.Helper()
	ctx := n.t.Context()
	b := before{Keys: map[string]string{}}
	domain := n.addDomainOf(`{"name":"acme.example"}`)
	for name, body := range map[string]map[string]any{"full": {"name": "full", "permission": "full_access"},
		"sending": {"name": "sending", "permission": "sending_access"},
		"domain":  {"name": "domain", "permission": "sending_access", "domain_id": domain}} {
		text, _ := json.Marshal(body)
		var made struct{ Token string }
		n.must(http.MethodPost, "/api-keys", string(text), &made)
		b.Keys[name] = made.Token
	}
	for i := range 5 {
		n.made(ctx, "/emails", map[string]any{"from": "hello@acme.example", "to": fmt.Sprintf("u%d@example.net", i),
			"subject": "Before", "text": "Hello"})
	}
	b.ScheduledID = n.made(ctx, "/emails", map[string]any{"from": "hello@acme.example", "to": "later@example.net",
		"subject": "Scheduled before", "text": "Hello",
		"scheduled_at": time.Now().Add(29 * 24 * time.Hour).UTC().Format(time.RFC3339)})
	segment := n.made(ctx, "/segments", map[string]any{"name": "All"})
	for i := range 3 {
		n.made(ctx, "/contacts", map[string]any{"email": fmt.Sprintf("c%d@example.net", i), "first_name": "C",
			"segments": []any{map[string]any{"id": segment}}})
	}
	n.made(ctx, "/broadcasts", map[string]any{"name": "Draft", "segment_id": segment, "from": "hello@acme.example",
		"subject": "News", "html": "<p>Hello</p>"})
	b.Automation = n.threeEmails(ctx)
	n.must(http.MethodPost, "/events/send", `{"event": "signed_up", "email": "c0@example.net"}`, nil)
	n.made(ctx, "/webhooks", map[string]any{"endpoint": "http://127.0.0.1:9/hook", "events": []string{"email.sent"}})
	n.must(http.MethodPost, "/suppressions", `{"email":"gone@example.net"}`, nil)
	eventually(n.t, 30*time.Second, "the run waits for its event", func() bool {
		var runs struct{ Data []struct{ ID, Status string } }
		n.must(http.MethodGet, "/automations/"+b.Automation+"/runs", "", &runs)
		if len(runs.Data) != 1 {
			return false
		}
		b.RunID = runs.Data[0].ID
		var text string
		n.must(http.MethodGet, "/automations/"+b.Automation+"/runs/"+b.RunID, "", &text)
		return strings.Contains(text, "wait_for_event") && strings.Count(text, `"completed"`) >= 3
	})
	eventually(n.t, 30*time.Second, "all is delivered but for what is scheduled", func() bool {
		b.Lists = n.everything()
		for id, x := range b.Lists["/emails"] {
			if id != b.ScheduledID && x.(map[string]any)["last_event"] != "delivered" {
				return false
			}
		}
		return true
	})
	return b
}

// everything reads every list of the team.
func (n *node) everything() map[string]map[string]any {
	n.t.Helper()
	all := map[string]map[string]any{}
	for _, path := range lists {
		var list struct{ Data []map[string]any }
		status, err := n.call(n.t.Context(), http.MethodGet, path+"?limit=100", "", &list)
		if err != nil || status != http.StatusOK {
			n.t.Errorf("GET %s: %d %v", path, status, err)
		}
		all[path] = map[string]any{}
		for _, x := range list.Data {
			delete(x, "last_used_at")
			all[path][fmt.Sprint(x["id"])] = x
		}
	}
	return all
}

// has checks that the objects still contain all values from before the upgrade. A newer program may add fields to an
// object.
func (n *node) has(b before) {
	n.t.Helper()
	now := n.everything()
	for path, all := range b.Lists {
		if len(all) == 0 {
			n.t.Errorf("GET %s: there was nothing before", path)
		}
		for id, was := range all {
			is, _ := now[path][id].(map[string]any)
			for field, value := range was.(map[string]any) {
				if id == b.ScheduledID && field == "last_event" {
					continue // it is sent when it is due, also if its data was saved long ago
				}
				if got := fmt.Sprint(is[field]); got != fmt.Sprint(value) {
					n.t.Errorf("GET %s: %s of %s was %v and is %v", path, field, id, value, got)
				}
			}
		}
	}
	for name, token := range b.Keys {
		c := caller{addr: n.addr, bearer: token}
		for path, want := range map[string]int{"/domains": map[bool]int{true: 200, false: 401}[name == "full"],
			"/api-keys": map[bool]int{true: 200, false: 401}[name == "full"]} {
			if a, err := c.ask(n.t.Context(), http.MethodGet, path, nil); err != nil || a.status != want {
				n.t.Errorf("the key %s is answered with %d %v at %s: %s", name, a.status, err, path, a.text)
			}
		}
		a, err := c.ask(n.t.Context(), http.MethodPost, "/emails", map[string]any{"from": "hello@acme.example",
			"to": "after@example.net", "subject": "After", "text": "Hello"})
		if err != nil || a.status != http.StatusOK {
			n.t.Errorf("the key %s sends: %d %v %s", name, a.status, err, a.text)
		}
	}
}
