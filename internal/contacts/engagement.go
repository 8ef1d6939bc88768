package contacts

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
)

// Mailed notes that contacts of a team are sent an email each, by a broadcast or an automation.
func (s *Service) Mailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	if len(contactIDs) > 0 {
		countMailed(ctx, tx, teamID, slices.Sorted(slices.Values(contactIDs)))
	}
}

// Recorded notes of contacts that they opened an email or followed a link. What programs did is left out. It implements
// events.Listener; these events are recorded many at a time, and no client waits for them.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	for i := range all {
		e := &all[i]
		switch d := e.Data.(type) {
		case *events.Open:
			if !d.Is {
				countOpened(ctx, tx, e.TeamID, strings.ToLower(e.Recipient), e.At)
			}
		case *events.Click:
			if !d.Is {
				countClicked(ctx, tx, e.TeamID, strings.ToLower(e.Recipient), e.At)
			}
		}
	}
	return nil
}
