package engine

import (
	"maps"
	"slices"
	"time"
)

// ContactChange is how a contact was created or changed.
type ContactChange struct {
	Created  bool
	Switched bool            // the contact unsubscribed, or subscribed again
	Topics   map[string]bool // changed choices by topic id; true is opted in
}

// Events returns the system events of a change, with their payloads (docs/custom-events.md). c is the contact after the
// change.
func (c *Contact) Events(h ContactChange, at time.Time) (all []Event) {
	add := func(name string, more map[string]any) {
		all = append(all, Event{Name: name, Payload: c.EventPayload(more), At: at})
	}
	switch {
	case h.Created:
		add(ContactCreated, nil)
	default:
		add(ContactUpdated, nil)
		if h.Switched && c.Unsubscribed {
			add(ContactUnsubscribed, nil)
		} else if h.Switched {
			add(ContactResubscribed, nil)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(h.Topics)) {
		name := TopicOptedOut
		if h.Topics[topic] {
			name = TopicOptedIn
		}
		add(name, map[string]any{"topic_id": topic})
	}
	return all
}

// EventPayload returns the fields that all system events of contacts and topics have, and the entries of the map more.
func (c *Contact) EventPayload(more map[string]any) map[string]any {
	p := map[string]any{"contact_id": c.ID, "email": c.Address, "first_name": c.FirstName, "last_name": c.LastName,
		"unsubscribed": c.Unsubscribed}
	maps.Copy(p, more)
	return p
}

// EmailPayload returns the members that all system events of emails have before the email is looked up, and the members
// in more. broadcastID is "" for emails that are not part of a broadcast.
func EmailPayload(emailID, broadcastID string, more map[string]any) map[string]any {
	p := map[string]any{"email_id": emailID}
	if broadcastID != "" {
		p["broadcast_id"] = broadcastID
	}
	maps.Copy(p, more)
	return p
}
