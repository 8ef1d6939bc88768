package api

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/events"
)

// shownEvent is an event as clients see it.
type shownEvent struct{ ID, Type string }

// The events of an email are all found by paging, however many opens there are, and the list says when there are more.
func TestEventsInPages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		var sent ref
		if err := json.Unmarshal(f.do(t, "POST /emails\n\n"+
			`{"from":"a@example.org","to":"a@example.net","subject":"s","text":"t"}`).Body.Bytes(), &sent); err != nil {
			t.Fatal(err)
		}
		const opens = 1200
		all := make([]events.Event, opens+1)
		for i := range all {
			all[i] = events.Event{TeamID: f.Acme.TeamID, EmailID: sent.ID, Type: events.EmailOpened,
				Recipient: "a@example.net", Data: &events.Open{}}
		}
		all[opens].Type, all[opens].Data = events.EmailComplained, &events.Complaint{}
		if err := d.Update(t.Context(), func(tx *db.Tx) error { return f.Recorder.Record(t.Context(), tx, all...) }); err != nil {
			t.Fatal(err)
		}
		path := "GET /emails/" + sent.ID + "/events"
		get := func(query string) (got list[shownEvent]) {
			t.Helper()
			answer := f.do(t, path+query)
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != 200 {
				t.Fatalf("%s: %d, %v", query, answer.Code, err)
			}
			return got
		}
		first := get("")
		if len(first.Data) != 1000 || !first.HasMore || first.Data[0].Type != "queued" {
			t.Fatalf("at first %d events, more: %v", len(first.Data), first.HasMore)
		}
		last := get("?after=" + first.Data[999].ID)
		if n := len(last.Data); n != opens+2-1000 || last.HasMore || last.Data[n-1].Type != "complained" {
			t.Errorf("then %d events, more: %v", n, last.HasMore)
		}
		few := get("?limit=2&after=" + first.Data[0].ID)
		if len(few.Data) != 2 || !few.HasMore || few.Data[0].ID != first.Data[1].ID || few.Data[1].ID != first.Data[2].ID {
			t.Errorf("two after the first: %+v", few)
		}
		back := get("?limit=2&before=" + first.Data[3].ID)
		if len(back.Data) != 2 || !back.HasMore || back.Data[0].ID != first.Data[1].ID || back.Data[1].ID != first.Data[2].ID {
			t.Errorf("two before the fourth: %+v", back)
		}
		for _, query := range []string{"?limit=0", "?limit=101", "?after=x", "?after=" + sent.ID + "&before=" + sent.ID} {
			if answer := f.do(t, path+query); answer.Code != 422 {
				t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
			}
		}
	})
}
