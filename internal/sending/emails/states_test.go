package emails

import (
	"testing"

	"github.com/postrider/postrider/internal/platform/events"
)

// If several events are recorded together, only the event with the highest rank is written for each recipient and for
// the email. Among events with the same rank, the first one is written.
func TestOutranked(t *testing.T) {
	event := func(k events.Type, emailID, to string) events.Event {
		return events.Event{Type: k, EmailID: emailID, Recipient: to}
	}
	sent := event(events.EmailSent, "e", "")
	ann, bob := event(events.EmailDelivered, "e", "ann"), event(events.EmailDelivered, "e", "bob")
	for _, c := range []struct {
		name             string
		all              []events.Event
		i                int
		recipient, email bool // outranked
	}{
		{"alone", []events.Event{ann}, 0, false, false},
		{"sent before delivered", []events.Event{sent, ann}, 0, false, true},
		{"delivered after sent", []events.Event{sent, ann}, 1, false, false},
		{"the second of two recipients", []events.Event{ann, bob}, 1, false, true},
		{"the first of two recipients", []events.Event{ann, bob}, 0, false, false},
		{"twice the same", []events.Event{ann, ann}, 1, true, true},
		{"another email", []events.Event{event(events.EmailDelivered, "f", "ann"), ann}, 1, false, false},
		{"beside one that is suppressed", []events.Event{ann, event(events.EmailSuppressed, "e", "bob")}, 0, false, false},
		{"delayed beside one that is suppressed", []events.Event{event(events.EmailDelayed, "e", "ann"),
			event(events.EmailSuppressed, "e", "ann")}, 0, false, false},
		{"suppressed beside one that is delivered", []events.Event{ann, event(events.EmailSuppressed, "e", "bob")}, 1, false,
			rank[Delivered] >= rank[Suppressed]},
		{"delivered beside clicked", []events.Event{ann, event(events.EmailClicked, "e", "ann")}, 0, false, false},
		{"clicked beside delivered", []events.Event{ann, event(events.EmailClicked, "e", "ann")}, 1, false, false},
		{"opened beside clicked", []events.Event{event(events.EmailOpened, "e", "ann"),
			event(events.EmailClicked, "e", "ann")}, 0, true, true},
		{"beside another resource's", []events.Event{ann, {Type: events.DomainUpdated, EmailID: "e", Recipient: "ann"}}, 0,
			false, false},
	} {
		r := rank[stateOf[c.all[c.i].Type]]
		if recipient, email := outranked(c.all, c.i, r, true), outranked(c.all, c.i, r, false); recipient != c.recipient ||
			email != c.email {
			t.Errorf("%s: recipient %v, email %v", c.name, recipient, email)
		}
	}
}
