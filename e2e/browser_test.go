//go:build browser

package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// posted collects the payloads of webhooks by event type.
type posted struct {
	mu  sync.Mutex
	all map[string][]string
}

func (p *posted) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var event struct{ Type string }
	json.Unmarshal(body, &event)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[event.Type] = append(p.all[event.Type], string(body))
}

func (p *posted) of(kind string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[kind]
}

// TestTrackedEmailInABrowser opens a captured email in a browser. The browser loads the tracking pixel, and a click on
// a link is redirected to the link's target. Both the open and the click create events and webhooks.
func TestTrackedEmailInABrowser(t *testing.T) {
	visited := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/offer" {
			visited <- r.URL.RequestURI()
		}
		io.WriteString(w, `<!doctype html><title>Offer</title><p id="arrived">Here it is.</p>`)
	}))
	defer target.Close()
	hook := &posted{all: map[string][]string{}}
	receiver := httptest.NewServer(hook)
	defer receiver.Close()

	n := start(t, nil)
	n.addDomainOf(`{"name":"acme.example","open_tracking":true,"click_tracking":true,"tracking_subdomain":"links"}`)
	n.must("POST", "/webhooks", `{"endpoint":"`+receiver.URL+`","events":["email.opened","email.clicked"]}`, nil)
	html, _ := json.Marshal(`<html><body><p>Hello <a id="go" href="` + target.URL +
		`/offer?a=1&amp;b=2">see the offer</a></p></body></html>`)
	var sent struct{ ID string }
	n.must("POST", "/emails", `{"from":"a@acme.example","to":"jo@example.net","subject":"Offer","html":`+string(html)+`}`,
		&sent)
	m := n.captured("jo@example.net")
	if strings.Contains(m.HTML(), target.URL) || !strings.Contains(m.HTML(), "/c/") || !strings.Contains(m.HTML(), "/o/") {
		t.Fatalf("the message is not tracked: %s", m.HTML())
	}
	page := filepath.Join(t.TempDir(), "email.html")
	if err := os.WriteFile(page, []byte(m.HTML()), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := chromium(t)
	if err := chromedp.Do(tab, chromedp.Navigate((&url.URL{Scheme: "file", Path: page}).String())); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the pixel is loaded", func() bool {
		loaded, err := chromedp.Run(tab, chromedp.Evaluate[bool](
			`document.images.length == 1 && document.images[0].naturalWidth == 1`))
		return err == nil && loaded
	})
	if err := chromedp.Do(tab, chromedp.Click(chromedp.ID("go"))); err != nil {
		t.Fatal(err)
	}
	var at string
	eventually(t, 30*time.Second, "the target is shown", func() bool {
		title, err := chromedp.Run(tab, chromedp.Title()) // returns an error while a page loads
		if err == nil {
			at, err = chromedp.Run(tab, chromedp.Location())
		}
		return err == nil && title == "Offer"
	})
	if got := <-visited; got != "/offer?a=1&b=2" || at != target.URL+got {
		t.Errorf("the click led to %s, and to %s", at, got)
	}
	for kind, want := range map[string]string{"email.opened": sent.ID, "email.clicked": target.URL + "/offer?a=1&b=2"} {
		eventually(t, 20*time.Second, "a webhook "+kind, func() bool { return len(hook.of(kind)) > 0 })
		var text any
		if body := hook.of(kind)[0]; json.Unmarshal([]byte(body), &text) != nil || !strings.Contains(unescaped(body), want) {
			t.Errorf("%s: %s", kind, body)
		}
	}
	var shown struct {
		LastEvent string `json:"last_event"`
	}
	n.must("GET", "/emails/"+sent.ID, "", &shown)
	if shown.LastEvent != "clicked" {
		t.Errorf("the email is %s", shown.LastEvent)
	}
	var events string
	n.must("GET", "/emails/"+sent.ID+"/events", "", &events)
	// The browser tries both loopback addresses (IPv4 and IPv6) of localhost.
	events = strings.ReplaceAll(events, `"::1"`, `"127.0.0.1"`)
	for _, want := range []string{"127.0.0.1", "Chrome", "/offer?a=1&b=2"} {
		if !strings.Contains(unescaped(events), want) {
			t.Errorf("the events of the email do not have %s: %s", want, events)
		}
	}
}

// unescaped replaces the JSON escape sequence \u0026 with an ampersand.
func unescaped(text string) string { return strings.ReplaceAll(text, `\u0026`, "&") }
