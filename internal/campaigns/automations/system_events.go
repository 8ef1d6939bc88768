package automations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// systemEvent is a system event for a contact. The contact is identified by its id, its address or both.
type systemEvent struct {
	name      string
	contactID string
	address   string
	at        time.Time
	payload   map[string]any

	of *events.Event // recorded event about an email; nil for contact events
}

// Recorded delivers recorded events to automations as system events, and ends the runs of deleted contacts. Recorded
// ignores opens and clicks by bots, and events about emails to addresses that belong to no contact. Recorded implements
// events.Listener. If a team's automations use none of the events, Recorded makes only one query for all of the team's
// events.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	byTeam := map[string][]systemEvent{}
	for i := range all {
		e := &all[i]
		if e.Type == events.ContactDeleted {
			if c, ok := e.Data.(*events.Contact); ok {
				if err := s.EndContact(ctx, tx, e.TeamID, c.ID); err != nil {
					return err
				}
			}
			continue
		}
		if some := systemEventsOf(e); len(some) > 0 {
			byTeam[e.TeamID] = append(byTeam[e.TeamID], some...)
		}
	}
	for _, teamID := range slices.Sorted(maps.Keys(byTeam)) {
		if err := s.deliverSystemEvents(ctx, tx, teamID, byTeam[teamID]); err != nil {
			return fmt.Errorf("deliver system events to automations: %w", err)
		}
	}
	return nil
}

// systemEventsOf converts a recorded event into system events.
func systemEventsOf(e *events.Event) (all []systemEvent) {
	if e.ForwardRule != "" {
		return nil
	}
	switch d := e.Data.(type) {
	case *events.Contact:
		return contactEvents(e, d)
	case *events.Open:
		if d.Is {
			return nil
		}
		return []systemEvent{emailEvent(e, engine.EmailOpened, nil)}
	case *events.Click:
		if d.Is {
			return nil
		}
		return []systemEvent{emailEvent(e, engine.EmailClicked, map[string]any{"link": d.Link})}
	case *events.Bounce:
		if e.Type != events.EmailBounced {
			return nil
		}
		return []systemEvent{emailEvent(e, engine.EmailBounced, map[string]any{"type": d.Type, "sub_type": d.SubType})}
	case *events.Complaint:
		return []systemEvent{emailEvent(e, engine.EmailComplained, nil)}
	}
	return nil
}

func emailEvent(e *events.Event, name string, more map[string]any) systemEvent {
	h := systemEvent{name: name, contactID: e.ContactID, at: e.At,
		payload: engine.EmailPayload(e.EmailID, e.BroadcastID, more), of: e}
	if a, err := message.ParseAddress(e.Recipient); err == nil {
		h.address = a.Key()
	}
	return h
}

func contactEvents(e *events.Event, c *events.Contact) (all []systemEvent) {
	if e.Type != events.ContactCreated && e.Type != events.ContactUpdated {
		return nil
	}
	of := engine.Contact{ID: c.ID, Address: c.Email, FirstName: c.FirstName, LastName: c.LastName,
		Unsubscribed: c.Unsubscribed}
	h := engine.ContactChange{Created: e.Type == events.ContactCreated, Switched: c.Switched, Topics: map[string]bool{}}
	for _, t := range c.Topics {
		h.Topics[t.TopicID] = t.In
	}
	for _, s := range of.Events(h, e.At) {
		all = append(all, systemEvent{name: s.Name, contactID: c.ID, at: s.At, payload: s.Payload})
	}
	return all
}

// deliverSystemEvents delivers a team's system events to the team's automations.
func (s *Service) deliverSystemEvents(ctx context.Context, tx *db.Tx, teamID string, all []systemEvent) error {
	names := map[string]bool{}
	for i := range all {
		names[all[i].name] = true
	}
	begins, awaited, err := lookUpEvents(ctx, tx.Reader, teamID, slices.Sorted(maps.Keys(names)))
	if err != nil || len(begins) == 0 && len(awaited) == 0 {
		return err
	}
	used := func(h *systemEvent) bool { return len(begins[h.name]) > 0 || awaited[h.name] }
	if !slices.ContainsFunc(all, func(h systemEvent) bool { return used(&h) }) {
		return nil
	}
	if err := s.resolveContacts(ctx, tx.Reader, teamID, all); err != nil {
		return err
	}
	// Events are sorted by contact id to prevent deadlocks between transactions that deliver system events.
	slices.SortStableFunc(all, func(a, b systemEvent) int { return strings.Compare(a.contactID, b.contactID) })
	var some []occurrence
	for i := range all {
		h := &all[i]
		// After an event that automations use, runs may wait for any later event of the contact.
		follows := len(some) > 0 && some[len(some)-1].ContactID == h.contactID
		if h.contactID == "" || !used(h) && !follows {
			continue
		}
		if err := h.addSubject(ctx, tx.Reader, teamID); err != nil {
			return err
		}
		text, err := json.Marshal(h.payload, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode the payload of %s: %w", h.name, err)
		}
		some = append(some, occurrence{customevents.Occurrence{TeamID: teamID, Name: h.name, ContactID: h.contactID,
			Payload: string(text), At: h.at}, engine.Event{Name: h.name, Payload: h.payload, At: h.at}})
	}
	return s.deliverAll(ctx, tx, some, begins, awaited, immediate)
}

// resolveContacts sets the contact ids of email events. The contact for an email event is the contact for which the
// email was enqueued, even if that contact's address has changed. If that contact no longer exists, the contact with
// the recipient's address is used. If neither contact exists, the contact id is "".
func (s *Service) resolveContacts(ctx context.Context, r db.Reader, teamID string, all []systemEvent) error {
	var ids, addresses []string
	for i := range all {
		if all[i].of == nil {
			continue // a contact event already has its contact, which the recording transaction has locked
		}
		if all[i].contactID != "" {
			ids = append(ids, all[i].contactID)
		}
		if all[i].address != "" {
			addresses = append(addresses, all[i].address)
		}
	}
	known, byAddress, err := s.p.Contacts.Lookup(ctx, r, teamID, ids, addresses)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].of != nil && !known[all[i].contactID] {
			all[i].contactID = byAddress[all[i].address]
		}
	}
	return nil
}

// addSubject adds the email's subject and template id to the payload of an email event, if the email still exists.
func (h *systemEvent) addSubject(ctx context.Context, r db.Reader, teamID string) error {
	if h.of == nil {
		return nil
	}
	read := h.of.Email
	if read == nil {
		read = func() (*events.Email, error) { return emails.EventSummary(ctx, r, teamID, h.of.EmailID) }
	}
	e, err := read()
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	h.payload["subject"] = e.Subject
	if e.TemplateID != "" {
		h.payload["template_id"] = e.TemplateID
	}
	return nil
}
