package contacts

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
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

// Recorded notes of contacts that they opened an email or followed a link. What programs did is left out. It implements
// events.Listener; these events are recorded many at a time, and no client waits for them, so each team's contacts are
// looked up at once, and only what concerns one is written.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	byTeam := map[string]map[string]*answers{}
	of := func(e *events.Event) *answers {
		addresses := byTeam[e.TeamID]
		if addresses == nil {
			addresses = map[string]*answers{}
			byTeam[e.TeamID] = addresses
		}
		address := strings.ToLower(e.Recipient)
		if addresses[address] == nil {
			addresses[address] = &answers{}
		}
		return addresses[address]
	}
	for i := range all {
		e := &all[i]
		switch d := e.Data.(type) {
		case *events.Open:
			if !d.Is {
				a := of(e)
				a.opened, a.openedAt = a.opened+1, later(a.openedAt, e.At)
			}
		case *events.Click:
			if !d.Is {
				a := of(e)
				a.clicked, a.clickedAt = a.clicked+1, later(a.clickedAt, e.At)
			}
		}
	}
	for _, teamID := range slices.Sorted(maps.Keys(byTeam)) {
		// In the order of the contacts' ids, as in countMailed, so that two transactions do not wait for each other.
		found, err := contactsWith(ctx, tx.Reader, teamID, slices.Collect(maps.Keys(byTeam[teamID])))
		if err != nil {
			return err
		}
		for _, c := range found {
			countAnswers(ctx, tx, teamID, c.id, byTeam[teamID][c.address])
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
