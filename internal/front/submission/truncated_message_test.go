package submission_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// If a message ends early or is invalid, no part of the message is stored.
func TestTruncatedMessage(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	for name, text := range map[string]string{"small": "Hello.\n", "large": strings.Repeat("Hello, hello.\n", 40_000)} {
		message := "From: me@acme.example\nSubject: Hi\n\n" + text
		if _, err := f.submit(f.password, message+"a\rb\n", "ann@one.example"); err == nil {
			t.Errorf("%s, with a lone CR at its end: taken", name)
		}
		c, err := f.client(f.password)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{c.Mail("anyone@elsewhere.example", nil), c.Rcpt("ann@one.example", nil)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(crlf(message))); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	f.stop() // stop waits for sessions in progress
	if all, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{}); err != nil || len(all) != 0 {
		t.Errorf("%d emails were entered, %v", len(all), err)
	}
}
