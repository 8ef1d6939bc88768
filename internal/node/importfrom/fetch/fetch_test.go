package fetch_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/node/importfrom/fetch"
)

// A request that the server refuses for now is repeated after the time that the server names, or else with backoff. The
// next request waits if the server says that the window is used up.
func TestRetries(t *testing.T) {
	t.Parallel()
	answers := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ratelimit-remaining", "0")
			w.Header().Set("ratelimit-reset", "3")
			fmt.Fprint(w, `{"n":1}`)
		},
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"n":2}`) },
	}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("the key is %q", r.Header.Get("Authorization"))
		}
		asked++
		answers[asked-1](w, r)
	}))
	t.Cleanup(server.Close)
	var waits []time.Duration
	c, err := fetch.New(fetch.Options{URL: server.URL + "/", Name: "Example",
		Header: http.Header{"Authorization": {"Bearer secret"}},
		Wait: func(_ context.Context, d time.Duration) error {
			waits = append(waits, d.Round(time.Second))
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		var got struct{ N int }
		if err := c.Get(t.Context(), "/things", nil, &got); err != nil || got.N != want {
			t.Fatalf("%v, %v", got, err)
		}
	}
	want := []time.Duration{7 * time.Second, 2 * time.Second, 4 * time.Second, 3 * time.Second}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
}

// Errors name the product, the path and what the server said, and never the key.
func TestErrors(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed, with %v", r.Header)
	}))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"message":"API key is \u001b[31minvalid"}`)
		case "/postmark":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"ErrorCode":300,"Message":"Invalid"}`)
		case "/sendgrid":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"errors":[{"message":"bad","field":null}]}`)
		case "/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/huge":
			fmt.Fprintf(w, `{"text":%q}`, strings.Repeat("x", 2000))
		case "/page":
			fmt.Fprint(w, "<html>")
		case "/later":
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	c, err := fetch.New(fetch.Options{URL: server.URL, Name: "Example", MaxBody: 1000,
		Header: http.Header{"Authorization": {"Bearer secret"}},
		Wait:   func(context.Context, time.Duration) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/refused":  "Example answered /refused with 401: API key is ?[31minvalid (check the key",
		"/postmark": "with 422: Invalid",
		"/sendgrid": "with 400: bad",
		"/away":     "with 302",
		"/huge":     "more than 1000 bytes",
		"/page":     "is not the JSON",
		"/later":    "asks to wait for 24h0m0s: continue the import later",
	} {
		var got struct{ Text string }
		err := c.Get(t.Context(), path, nil, &got)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", path, err)
		}
	}
	server.Close()
	if err := c.Get(t.Context(), "/", nil, nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a server that is away: %v", err)
	}
}

// A key is sent without encryption only within private networks.
func TestURLs(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{"https://api.example.com": true, "http://localhost:9000": true,
		"http://127.0.0.1:1": true, "http://10.1.2.3:9000": true, "http://listmonk:9000": true,
		"http://api.example.com": false, "http://203.0.113.4": false, "ftp://x": false, "": false, "api.example.com": false,
		"https://user:pass@example.com": false, "https://example.com?key=1": false} {
		if _, err := fetch.New(fetch.Options{URL: url, Name: "Example"}); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// The key occurs in no error, not even if the server repeats it.
func TestKeyStaysSecret(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{
		"Bearer": {"Authorization": {"Bearer secret_value"}},
		"Basic":  {"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("api:secret_value"))}},
		"alone":  {"X-Token": {"secret_value"}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"message":"%ssecret_value, %s%s"}`, strings.Repeat("x", 290), r.Header.Get("Authorization"),
				r.Header.Get("X-Token"))
		}))
		c, err := fetch.New(fetch.Options{URL: server.URL, Name: "Example", Header: header})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Get(t.Context(), "/things", nil, nil)
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "OnNlY3JldF92YWx1Z") {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
	_, err := fetch.New(fetch.Options{URL: "https://user:password@example.com", Name: "Example"})
	if err == nil || strings.Contains(err.Error(), "password@") {
		t.Errorf("a URL with a password: %v", err)
	}
}

// The key goes to no other host than that of the base, although a path may come from the server.
func TestPathsStayBelowTheBase(t *testing.T) {
	t.Parallel()
	c, err := fetch.New(fetch.Options{URL: "https://api.example.com", Name: "Example", Wait: never(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"@127.0.0.1/", ".example.net/", ":1/", ""} {
		if err := c.Get(t.Context(), path, nil, nil); err == nil || !strings.Contains(err.Error(), "other address") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// never fails the test when a client waits for another try.
func never(t *testing.T) func(context.Context, time.Duration) error {
	return func(context.Context, time.Duration) error {
		t.Error("the client tries again")
		return context.Canceled
	}
}

// A list whose pages repeat, or that has too many pages, is an error.
func TestCursors(t *testing.T) {
	t.Parallel()
	count := func(most int, next func(n int) string) int {
		c := fetch.Cursors{Most: most}
		for n := range 10_000 {
			if c.Next(next(n)) != nil {
				return n
			}
		}
		return -1
	}
	if n := count(0, func(int) string { return "a" }); n != 1 {
		t.Errorf("the same cursor was found after %d pages", n)
	}
	if n := count(0, func(n int) string { return fmt.Sprint(max(n, 20) % 10) }); n < 0 || n > 100 {
		t.Errorf("a circle was found after %d pages", n)
	}
	if n := count(0, func(n int) string { return fmt.Sprint(n) }); n >= 0 {
		t.Errorf("distinct cursors are refused after %d pages", n)
	}
	if n := count(7, func(n int) string { return fmt.Sprint(n) }); n != 7 {
		t.Errorf("the limit of 7 pages is %d", n)
	}
}
