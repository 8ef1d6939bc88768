package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/client"
)

// unavailable answers a request as an overloaded node does.
func unavailable(w http.ResponseWriter, after string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", after)
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `{"statusCode":503,"name":"service_unavailable","message":"Try again in a moment."}`)
}

// The rate limit of a real node delays requests, which all succeed in the end.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	n, c := start(t, "sqlite", map[string]string{"rate_limit": "4"}, client.WithRetries(5))
	for range 5 {
		try(c.Topics.Create(t.Context(), client.CreateTopic{Name: "News", DefaultSubscription: "opt_in"}))(t)
	}
	if topics := try(c.Topics.List(t.Context(), client.Page{}))(t); len(topics.Data) != 5 {
		t.Errorf("there are %d topics", len(topics.Data))
	}
	never, limited := n.client(t, n.url, client.WithRetries(0)), 0
	for range 12 {
		if _, err := never.Team.Get(t.Context()); client.IsRateLimited(err) {
			limited++
			if e, ok := errors.AsType[*client.Error](err); !ok || e.RetryAfter != time.Second ||
				e.Name != "rate_limit_exceeded" {
				t.Errorf("the error is %+v", e)
			}
		}
	}
	if limited == 0 {
		t.Error("without repetitions, no request is refused")
	}
}

// Requests without a second effect are repeated when a node is unavailable, and others are not.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "sqlite", nil)
	p := newProxy(t, n, func(i int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if i == 1 || i == 2 || i == 4 || i == 5 {
			unavailable(w, "")
			return
		}
		forward.ServeHTTP(w, r)
	})
	c, ctx := n.client(t, p.URL), t.Context()
	try(c.Team.Get(ctx))(t)
	if requests, _ := p.seen(); len(requests) != 3 {
		t.Errorf("GET was sent as %q", requests)
	}
	topic := client.CreateTopic{Name: "News", DefaultSubscription: "opt_in"}
	if _, err := c.Topics.Create(ctx, topic); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("POST without a key: %v", err)
	}
	if requests, _ := p.seen(); len(requests) != 4 {
		t.Errorf("POST without a key was repeated: %q", requests)
	}
	try(c.Topics.Create(ctx, topic, client.WithIdempotencyKey("news")))(t)
	if requests, _ := p.seen(); len(requests) != 6 {
		t.Errorf("POST with a key was sent as %q", requests)
	}
}

// If the response of a request with an idempotency key is lost, the repetition gets the response of the first request.
func TestLostResponse(t *testing.T) {
	t.Parallel()
	n, direct := start(t, "sqlite", nil)
	p := newProxy(t, n, func(i int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if i%2 == 1 {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			breakConnection(w)
			return
		}
		forward.ServeHTTP(w, r)
	})
	c, ctx := n.client(t, p.URL), t.Context()
	email := client.SendEmail{From: "hello@acme.example", To: []string{"ada@example.org"}, Subject: "Hello",
		Text: new("Hi")}
	sent := try(c.Emails.Send(ctx, email, client.WithIdempotencyKey("one")))(t)
	list := try(direct.Emails.List(ctx, client.EmailsListParams{}))(t)
	if len(list.Data) != 1 || list.Data[0].ID != sent.ID {
		t.Errorf("there are the emails %+v, want only %s", list.Data, sent.ID)
	}
	file := strings.NewReader("email\nada@example.org\n")
	try(c.Contacts.CreateImport(ctx, client.CreateImport{File: file, FileName: "a.csv"},
		client.WithIdempotencyKey("two")))(t)
	if list := try(direct.Contacts.ListImports(ctx, client.ContactsListImportsParams{}))(t); len(list.Data) != 1 {
		t.Errorf("there are the imports %+v", list.Data)
	}
	once := io.MultiReader(strings.NewReader("email\n"))
	_, err := c.Contacts.CreateImport(ctx, client.CreateImport{File: once, FileName: "a.csv"},
		client.WithIdempotencyKey("three"))
	if err == nil {
		t.Error("a file that cannot be read again was sent again")
	}
}

// The client waits as long as the server says, but neither too long nor after the end of the context.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "sqlite", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newProxy(t, n, func(i int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		switch i {
		case 1:
			unavailable(w, "3600")
		case 2:
			unavailable(w, "29")
			cancel()
		default:
			forward.ServeHTTP(w, r)
		}
	})
	c := n.client(t, p.URL)
	_, err := c.Team.Get(t.Context())
	if e, ok := errors.AsType[*client.Error](err); !ok || e.RetryAfter != time.Hour {
		t.Errorf("a wait of an hour: %v", err)
	}
	if _, err := c.Team.Get(ctx); err == nil {
		t.Error("a canceled request succeeds")
	}
	if requests, _ := p.seen(); len(requests) != 2 {
		t.Errorf("the requests are %q", requests)
	}
}

// A response that is cut off is an error, not the end of an export.
func TestTruncated(t *testing.T) {
	t.Parallel()
	n, direct := start(t, "sqlite", nil)
	ctx := t.Context()
	try(direct.Suppressions.AddBatch(ctx, client.AddSuppressions{Emails: []string{"a@example.org", "b@example.org"}}))(t)
	p := newProxy(t, n, func(_ int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		whole := httptest.NewRecorder()
		forward.ServeHTTP(whole, r)
		text := whole.Body.Bytes()
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		w.Write(text[:len(text)-20])
		http.NewResponseController(w).Flush()
		breakConnection(w)
	})
	c := n.client(t, p.URL)
	rows, failed := 0, false
	for _, err := range c.Suppressions.Export(ctx, client.SuppressionsExportParams{}) {
		if failed = err != nil; !failed {
			rows++
		}
	}
	if rows != 1 || !failed {
		t.Errorf("%d rows were read, and failed is %v", rows, failed)
	}
	file := try(c.Suppressions.ExportCSV(ctx, client.SuppressionsExportParams{}))(t)
	defer file.Close()
	if _, err := io.ReadAll(file); err == nil {
		t.Error("a truncated CSV file is complete")
	}
	if _, err := c.Team.Get(ctx); err == nil {
		t.Error("a truncated response is complete")
	}
}
