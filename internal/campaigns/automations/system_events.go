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

// happening is a system event of a contact, which is named by its id, its address or both.
type happening struct {
	name      string
	contactID string
	address   string
	at        time.Time
	payload   map[string]any

	of *events.Event // of the email, if it is of one
}

// Recorded gives what is recorded to automations, as system events, and ends the runs of contacts that are deleted. What
// programs opened or followed is left out, and so are emails to addresses that are no contacts. It implements
// events.Listener. Where no automation of a team is concerned, it costs one query for all events of the team.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	byTeam := map[string][]happening{}
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
		if some := happenings(e); len(some) > 0 {
			byTeam[e.TeamID] = append(byTeam[e.TeamID], some...)
		}
	}
	for _, teamID := range slices.Sorted(maps.Keys(byTeam)) {
		if err := s.tell(ctx, tx, teamID, byTeam[teamID]); err != nil {
			return fmt.Errorf("tell automations of what happened: %w", err)
		}
	}
	return nil
}

// happenings returns the system events that an event is.
func happenings(e *events.Event) (all []happening) {
	switch d := e.Data.(type) {
	case *events.Contact:
		return contactHappenings(e, d)
	case *events.Open:
		if d.Is {
			return nil
		}
		return []happening{ofEmail(e, engine.EmailOpened, nil)}
	case *events.Click:
		if d.Is {
			return nil
		}
		return []happening{ofEmail(e, engine.EmailClicked, map[string]any{"link": d.Link})}
	case *events.Bounce:
		if e.Type != events.EmailBounced {
			return nil
		}
		return []happening{ofEmail(e, engine.EmailBounced, map[string]any{"type": d.Type, "sub_type": d.SubType})}
	case *events.Complaint:
		return []happening{ofEmail(e, engine.EmailComplained, nil)}
	}
	return nil
}

func ofEmail(e *events.Event, name string, more map[string]any) happening {
	h := happening{name: name, contactID: e.ContactID, at: e.At,
		payload: engine.EmailPayload(e.EmailID, e.BroadcastID, more), of: e}
	if a, err := message.ParseAddress(e.Recipient); err == nil {
		h.address = a.Key()
	}
	return h
}

func contactHappenings(e *events.Event, c *events.Contact) (all []happening) {
	if e.Type != events.ContactCreated && e.Type != events.ContactUpdated {
		return nil
	}
	of := engine.Contact{ID: c.ID, Address: c.Email, FirstName: c.FirstName, LastName: c.LastName,
		Unsubscribed: c.Unsubscribed}
	h := engine.Happening{Created: e.Type == events.ContactCreated, Switched: c.Switched, Topics: map[string]bool{}}
	for _, t := range c.Topics {
		h.Topics[t.TopicID] = t.In
	}
	for _, s := range of.Events(h, e.At) {
		all = append(all, happening{name: s.Name, contactID: c.ID, at: s.At, payload: s.Payload})
	}
	return all
}

// tell gives system events of a team to its automations.
func (s *Service) tell(ctx context.Context, tx *db.Tx, teamID string, all []happening) error {
	names := map[string]bool{}
	for i := range all {
		names[all[i].name] = true
	}
	begins, awaited, err := eventsConcerned(ctx, tx.Reader, teamID, slices.Sorted(maps.Keys(names)))
	if err != nil || len(begins) == 0 && len(awaited) == 0 {
		return err
	}
	all = slices.DeleteFunc(all, func(h happening) bool { return len(begins[h.name]) == 0 && !awaited[h.name] })
	if err := s.identify(ctx, tx.Reader, teamID, all); err != nil {
		return err
	}
	// In the order of the contacts' ids, so that two transactions with events of many do not wait for each other.
	slices.SortStableFunc(all, func(a, b happening) int { return strings.Compare(a.contactID, b.contactID) })
	var some []occurrence
	for i := range all {
		h := &all[i]
		if h.contactID == "" {
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
	return s.spread(ctx, tx, some, begins, awaited, atOnce)
}

// identify sets the contacts of events: that which the email was entered for, under whatever address, or else the one
// with the address, "" if there is none.
func (s *Service) identify(ctx context.Context, r db.Reader, teamID string, all []happening) error {
	var ids, addresses []string
	for i := range all {
		if all[i].of == nil {
			continue // whoever records what happened to a contact holds it
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

// addSubject adds to the payload of an email's event what the email is about, if there still is one.
func (h *happening) addSubject(ctx context.Context, r db.Reader, teamID string) error {
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
