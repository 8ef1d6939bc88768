package emails_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Attempts returns an attempt exactly as it was recorded, whatever its event's recipient is. The event is shown in the
// timeline as without the attempt.
func TestAttemptIsKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		full := events.Attempt{Destination: "one.example", Recipients: []string{"a@one.example"}, Host: "mx.one.example",
			TLS: "TLS 1.3", Outcome: emails.OutcomeUnknown, Reply: "451", Conversation: "> QUIT", StartedAt: at,
			Duration: 1500 * time.Millisecond, NextAt: at.Add(time.Hour)}
		last, several, elsewhere := full, full, full
		last.NextAt, last.Host, last.TLS = time.Time{}, "", ""
		several.Recipients = []string{"a@one.example", "b@one.example"}
		elsewhere.Destination, elsewhere.Recipients = "two.example", []string{"c@one.example"}
		want := []events.Attempt{full, last, several, elsewhere}
		emailID := f.Send(hello("a@one.example", "b@one.example"))
		var all []events.Event
		for i := range want {
			all = append(all, events.Event{TeamID: team, EmailID: emailID, Type: events.EmailSent},
				events.Event{TeamID: team, EmailID: emailID, Type: events.EmailDelayed, Recipient: "a@one.example",
					Attempt: &want[i]},
				events.Event{TeamID: team, EmailID: emailID, Type: events.EmailDelayed, Recipient: "b@one.example"})
		}
		f.Happen(all...)
		got, more, err := f.Emails.Attempts(ctx, team, emailID, page.Page{})
		if err != nil || more || len(got) != len(want) {
			t.Fatalf("%+v, more %v, %v", got, more, err)
		}
		timeline, _, err := f.Emails.Timeline(ctx, team, emailID, page.Page{})
		if err != nil || len(timeline) != 1+len(all) {
			t.Fatalf("%+v, %v", timeline, err)
		}
		for i := range want {
			if got[i].ID != timeline[3*i+2].ID || !reflect.DeepEqual(got[i].Attempt, want[i]) {
				t.Errorf("%+v has become %+v", want[i], got[i])
			}
		}
		if got, more, err = f.Emails.Attempts(ctx, team, emailID, page.Page{Limit: 1, After: got[1].ID}); err != nil || !more ||
			!reflect.DeepEqual(got[0].Attempt, several) {
			t.Errorf("the third attempt is %+v, more %v, %v", got, more, err)
		}
		if got, _, err := f.Emails.Attempts(ctx, f.Other.TeamID, emailID, page.Page{}); err != nil || len(got) != 0 {
			t.Errorf("another team sees %+v, %v", got, err)
		}
		for destination, want := range map[string]int{"one.example": 3, "two.example": 1, "three.example": 0} {
			if n, err := emails.UnknownAttempts(ctx, f.DB.Reader, team, emailID, destination); err != nil || n != want {
				t.Errorf("%d attempts at %s are unsure, %v", n, destination, err)
			}
		}
		a, err := erasure.Parse("a@one.example")
		if err != nil {
			t.Fatal(err)
		}
		f.Happen(events.Event{TeamID: team, EmailID: emailID, Type: events.EmailDelivered, Recipient: "a@one.example"},
			events.Event{TeamID: team, EmailID: emailID, Type: events.EmailDelivered, Recipient: "b@one.example"})
		if _, err := f.Emails.EraseAddress(ctx, a, erasure.Scope{Teams: []string{team}}); err != nil {
			t.Fatal(err)
		}
		want[0].Recipients, want[1].Recipients = []string{erasure.Placeholder}, []string{erasure.Placeholder}
		want[2].Recipients = []string{erasure.Placeholder, "b@one.example"}
		got, _, err = f.Emails.Attempts(ctx, team, emailID, page.Page{})
		if err != nil || len(got) != len(want) {
			t.Fatalf("after an erasure there are %+v, %v", got, err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i].Attempt, want[i]) {
				t.Errorf("an erasure has made %+v of %+v", got[i], want[i])
			}
		}
	})
}
