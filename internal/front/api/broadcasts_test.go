package api

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// After a contact is deleted, its entry in the recipient list has no contact_id but keeps its position. If a
// recipient's address is suppressed after the email was enqueued, the recipient is counted and listed as suppressed.
func TestRecipientsOfBroadcasts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("acme.example")
		segment := f.segment("ann@reader.example", "bob@reader.example", "cy@reader.example")
		read := func(request string, into any) {
			t.Helper()
			w := f.do(t, request)
			if w.Code/100 != 2 {
				t.Fatalf("%s: %d %s", request, w.Code, w.Body)
			}
			f.Must(json.Unmarshal(w.Body.Bytes(), into))
		}
		var made struct{ ID string }
		read("POST /broadcasts\nContent-Type: application/json\n\n"+`{"segment_id":"`+segment+
			`","from":"a@acme.example","subject":"s","text":"t","send":true}`, &made)
		f.sendBroadcasts()
		type recipient struct {
			ID        string
			ContactID *string `json:"contact_id"`
			Email     string
			EmailID   string `json:"email_id"`
		}
		list := func(kind string) map[string]recipient {
			t.Helper()
			var l struct{ Data []recipient }
			read("GET /broadcasts/"+made.ID+"/recipients?type="+kind, &l)
			all := map[string]recipient{}
			for _, r := range l.Data {
				all[r.Email] = r
			}
			return all
		}
		before := list("waiting")
		read("DELETE /contacts/ann@reader.example", &struct{}{})
		after := list("waiting")
		if len(after) != 3 || before["ann@reader.example"].ContactID == nil || after["ann@reader.example"].ContactID != nil ||
			after["ann@reader.example"].ID != before["ann@reader.example"].ID || after["bob@reader.example"].ContactID == nil {
			t.Errorf("before %+v, after %+v", before, after)
		}
		for to, kind := range map[string]events.Type{"bob@reader.example": events.EmailSuppressed,
			"cy@reader.example": events.EmailFailed} {
			f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: before[to].EmailID, BroadcastID: made.ID, Type: kind,
				Recipient: to})
		}
		var counts struct{ Failed, Suppressed, Waiting int }
		read("GET /broadcasts/"+made.ID+"/results", &counts)
		if counts.Failed != len(list("failed")) || counts.Suppressed != len(list("suppressed")) || counts.Waiting != 1 ||
			counts.Failed != 1 || counts.Suppressed != 1 {
			t.Errorf("%+v, but %d and %d are listed", counts, len(list("failed")), len(list("suppressed")))
		}
	})
}
