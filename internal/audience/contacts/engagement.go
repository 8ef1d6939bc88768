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

// RecordMailed records that a broadcast or automation is sending one email to each of the given contacts.
func (s *Service) RecordMailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	if len(contactIDs) > 0 {
		countMailed(ctx, tx, teamID, slices.Sorted(slices.Values(contactIDs)))
	}
}

// responses counts one contact's opens and clicks.
type responses struct {
	opened, clicked     int64
	openedAt, clickedAt time.Time // times of the last open and the last click; zero if there was none
}

// add adds another contact's counts and keeps the later of the times.
func (a *responses) add(more *responses) {
	a.opened, a.openedAt = a.opened+more.opened, latest(a.openedAt, more.openedAt)
	a.clicked, a.clickedAt = a.clicked+more.clicked, latest(a.clickedAt, more.clickedAt)
}

// responder identifies who opened or clicked an email: the contact that the email was sent to ("" if none), and the
// recipient's normalized address.
type responder struct{ contactID, address string }

// Recorded implements events.Listener and records opens and clicks as contact engagement. An event counts for the
// contact that the email was sent to, even if that contact's address has changed. If there is no such contact, the
// event counts for the contact that has the recipient's address. Opens and clicks by bots do not count. Events arrive
// in batches, so a team's contacts are looked up with one query per batch.
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
		// The rows are written in order of contact id, as in countMailed, so that two transactions cannot deadlock.
		for _, contactID := range slices.Sorted(maps.Keys(byContact)) {
			countResponses(ctx, tx, teamID, contactID, byContact[contactID])
		}
	}
	return nil
}

// responsesByContact groups responses by contact id. Responses without a matching contact are left out.
func responsesByContact(ctx context.Context, r db.Reader, teamID string,
	did map[responder]*responses) (map[string]*responses,
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

// Lookup returns those of the given ids that belong to contacts of the team. It also returns the ids of the contacts
// that have the given normalized addresses.
func (s *Service) Lookup(ctx context.Context, r db.Reader, teamID string, contactIDs, addresses []string) (
	ids map[string]bool, byAddress map[string]string, err error) {
	if ids, err = existing(ctx, r, teamID, contactIDs); err != nil {
		return nil, nil, err
	}
	byAddress, err = contactsWith(ctx, r, teamID, addresses)
	return ids, byAddress, err
}
