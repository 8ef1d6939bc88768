package contacts

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// RecordMailed notes that contacts of a team are sent an email each, by a broadcast or an automation.
func (s *Service) RecordMailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	if len(contactIDs) > 0 {
		countMailed(ctx, tx, teamID, slices.Sorted(slices.Values(contactIDs)))
	}
}

// responses are what somebody did with emails, and when last.
type responses struct {
	opened, clicked     int64
	openedAt, clickedAt time.Time // zero if never
}

// add adds what else was done.
func (a *responses) add(more *responses) {
	a.opened, a.openedAt = a.opened+more.opened, latest(a.openedAt, more.openedAt)
	a.clicked, a.clickedAt = a.clicked+more.clicked, latest(a.clickedAt, more.clickedAt)
}

// responder is who answered an email: the contact that it was entered for, "" if for none, and the address that it was
// sent to, in the form in which addresses are stored.
type responder struct{ contactID, address string }

// Recorded notes of contacts that they opened an email or followed a link: of the contact that the email was entered
// for, under whatever address, and of the one with the address if there is no such contact. What programs did is left
// out. It implements events.Listener; these events are recorded many at a time, and no client waits for them, so each
// team's contacts are looked up at once, and only what concerns one is written.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	byTeam := map[string]map[responder]*responses{}
	for i := range all {
		e := &all[i]
		var did responses
		switch d := e.Data.(type) {
		case *events.Open:
			if !d.Is {
				did = responses{opened: 1, openedAt: e.At}
			}
		case *events.Click:
			if !d.Is {
				did = responses{clicked: 1, clickedAt: e.At}
			}
		}
		if did == (responses{}) {
			continue
		}
		who := responder{contactID: e.ContactID}
		if a, err := message.ParseAddress(e.Recipient); err == nil {
			who.address = a.Key()
		}
		if byTeam[e.TeamID] == nil {
			byTeam[e.TeamID] = map[responder]*responses{}
		}
		if byTeam[e.TeamID][who] == nil {
			byTeam[e.TeamID][who] = &responses{}
		}
		byTeam[e.TeamID][who].add(&did)
	}
	for _, teamID := range slices.Sorted(maps.Keys(byTeam)) {
		byContact, err := responsesByContact(ctx, tx.Reader, teamID, byTeam[teamID])
		if err != nil {
			return err
		}
		// In the order of the contacts' ids, as in countMailed, so that two transactions do not wait for each other.
		for _, contactID := range slices.Sorted(maps.Keys(byContact)) {
			countResponses(ctx, tx, teamID, contactID, byContact[contactID])
		}
	}
	return nil
}

// responsesByContact returns what was done by the ids of the contacts that did it. What no contact did is left out.
func responsesByContact(ctx context.Context, r db.Reader, teamID string, did map[responder]*responses) (map[string]*responses,
	error) {
	var ids, addresses []string
	for who := range did {
		if who.contactID != "" {
			ids = append(ids, who.contactID)
		}
	}
	exists, err := existing(ctx, r, teamID, ids)
	if err != nil {
		return nil, err
	}
	for who := range did {
		if !exists[who.contactID] {
			addresses = append(addresses, who.address)
		}
	}
	byAddress, err := contactsWith(ctx, r, teamID, addresses)
	if err != nil {
		return nil, err
	}
	all := map[string]*responses{}
	for who, some := range did {
		contactID := who.contactID
		if !exists[contactID] {
			contactID = byAddress[who.address]
		}
		if contactID == "" {
			continue
		}
		if all[contactID] == nil {
			all[contactID] = &responses{}
		}
		all[contactID].add(some)
	}
	return all, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Lookup returns which of some contacts the team has, and the ids of its contacts with some addresses, in the form in
// which addresses are stored, by address.
func (s *Service) Lookup(ctx context.Context, r db.Reader, teamID string, contactIDs, addresses []string) (
	ids map[string]bool, byAddress map[string]string, err error) {
	if ids, err = existing(ctx, r, teamID, contactIDs); err != nil {
		return nil, nil, err
	}
	byAddress, err = contactsWith(ctx, r, teamID, addresses)
	return ids, byAddress, err
}
