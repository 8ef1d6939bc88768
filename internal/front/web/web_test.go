package web

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
)

// Errors and panics cause error pages, or JSON responses for scripts. The message of an internal error is not shown.
func TestErrors(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	s := New(Config{PublicURL: "https://postrider.test"}, nil, nil, slog.New(slog.NewTextHandler(&logged, nil)))
	mux := http.NewServeMux()
	for path, err := range map[string]error{
		"/none/{secret}": fault.NotFoundf("There is <nothing> here."),
		"/gone":          fault.NotFoundf("Email not found"),
		"/gone-key":      fault.NotFoundf("API key not found"),
		"/named":         fault.Invalidf("name", "Use `postrider dev`."),
		"/fast":          fault.New(fault.TooFast, "", "Wait a minute."),
		"/ours/{secret}": errors.New("the disk is full"),
	} {
		s.Handle(mux, "GET "+path, func(http.ResponseWriter, *http.Request) error { return err })
	}
	s.Handle(mux, "GET /panic", func(http.ResponseWriter, *http.Request) error { panic("the disk is full") })
	s.Handle(mux, "POST /form", func(w http.ResponseWriter, r *http.Request) error {
		_, err := s.Form(w, r)
		return err
	})
	for _, x := range []struct {
		method, path, accept, body string
		status                     int
		want                       string
	}{
		{"GET", "/none/x", "", "", 404, "There is &lt;nothing&gt; here."},
		{"GET", "/gone", "", "", 404, "<h1>Email not found</h1><p>This email does not exist, is no longer kept, or"},
		{"GET", "/gone-key", "", "", 404, "<h1>API key not found</h1><p>This API key does not exist"},
		{"GET", "/gone", "application/json", "", 404, `{"message":"Email not found"}`},
		{"GET", "/named", "", "", 422, "Use postrider dev."},
		{"GET", "/fast", "", "", 429, "Wait a minute."},
		{"GET", "/ours/s3cret", "", "", 500, "Something went wrong"},
		{"GET", "/panic", "", "", 500, "Something went wrong"},
		{"GET", "/panic", "application/json", "", 500, `{"message":"Something went wrong`},
		{"GET", "/fast", "application/json", "", 429, `{"message":"Wait a minute."}`},
		{"GET", "/fast?q=a%00b", "", "", 400, "no text"},
		{"GET", "/fast?q=%ff", "", "", 400, "no text"},
		{"GET", "/fast?q=%ff", "application/json", "", 400, `{"message":"The address of this page`},
		{"POST", "/form", "", "a=" + strings.Repeat("x", formMax), 413, "too large"},
		{"POST", "/form", "", "a=%ff", 400, "cannot be read"},
		{"POST", "/form", "", "a=%00", 400, "cannot be read"},
		{"POST", "/form", "", "a=%zz", 400, "cannot be read"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), x.method, "https://postrider.test"+x.path,
			strings.NewReader(x.body))
		r.Header.Set("Accept", x.accept)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != x.status || !strings.Contains(body, x.want) || strings.Contains(body, "disk") {
			t.Errorf("%s %s: %d, want %d with %q:\n%s", x.method, x.path, w.Code, x.status, x.want, body)
		}
		if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %v", x.method, x.path, w.Header())
		}
	}
	if n := strings.Count(logged.String(), "the disk is full"); n != 3 {
		t.Errorf("%d failures are logged:\n%s", n, &logged)
	}
	if strings.Contains(logged.String(), "s3cret") {
		t.Errorf("the log has what stood in a path:\n%s", &logged)
	}
}

// The Content-Security-Policy allows an OAuth client's redirect URI only on a page that redirects to that URI.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := New(Config{PublicURL: "https://postrider.test"}, nil, nil, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	of := Page(`{{define "title"}}T{{end}}{{define "main"}}<h1>{{.}}</h1>{{end}}`)
	s.Handle(mux, "GET /plain", func(w http.ResponseWriter, r *http.Request) error {
		return s.Show(w, r, http.StatusOK, of, "<b>")
	})
	s.Handle(mux, "GET /app", func(w http.ResponseWriter, r *http.Request) error {
		return s.Show(w, r, http.StatusOK, of, "<b>", LeadsTo("http://127.0.0.1:4711/callback"), Script("go()"))
	})
	const start = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; img-src 'self' data:; " +
		"style-src 'self'; connect-src 'self'; frame-src 'self'; "
	for path, want := range map[string]string{
		"/plain": start + "form-action 'self'; script-src 'self'",
		"/app":   start + "form-action 'self' http://127.0.0.1:4711; script-src 'self' " + hashOf("go()"),
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "https://postrider.test"+path, nil))
		if got := w.Header().Get("Content-Security-Policy"); got != want {
			t.Errorf("%s has the policy\n%s, want\n%s", path, got, want)
		}
		body := w.Body.String()
		if w.Code != 200 || !strings.Contains(body, "<h1>&lt;b&gt;</h1>") ||
			!strings.Contains(body, `<link rel="stylesheet" href="`+assetPath("app.css")+`">`) {
			t.Errorf("%s: %d\n%s", path, w.Code, body)
		}
	}
}
