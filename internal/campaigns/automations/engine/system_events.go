package engine

import (
	"maps"
	"slices"
	"time"
)

// ContactChange describes how a contact was created or changed.
type ContactChange struct {
	Created  bool
	Switched bool            // whether the contact unsubscribed or resubscribed
	Topics   map[string]bool // changed topic choices, keyed by topic id; true means opted in
}

// Events returns the system events for a change to a contact, with their payloads (docs/custom-events.md). The receiver
// is the contact after the change.
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

// EventPayload returns the payload of a system event about a contact or topic: the members that all such events have,
// plus the given additional members.
func (c *Contact) EventPayload(more map[string]any) map[string]any {
	p := map[string]any{"contact_id": c.ID, "email": c.Address, "first_name": c.FirstName, "last_name": c.LastName,
		"unsubscribed": c.Unsubscribed}
	maps.Copy(p, more)
	return p
}

// EmailPayload returns the payload of a system event about an email, before the data of the email is looked up and
// added. The payload contains the ids and the given additional members. If the email is not part of a broadcast,
// broadcastID must be "".
func EmailPayload(emailID, broadcastID string, more map[string]any) map[string]any {
	p := map[string]any{"email_id": emailID}
	if broadcastID != "" {
		p["broadcast_id"] = broadcastID
	}
	maps.Copy(p, more)
	return p
}
