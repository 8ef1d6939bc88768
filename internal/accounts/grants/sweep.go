package grants

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	unusedFor  = 30 * 24 * time.Hour // after which a client that was never granted anything goes away
	unusedMax  = 2000                // such clients that are kept at most
	codeKept   = time.Hour           // after its end, so that its second use is noticed
	sweepBatch = 500
)

// Sweep ends the grants whose clients have not renewed their tokens, deletes old codes and the clients that were never
// used, and rotates the signing keys. It is to be called each hour.
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
