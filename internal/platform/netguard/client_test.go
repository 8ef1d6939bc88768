package netguard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// site starts a server on the loopback interface with one page for each kind of server error.
func site(t *testing.T) *httptest.Server {
	t.Helper()
	done := make(chan struct{})
	mux := http.NewServeMux()
	page := func(path string, h http.HandlerFunc) { mux.HandleFunc(path, h) }
	page("/file", func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == "" || r.Referer() != "" {
			http.Error(w, "no agent, or a referer", http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		io.WriteString(w, "0123456789")
	})
	page("/empty", func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil })
	page("/chunked", func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	})
	page("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write(make([]byte, 1<<20))
		z.Close()
	})
	page("/gone", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone", http.StatusGone) })
	page("/none", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	page("/hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		if n == 1 {
			http.Redirect(w, r, "/file", http.StatusFound)
			return
		}
		http.Redirect(w, r, "/hop/"+strconv.Itoa(n-1), http.StatusFound)
	})
	page("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("u"), http.StatusMovedPermanently)
	})
	page("/stall", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	page("/silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	page("/header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long",
			strings.Repeat("x", 100<<10))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { close(done); srv.Close() })
	return srv
}

// here returns a guard that allows 127.0.0.1, the address of the test servers.
func here() *Guard {
	return New(Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
}

// all fetches a URL and returns the whole body.
func all(g *Guard, ctx context.Context, url string, limit int64) ([]byte, string, error) {
	f, err := g.Fetch(ctx, "team", url, limit)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	body, err := io.ReadAll(f)
	if err != nil {
		return nil, "", err
	}
	return body, f.Type, nil
}

func TestFetch(t *testing.T) {
	t.Parallel()
	srv := site(t)
	tests := []struct {
		name, path string
		max        int64
		body, kind string
	}{
		{"a file of exactly the limit", "/file", 10, "0123456789", "text/csv; charset=utf-8"},
		{"nothing", "/empty", 0, "", ""},
		{"without a length", "/chunked", 10, "xxxxxxxxxx", "text/plain; charset=utf-8"},
		{"three redirects", "/hop/3", 100, "0123456789", "text/csv; charset=utf-8"},
		{"a fragment", "/file#page=2", 100, "0123456789", "text/csv; charset=utf-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, kind, err := all(here(), t.Context(), srv.URL+tt.path, tt.max)
			if err != nil || string(body) != tt.body || kind != tt.kind {
				t.Errorf("Fetch = %q, %q, %v; want %q, %q", body, kind, err, tt.body, tt.kind)
			}
		})
	}
}

func TestFetchFails(t *testing.T) {
	t.Parallel()
	srv := site(t)
	to := func(u string) string { return "/to?u=" + u }
	status := func(code int) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*StatusError](err)
			return ok && e.Code == code
		}
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	says := func(want string) func(error) bool {
		return func(err error) bool { return err != nil && strings.Contains(err.Error(), want) }
	}
	port := srv.URL[strings.LastIndex(srv.URL, ":"):]
	tests := []struct {
		name, path string
		max        int64
		want       func(error) bool
	}{
		{"longer than allowed, by its header", "/file", 9, is(ErrTooLarge)},
		{"longer than allowed, without a header", "/chunked", 9, is(ErrTooLarge)},
		{"small on the wire, large within", "/bomb", 1 << 19, is(ErrTooLarge)},
		{"gone", "/gone", 100, status(410)},
		{"no content", "/none", 100, status(204)},
		{"four redirects", "/hop/4", 100, says("more than 3 redirects")},
		{"redirect to a private address", to("http://10.0.0.1/"), 100, is(ErrRefused)},
		{"redirect to another loopback address", to("http://127.0.0.2" + port + "/file"), 100, is(ErrRefused)},
		{"redirect to metadata", to("http://169.254.169.254/latest/meta-data"), 100, is(ErrRefused)},
		{"redirect to localhost", to("http://localhost" + port + "/file"), 100, is(ErrRefused)},
		{"redirect to a file", to("file:///etc/passwd"), 100, says("begin with https://")},
		{"redirect to a URL with a password", to("http://u:p@127.0.0.1" + port + "/file"), 100, says("user name")},
		{"headers without end", "/header", 100, says("server response headers exceeded")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, _, err := all(here(), t.Context(), srv.URL+tt.path, tt.max)
			if !tt.want(err) || body != nil {
				t.Errorf("Fetch = %.20q, %v", body, err)
			}
			if strings.Contains(fmt.Sprint(err), tt.path) { // errors are logged, and the path may contain a secret
				t.Errorf("the error names the path: %v", err)
			}
		})
	}
	for _, path := range []string{"/stall", "/silent"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, _, err := all(here(), ctx, srv.URL+path, 100); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Fetch: %v, want the end of the context", err)
			}
		})
	}
	if _, _, err := all(here(), t.Context(), "ftp://example.com/", 100); err == nil ||
		!strings.Contains(err.Error(), "URL must begin") {
		t.Errorf("Fetch of ftp: %v", err)
	}
}

// TestFetchRefusesBeforeConnecting verifies that a server with a refused address receives no requests.
func TestFetchRefusesBeforeConnecting(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			hits.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	client := New(Options{}).Client(5*time.Second, 0, 100)
	for _, u := range []string{srv.URL, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1),
		strings.Replace(srv.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		if resp, err := client.Get(u); !errors.Is(err, ErrRefused) {
			t.Errorf("Get %s: %v, %v; want ErrRefused", u, resp, err)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	srv := site(t)
	t.Run("a redirect is the response when none are asked for", func(t *testing.T) {
		t.Parallel()
		resp, err := here().Client(5*time.Second, 0, 1000).Get(srv.URL + "/hop/1")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != "/file" {
			t.Errorf("answer %d to %q", resp.StatusCode, resp.Header.Get("Location"))
		}
	})
	t.Run("a body is read up to the limit", func(t *testing.T) {
		t.Parallel()
		resp, err := here().Client(5*time.Second, 0, 4).Get(srv.URL + "/file")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if string(body) != "0123" || !errors.Is(err, ErrTooLarge) {
			t.Errorf("body %q, %v; want 0123 and ErrTooLarge", body, err)
		}
	})
	for _, path := range []string{"/stall", "/silent"} {
		t.Run("time runs out at "+path, func(t *testing.T) {
			t.Parallel()
			resp, err := here().Client(100*time.Millisecond, 0, 1000).Get(srv.URL + path)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
				t.Errorf("%v, want a timeout", err)
			}
		})
	}
	t.Run("a proxy of the environment is not used", func(t *testing.T) {
		t.Parallel()
		if here().transport().Proxy != nil {
			t.Error("the transport has a proxy")
		}
	})
}

func TestCapped(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 511, 512, 513, 5000} {
		content := bytes.Repeat([]byte("x"), size)
		for _, limit := range []int64{0, 1, 511, 512, 513, 5000} {
			got, err := io.ReadAll(&capped{ReadCloser: io.NopCloser(bytes.NewReader(content)), left: limit})
			tooLarge := int64(size) > limit
			if errors.Is(err, ErrTooLarge) != tooLarge || int64(len(got)) != min(int64(size), limit) {
				t.Errorf("%d bytes with a limit of %d: %d read, %v", size, limit, len(got), err)
			}
		}
	}
}
