package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/client"
)

// A server that never ends a response, a row or an event does not fill the memory.
func TestEndlessResponses(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := strings.Repeat("x", 1<<20)
		switch r.URL.Path {
		case "/contacts/imports/i/events":
			line = "data: " + line + "\n"
		default:
			io.WriteString(w, `{"id":"`)
		}
		for sent := 0; sent < 2*most; sent += len(line) {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "re_123")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Team.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than 64 MB") {
		t.Errorf("a response: %v", err)
	}
	for _, err := range c.Contacts.Export(t.Context(), client.ContactsExportParams{}) {
		if err == nil || !strings.Contains(err.Error(), "longer than 64 MB") {
			t.Errorf("a row: %v", err)
		}
	}
	for _, err := range c.Contacts.WatchImport(t.Context(), "i") {
		if err == nil || !strings.Contains(err.Error(), "longer than 64 MB") {
			t.Errorf("an event: %v", err)
		}
	}
}

// The error about a URL does not contain its password.
func TestPasswordInURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"https://user:secret@example.com", "ftp://user:secret@example.com",
		"https://user:secret@example.com:port", "https://user:secret@[::1", "//user:secret@example.com"} {
		if _, err := client.New(url, "re_123"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
