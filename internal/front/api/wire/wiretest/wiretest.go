// Package wiretest sends requests to the JSON API in tests.
package wiretest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Do sends a request to the handler h. The request is given as text: the method and path, header lines, an empty line,
// and the body. Do adds the headers Host, User-Agent, Authorization and Content-Length if the text does not contain
// them. A header with the value "-" is omitted. If the value of Authorization is a name in keys, Do replaces the name
// with the corresponding token. The default name is "full".
func Do(t testing.TB, h http.Handler, keys map[string]string, text string) *httptest.ResponseRecorder {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	first, rest, _ := strings.Cut(head, "\n")
	lines := strings.Split(rest, "\n")
	for _, d := range []string{"Host: api.postrider.test", "User-Agent: scenario/1", "Authorization: full",
		"Content-Length: " + strconv.Itoa(len(body))} {
		name, _, _ := strings.Cut(d, ":")
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(strings.ToLower(l), strings.ToLower(name)+":")
		}) {
			lines = append(lines, d)
		}
	}
	raw := first + " HTTP/1.1\r\n"
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		if key, ok := keys[value]; ok && name == "Authorization" {
			value = "Bearer " + key
		}
		if value != "-" && l != "" {
			raw += name + ": " + value + "\r\n"
		}
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "\r\n" + body)))
	if err != nil {
		t.Fatalf("%s: %v", first, err)
	}
	w := httptest.NewRecorder()
	r.RemoteAddr = "192.0.2.1:1234"
	h.ServeHTTP(w, r.WithContext(t.Context()))
	return w
}

// WantError fails the test if the response is not an error with the given status code and name.
func WantError(t testing.TB, w *httptest.ResponseRecorder, status int, name string) {
	t.Helper()
	var e struct {
		StatusCode    int
		Message, Name string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != status || e.StatusCode != status ||
		e.Name != name || e.Message == "" {
		t.Errorf("response %d %s, want %d %s", w.Code, w.Body, status, name)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json; charset=utf-8" {
		t.Errorf("Content-Type %q", ct)
	}
}

// Serve serves h on a network connection until the test ends.
func Serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// Send makes a request over the network with a bearer token and returns the response's status and body.
func Send(t testing.TB, token, method, url string, body io.Reader) (status int, text string) {
	t.Helper()
	w := open(t, t.Context(), http.DefaultClient, token, method, url, body)
	defer w.Body.Close()
	all, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(all)
}

// Fetch makes a request to s and returns the response. The response body is closed when the test ends. Reading the body
// may take up to a minute.
func Fetch(t testing.TB, s *httptest.Server, token, method, path string) *http.Response {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	w := open(t, ctx, s.Client(), token, method, s.URL+path, nil)
	t.Cleanup(func() { w.Body.Close() })
	return w
}

func open(t testing.TB, ctx context.Context, c *http.Client, token, method, url string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	w, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
