package submission_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// If the database's reply to a COMMIT is lost, the message is accepted once the commit has been confirmed. If the
// commit cannot be confirmed, the client gets a temporary error that says so. A retry with the same idempotency key
// does not send the message twice.
func TestLostDatabase(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 2*time.Second)
	f := newFixture(t, d)
	text := "From: me@acme.example\nPostrider-Idempotency-Key: k\n\nHello.\n"
	count := func() int {
		t.Helper()
		all, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{Limit: 10})
		f.Must(err)
		return len(all)
	}
	proxy.LoseAnswers(1)
	_, err := f.submit(f.password, strings.Replace(text, "Key: k", "Key: first", 1), "ann@one.example")
	if err != nil || count() != 1 {
		t.Errorf("a lost answer: error %v, %d emails; want none, 1", err, count())
	}

	proxy.LoseAnswers(1)
	proxy.TurnAway("53300")
	_, err = f.submit(f.password, text, "ann@one.example")
	if code, said := refused(err); code != 451 || !strings.Contains(said, "may have been accepted") {
		t.Errorf("an unknown commit: %v", err)
	}
	f.Must(proxy.Pass())
	id, err := f.submit(f.password, text, "ann@one.example")
	if err != nil || count() != 2 {
		t.Errorf("once more: %s, error %v, %d emails; want 2", id, err, count())
	}

	c, err := f.client(f.password)
	f.Must(err)
	proxy.Refuse()
	_, err = f.send(c, nil, strings.Replace(text, "Key: k", "Key: other", 1), "ann@one.example")
	if code, _ := refused(err); code != 451 {
		t.Errorf("no database: %v", err)
	}
	f.Must(proxy.Pass())
	if count() != 2 {
		t.Errorf("%d emails, want 2", count())
	}
}
