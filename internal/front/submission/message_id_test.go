package submission_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/blob/blobtest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// In the list of emails, a large message is sorted by the time at which all of it was stored. The message contains the
// id that was assigned when it was stored.
func TestSlowMessageIsTheNewest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		bucket := blobtest.New(t)
		f := newFixtureAt(t, d, bucket.URL)
		waiting, release := bucket.Hold()
		late := make(chan string, 1)
		go func() {
			id, err := f.submit(f.password, large, "a@one.example")
			late <- fmt.Sprint(id, " ", err)
		}()
		<-waiting
		quick := f.mustSubmit(hello, "ann@one.example")
		release()
		slow, said, _ := strings.Cut(<-late, " ")
		if said != "<nil>" {
			t.Fatal(said)
		}
		fresh, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{Limit: 10, Before: quick})
		if err != nil || len(fresh) != 1 || fresh[0].ID != slow {
			t.Errorf("after %s: %v, %v; want %s", quick, fresh, err, slow)
		}
		f.bears(slow, crlf(large))
	})
}

// bears checks that the sent message is the submitted message preceded by header fields that contain the email's id.
func (f *fixture) bears(id, submitted string) {
	f.T.Helper()
	got, _ := f.outgoing(id, "one.example")
	added, ok := strings.CutSuffix(got, submitted)
	if !ok || !strings.HasPrefix(added, "Received: ") || !strings.Contains(added, " id "+id+";\r\n") ||
		!strings.HasSuffix(added, "\r\nMessage-ID: <"+id+"@acme.example>\r\n") {
		f.T.Errorf("before the message stands %q; want the id %s", added[:min(len(added), 500)], id)
	}
	if e := f.Email(id); e.MessageID != "<"+id+"@acme.example>" {
		f.T.Errorf("the email %s says %s", id, e.MessageID)
	}
}

// If the transaction that stores an email is retried, the message contains the id from the committed attempt.
func TestMessageOfASecondRun(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 4*time.Second)
	f := newFixture(t, d)
	for name, text := range map[string]string{"small": hello, "large": large} {
		t.Run(name, func(t *testing.T) {
			commits := proxy.Commits()
			proxy.DropCommits(1)
			id := f.mustSubmit(text, "ann@one.example")
			if n := proxy.Commits() - commits; n < 2 {
				t.Fatalf("%d commits, want one that is lost and another", n)
			}
			f.bears(id, crlf(text))
		})
	}
	if all, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{Limit: 10}); err != nil || len(all) != 2 {
		t.Errorf("%d emails, %v; want 2", len(all), err)
	}
}
