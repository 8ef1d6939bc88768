package engine

import (
	"maps"
	"slices"
	"time"
)

// Happening is what was done with a contact: it was created or changed.
type Happening struct {
	Created  bool
	Switched bool            // whether it is unsubscribed has changed
	Topics   map[string]bool // what it has chosen newly, by the ids of topics; true is opted in
}

// Events returns the system events of a contact, as it is afterwards, with what they have (docs/custom-events.md).
func (c *Contact) Events(h Happening, at time.Time) (all []Event) {
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

// payload returns what all system events of contacts and topics have, and more.
func (c *Contact) EventPayload(more map[string]any) map[string]any {
	p := map[string]any{"contact_id": c.ID, "email": c.Address, "first_name": c.FirstName, "last_name": c.LastName,
		"unsubscribed": c.Unsubscribed}
	maps.Copy(p, more)
	return p
}

// EmailPayload returns what all system events of emails have before the email is looked up, and more. broadcastID is ""
// for other emails.
func EmailPayload(emailID, broadcastID string, more map[string]any) map[string]any {
	p := map[string]any{"email_id": emailID}
	if broadcastID != "" {
		p["broadcast_id"] = broadcastID
	}
	maps.Copy(p, more)
	return p
}
