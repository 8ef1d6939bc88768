package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asked is the response to a request that waits.
type asked struct {
	status int
	email  captured
	text   string
}

// awaits makes a request that waits for an email, on a connection of its own.
func (n *started) awaits(ctx context.Context, query string) (a asked) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/dev/outbox/wait?"+query, nil)
	if err != nil {
		n.t.Error(err)
		return a
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		a.text = err.Error()
		return a
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Error(err)
	}
	a.status, a.text = answer.StatusCode, string(text)
	if err := json.Unmarshal(text, &a.email); err != nil {
		n.t.Errorf("%v: %s", err, text)
	}
	return a
}

// A request waits for an email that it has not seen yet, and answers at once if the email has arrived.
func TestOutboxWaits(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		start := time.Now().UTC().Format(time.RFC3339Nano)
		first := n.sends(key, emailTo("ann@one.example", "First"))
		second := n.sends(key, emailTo("ann@one.example", "Second"))
		for query, want := range map[string]string{
			"since=" + start:                                           first.ID,
			"since=" + first.ID:                                        second.ID,
			"since=" + start + "&subject=second":                       second.ID,
			"to=ann@one.example&since=" + first.ID + "&timeout=0s":     second.ID,
			"to=ann@one.example&timeout=0":                             "",
			"to=ann@one.example&since=" + second.ID + "&timeout=1ms":   "",
			"to=nn@one.example&since=" + start + "&timeout=0s":         "",
			"subject=third&since=" + start + "&timeout=1ms&from=hello": "",
			"timeout=10ms": "",
			"since=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "&timeout=0s": "",
		} {
			a := n.awaits(t.Context(), query)
			if want != "" && (a.status != 200 || a.email.ID != want || a.email.Text != "Hi") {
				t.Errorf("%s: %d %s", query, a.status, a.text)
			}
			if want != "" {
				continue
			}
			var e struct {
				StatusCode    int
				Message, Name string
				Filters       map[string]string
				Recent        []captured
			}
			if err := json.Unmarshal([]byte(a.text), &e); err != nil || a.status != 408 || e.StatusCode != 408 ||
				e.Name != "timeout" || len(e.Recent) != 2 || e.Recent[0].ID != second.ID {
				t.Errorf("%s: %d %s", query, a.status, a.text)
			}
			values, _ := url.ParseQuery(query)
			values.Del("timeout")
			for name := range values {
				if e.Filters[name] != values.Get(name) || !strings.Contains(e.Message, name+"="+values.Get(name)) {
					t.Errorf("%s: %s", query, a.text)
				}
			}
			if len(e.Filters) != len(values) {
				t.Errorf("%s: %+v", query, e.Filters)
			}
		}

		// Many requests wait at the same time, each for another email. Some of their clients go away.
		const clients = 60
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				if i%3 == 0 {
					n.awaits(ctx, fmt.Sprintf("to=never%d@two.example", i))
					return
				}
				a := n.awaits(t.Context(), fmt.Sprintf("to=c%d@two.example&since=%s&timeout=120s", i, second.ID))
				if a.status != 200 || a.email.Recipients[0] != fmt.Sprintf("c%d@two.example", i) {
					t.Errorf("%d: %d %s", i, a.status, a.text)
				}
			})
		}
		for i := range clients {
			n.made(key, "/emails", emailTo(fmt.Sprintf("c%d@two.example", i), "Many"))
			if i == clients/2 {
				leave()
			}
		}
		wg.Wait()

		// Without since, only an email that arrives after the request is an answer.
		done := make(chan asked, 1)
		go func() { done <- n.awaits(t.Context(), "to=ann@one.example&timeout=2m") }()
		sent := map[string]bool{}
		var a asked
		eventually(t, "the request is answered", func() bool {
			sent[n.made(key, "/emails", emailTo("ann@one.example", "Again"))] = true
			select {
			case a = <-done:
				return true
			default:
				return false
			}
		})
		if a.status != 200 || !sent[a.email.EmailID] {
			t.Errorf("%d %s", a.status, a.text)
		}
	})
}

