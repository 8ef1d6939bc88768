package grants

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	unusedFor  = 30 * 24 * time.Hour // age at which an unused client is deleted
	unusedMax  = 2000                // maximum number of unused clients
	codeKept   = time.Hour           // how long an expired code is kept, to detect a second use
	sweepBatch = 500
)

// Sweep revokes grants whose clients did not renew their tokens, deletes old codes and unused clients, and rotates the
// signing keys. Sweep should be called once an hour.
func (s *Service) Sweep(ctx context.Context) error {
	if err := s.RotateKeys(ctx); err != nil {
		return err
	}
	now := s.DB.Now()
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return expireGrants(ctx, tx, now, sweepBatch) })
	if err != nil {
		return err
	}
	err = s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return deleteCodes(ctx, tx, now.Add(-codeKept),
			sweepBatch)
	})
	if err != nil {
		return err
	}
	before, err := unusedBefore(ctx, s.DB.Reader, now.Add(-unusedFor), unusedMax)
	if err != nil {
		return err
	}
	return s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteClients(ctx, tx, before, sweepBatch) })
}

// EraseTeam deletes the grants of a deleted team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseCodes(ctx, tx, teamID, sweepBatch) })
	if err != nil {
		return err
	}
	err = s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseUsage(ctx, tx, teamID, sweepBatch) })
	if err != nil {
		return err
	}
	return s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseGrants(ctx, tx, teamID, sweepBatch) })
}
