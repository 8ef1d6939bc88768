package suppressions

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// EraseAddress deletes an address from the teams' suppression lists. EraseAddress records no events, because the
// webhook messages for these events would contain the address.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	const kind = "suppressions deleted"
	for teamIDs := range slices.Chunk(scope.Teams, eraseRows) {
		listed, err := teamsSuppressing(ctx, d.Reader, teamIDs, a.Key())
		if err != nil {
			return found, fmt.Errorf("find the teams that suppress an address: %w", err)
		}
		if len(listed) == 0 {
			continue
		}
		if found.Add(kind, len(listed)); scope.DryRun {
			continue
		}
		err = d.Update(ctx, func(tx *db.Tx) error {
			tx.Queue(ctx, `DELETE FROM suppressions WHERE team_id = ANY($1) AND address = $2`, db.IDs(listed), a.Key())
			return nil
		})
		if err != nil {
			return found, fmt.Errorf("erase a suppression: %w", err)
		}
	}
	return found, nil
}

// teamsSuppressing returns those of the given team ids whose teams have suppressed an address.
func teamsSuppressing(ctx context.Context, r db.Reader, teamIDs []string, address string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT team_id FROM suppressions WHERE team_id = ANY($1) AND address = $2`,
		db.IDs(teamIDs), address)
	return db.Collect(rows, err, func(r db.Row) (teamID string, err error) {
		err = r.Scan((*db.ID)(&teamID))
		return teamID, err
	})
}
