package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// trackedToken returns the token for a tracked link in a node's email.
func trackedToken(t *testing.T, n *node.Node, emailID string, position int, target string) string {
	t.Helper()
	e, err := n.Emails.BounceTarget(t.Context(), tokens.Ref{EmailID: emailID})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := n.Emails.Ref(t.Context(), e.TeamID, emailID)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := tokens.NewLinkMaker(n.Keys, "127.0.0.1", ref, position)
	if !ok {
		t.Fatalf("there are no tokens for email %s", emailID)
	}
	defer m.Release()
	token, _ := m.Append(nil, []byte(target))
	return string(token)
}

// track requests an email's open-tracking and click-tracking URLs, and waits until both events are in the email's
// timeline.
func (d *driver) track(emailID string) {
	d.t.Helper()
	const target = "/healthz?followed" // served by the node, because the client follows the redirect
	for _, path := range []string{"/o/" + trackedToken(d.t, d.Node, emailID, 0, ""),
		"/c/" + trackedToken(d.t, d.Node, emailID, -1, d.url+target)} {
		if status, text := d.ask("", http.MethodGet, path, ""); status != http.StatusOK {
			d.t.Errorf("%s: %d %s", path, status, text)
		}
	}
	eventually(d.t, "an open and a click are recorded", func() bool {
		return d.count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1 AND type IN (6, 7)`,
			db.ID(emailID)) == 2
	})
	d.do("GET", "/emails/metrics?metrics=opened,opened_machine,unique_clicked_people", "")
	for host, want := range map[string]int{"127.0.0.1": 200, "links.unknown.example": 404} {
		if status, text := d.ask("", http.MethodGet, "/tls/ask?domain="+url.QueryEscape(host), ""); status != want {
			d.t.Errorf("a certificate for %s: %d %s", host, status, text)
		}
	}
}

// Before a node stops, it records all opens and clicks that it has responded to. The records contain the client's IP
// address, and opens and clicks by bots are counted separately.
func TestNodeTracks(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_HTTP_PROXY_FROM"] = "127.0.0.0/8"
		key := p.key("Acme", "--email", "owner@acme.example")
		n := p.start()
		d := &driver{started: n, key: key}
		emailID := d.do("POST", "/emails", hello)
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		const clicks = 30
		for i := range clicks {
			target := "https://shop.example/"
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				n.url+"/c/"+trackedToken(t, n.Node, emailID, 0, target), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Forwarded-For", "203.0.113.9")
			r.Header.Set("User-Agent", fmt.Sprintf("curl/%d", i))
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != target {
				t.Errorf("%d %v", answer.StatusCode, answer.Header)
			}
		}
		n.end()
		n = p.start()
		d.started = n
		_, text := d.ask(key, http.MethodGet, "/emails/"+emailID+"/events", "")
		if got := strings.Count(text, `"ipAddress":"203.0.113.9"`); got != clicks {
			t.Errorf("%d clicks are recorded, want %d: %s", got, clicks, text)
		}
		_, text = d.ask(key, http.MethodGet,
			"/emails/metrics?metrics=clicked,clicked_machine,unique_clicked,unique_clicked_people", "")
		want := fmt.Sprintf(`"totals":{"clicked":%d,"clicked_machine":%[1]d,"unique_clicked":1,"unique_clicked_people":0}`,
			clicks)
		if !strings.Contains(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
	})
}