// The number of requests that wait is limited, and a client that goes away makes room for another one. When the node
// stops, waiting requests end at once.
func TestOutboxWaitersAreBounded(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	n := p.start()
	ask := func(ctx context.Context, query string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/dev/outbox/wait?"+query, nil)
		r.RemoteAddr = "127.0.0.1:99"
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, r)
		return w
	}
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var refused atomic.Int32
	for range 510 {
		wg.Go(func() {
			if w := ask(ctx, "timeout=120s"); w.Code == 429 {
				refused.Add(1)
			} else if w.Body.Len() != 0 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	eventually(t, "all places are taken", func() bool { return refused.Load() == 10 })
	if w := ask(t.Context(), "timeout=0"); w.Code != 429 {
		t.Errorf("beside 500 requests that wait: %d %s", w.Code, w.Body)
	}
	leave()
	wg.Wait()
	if w := ask(t.Context(), "timeout=0"); w.Code != 408 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for range 20 {
		wg.Go(func() {
			if w := ask(t.Context(), "since=2020-01-01T00:00:00Z&timeout=120s"); w.Code != 503 ||
				!strings.Contains(w.Body.String(), "stops") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	n.end()
	wg.Wait()
}

// The stream has an event for each new email, continues after an interruption, and ends when the node stops.
func TestOutboxStream(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		first := n.sends(key, emailTo("ann@one.example", "First"))
		open := func(query, last string) (next func() string, shut func()) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/dev/outbox/events?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			if last != "" {
				r.Header.Set("Last-Event-ID", last)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil || answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
				t.Fatal(answer, err)
			}
			lines := bufio.NewScanner(answer.Body)
			next = func() string { // one event; "" at the end
				var event []string
				for lines.Scan() && lines.Text() != "" {
					event = append(event, lines.Text())
				}
				return strings.Join(event, "\n")
			}
			if got := next(); got != ": watching" {
				t.Errorf("the stream begins with %q", got)
			}
			return next, func() { answer.Body.Close() }
		}
		event := func(got string, m captured) {
			t.Helper()
			data, ok := strings.CutPrefix(got, "id: "+m.ID+"\nevent: captured\ndata: ")
			var email captured
			if err := json.Unmarshal([]byte(data), &email); err != nil || !ok || !cmp.Equal(email, m) {
				t.Errorf("%q is not the event of %+v", got, m)
			}
		}
		next, shut := open("", "")
		filtered, shutFiltered := open("subject=third", "")
		defer shutFiltered()
		second := n.sends(key, emailTo("ann@one.example", "Second"))
		event(next(), second)
		shut()
		third := n.sends(key, emailTo("ann@one.example", "Third"))
		event(filtered(), third)
		resumed, shutResumed := open("", second.ID)
		defer shutResumed()
		event(resumed(), third)
		sinceFirst, shutSince := open("since="+first.ID, "")
		defer shutSince()
		event(sinceFirst(), second)
		event(sinceFirst(), third)
		n.end()
		for _, next := range []func() string{filtered, resumed, sinceFirst} {
			if got := next(); got != "" {
				t.Errorf("after the end: %q", got)
			}
		}
	})
}

// A request that waits at one node is answered if another node captures the email.
func TestOutboxOfTwoNodes(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		if p.vars["POSTRIDER_DATABASE_URL"] == "" {
			return // only one node can use an SQLite database
		}
		key := p.key("Acme")
		p.vars["POSTRIDER_ROLES"] = "api"
		n := p.start()
		start := time.Now().UTC().Format(time.RFC3339Nano)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				a := n.awaits(t.Context(), fmt.Sprintf("subject=number%d&since=%s&timeout=120s", i, start))
				if a.status != 200 || a.email.Subject != fmt.Sprintf("number%d", i) {
					t.Errorf("%d: %d %s", i, a.status, a.text)
				}
			})
		}
		p.vars["POSTRIDER_ROLES"] = "delivery,jobs"
		p.start()
		for i := range 5 {
			n.made(key, "/emails", emailTo("ann@one.example", fmt.Sprintf("number%d", i)))
		}
		wg.Wait()
	})
}
