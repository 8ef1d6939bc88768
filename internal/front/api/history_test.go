package api

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// entry is an event or a delivery attempt in an API response.
type entry struct{ ID, Type, Reply string }

// entries returns a page of a list. The query string is empty or begins with a question mark.
func (f *fixture) entries(t *testing.T, path, query string) (got wire.List[entry]) {
	t.Helper()
	answer := f.do(t, "GET "+path+query)
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != 200 {
		t.Fatalf("%s: %d, %v", query, answer.Code, err)
	}
	return got
}

// inPages reads a list of n entries, oldest first. It checks that the response to a request without a limit has at most
// the given number of entries.
func (f *fixture) inPages(t *testing.T, path string, n, most int) (all []entry) {
	t.Helper()
	first := f.entries(t, path, "")
	if len(first.Data) != most || !first.HasMore {
		t.Fatalf("at first %d entries, more: %v", len(first.Data), first.HasMore)
	}
	rest := f.entries(t, path, "?after="+first.Data[most-1].ID)
	if len(rest.Data) != n-most || rest.HasMore {
		t.Fatalf("then %d entries, more: %v", len(rest.Data), rest.HasMore)
	}
	all = append(first.Data, rest.Data...)
	for _, c := range []struct {
		query    string
		from, to int
		more     bool
	}{
		{"?limit=2", 0, 2, true},
		{"?limit=2&after=" + all[0].ID, 1, 3, true},
		{"?limit=2&after=" + all[n-3].ID, n - 2, n, false},
		{"?limit=2&after=" + all[n-1].ID, n, n, false},
		{"?limit=2&before=" + all[3].ID, 1, 3, true},
		{"?limit=2&before=" + all[2].ID, 0, 2, false},
	} {
		got := f.entries(t, path, c.query)
		same := len(got.Data) == c.to-c.from && got.HasMore == c.more
		for i := range got.Data {
			same = same && got.Data[i] == all[c.from+i]
		}
		if !same {
			t.Errorf("%s: %+v, want the entries %d to %d", c.query, got, c.from, c.to)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=101", "?after=x",
		"?after=" + all[0].ID + "&before=" + all[0].ID} {
		if answer := f.do(t, "GET "+path+query); answer.Code != 422 {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
	return all
}

// sent sends an email and returns its ID.
func (f *fixture) sent(t *testing.T) string {
	t.Helper()
	var sent ref
	answer := f.do(t, "POST /emails\n\n"+`{"from":"a@example.org","to":"a@example.net","subject":"s","text":"t"}`)
	if err := json.Unmarshal(answer.Body.Bytes(), &sent); err != nil {
		t.Fatal(err)
	}
	return sent.ID
}

// Paging returns all events for an email, even if the email has a very large number of opens. The field has_more
// indicates whether more events follow.
func TestEventsInPages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		emailID := f.sent(t)
		const opens = 1200
		all := make([]events.Event, opens+1)
		for i := range all {
			all[i] = events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: events.EmailOpened,
				Recipient: "a@example.net", Data: &events.Open{}}
		}
		all[opens].Type, all[opens].Data = events.EmailComplained, &events.Complaint{}
		f.Happen(all...)
		got := f.inPages(t, "/emails/"+emailID+"/events", opens+2, 1000)
		if first, last := got[0].Type, got[opens+1].Type; first != "queued" || last != "complained" {
			t.Errorf("the first event is %s, the last %s", first, last)
		}
	})
}

// Paging returns all delivery attempts for an email in chronological order.
func TestAttemptsInPages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		emailID := f.sent(t)
		const tries = 600
		all := make([]events.Event, tries)
		for i := range all {
			all[i] = events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: events.EmailDelayed,
				Recipient: "user@example.net", Attempt: &events.Attempt{Destination: "example.net",
					Outcome: emails.OutcomeUnknown, Reply: strconv.Itoa(i), StartedAt: time.Now()}}
		}
		f.Happen(all...)
		for i, e := range f.inPages(t, "/emails/"+emailID+"/attempts", tries, 500) {
			if e.Reply != strconv.Itoa(i) {
				t.Errorf("entry %d is try %s", i, e.Reply)
			}
		}
	})
}
