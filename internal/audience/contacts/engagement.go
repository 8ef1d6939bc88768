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

// Mailed notes that contacts of a team are sent an email each, by a broadcast or an automation.
func (s *Service) Mailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	if len(contactIDs) > 0 {
		countMailed(ctx, tx, teamID, slices.Sorted(slices.Values(contactIDs)))
	}
}

// answers are what somebody did with emails, and when last.
type answers struct {
	opened, clicked     int64
	openedAt, clickedAt time.Time // zero if never
}

// add adds what else was done.
func (a *answers) add(more *answers) {
	a.opened, a.openedAt = a.opened+more.opened, later(a.openedAt, more.openedAt)
	a.clicked, a.clickedAt = a.clicked+more.clicked, later(a.clickedAt, more.clickedAt)
}

// somebody is who answered an email: the contact that it was entered for, "" if for none, and the address that it was
// sent to, in the form in which addresses are stored.
type somebody struct{ contactID, address string }

// Recorded notes of contacts that they opened an email or followed a link: of the contact that the email was entered
// for, under whatever address, and of the one with the address if there is no such contact. What programs did is left
// out. It implements events.Listener; these events are recorded many at a time, and no client waits for them, so each
// team's contacts are looked up at once, and only what concerns one is written.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	byTeam := map[string]map[somebody]*answers{}
	for i := range all {
		e := &all[i]
		var did answers
		switch d := e.Data.(type) {
		case *events.Open:
			if !d.Is {
				did = answers{opened: 1, openedAt: e.At}
			}
		case *events.Click:
			if !d.Is {
				did = answers{clicked: 1, clickedAt: e.At}
			}
		}
		if did == (answers{}) {
			continue
		}
		who := somebody{contactID: e.ContactID}
		if a, err := message.ParseAddress(e.Recipient); err == nil {
			who.address = a.Key()
		}
		if byTeam[e.TeamID] == nil {
			byTeam[e.TeamID] = map[somebody]*answers{}
		}
		if byTeam[e.TeamID][who] == nil {
			byTeam[e.TeamID][who] = &answers{}
		}
		byTeam[e.TeamID][who].add(&did)
	}
	for _, teamID := range slices.Sorted(maps.Keys(byTeam)) {
		byContact, err := contactsOf(ctx, tx.Reader, teamID, byTeam[teamID])
		if err != nil {
			return err
		}
		// In the order of the contacts' ids, as in countMailed, so that two transactions do not wait for each other.
		for _, contactID := range slices.Sorted(maps.Keys(byContact)) {
			countAnswers(ctx, tx, teamID, contactID, byContact[contactID])
		}
	}
	return nil
}

// contactsOf returns what was done by the ids of the contacts that did it. What no contact did is left out.
func contactsOf(ctx context.Context, r db.Reader, teamID string, did map[somebody]*answers) (map[string]*answers,
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
	all := map[string]*answers{}
	for who, some := range did {
		contactID := who.contactID
		if !exists[contactID] {
			contactID = byAddress[who.address]
		}
		if contactID == "" {
			continue
		}
		if all[contactID] == nil {
			all[contactID] = &answers{}
		}
		all[contactID].add(some)
	}
	return all, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Known returns which of some contacts the team has, and the ids of its contacts with some addresses, in the form in
// which addresses are stored, by address.
func (s *Service) Known(ctx context.Context, r db.Reader, teamID string, contactIDs, addresses []string) (
	ids map[string]bool, byAddress map[string]string, err error) {
	if ids, err = existing(ctx, r, teamID, contactIDs); err != nil {
		return nil, nil, err
	}
	byAddress, err = contactsWith(ctx, r, teamID, addresses)
	return ids, byAddress, err
}
