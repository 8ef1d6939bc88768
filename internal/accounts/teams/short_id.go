package teams

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// shortIDs is the number of teams whose short ids a node remembers.
const shortIDs = 100_000

// newShortID returns a short id that no team has: a number from 1 to 2^31 - 1. A short id stands for the team in tokens
// whose length is limited, such as return paths, and never changes. If another transaction chooses the same number at
// the same time, the unique index refuses one of the two teams.
func newShortID(ctx context.Context, tx *db.Tx) (uint32, error) {
	const tries = 20
	for range tries {
		short := 1 + uint32(rand.Int32N(1<<31-1))
		_, err := teamOfShortID(ctx, tx.Reader, short)
		if fault.KindOf(err) == fault.NotFound {
			return short, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%d random short ids for a new team are all taken", tries)
}

// ShortID returns the short id of a team, or a NotFound fault if the team does not exist.
func (s *Service) ShortID(ctx context.Context, teamID string) (uint32, error) {
	if short, ok := s.shorts.Get(teamID); ok {
		return short, nil
	}
	short, err := shortIDOf(ctx, s.DB.Reader, teamID)
	if err == nil {
		s.shorts.Add(teamID, short)
	}
	return short, err
}

// OfShortID returns the id of the team with a short id, or a NotFound fault. The team may have been deleted.
func (s *Service) OfShortID(ctx context.Context, short uint32) (teamID string, err error) {
	if teamID, ok := s.longs.Get(short); ok {
		return teamID, nil
	}
	teamID, err = teamOfShortID(ctx, s.DB.Reader, short)
	if err == nil {
		s.longs.Add(short, teamID)
	}
	return teamID, err
}
