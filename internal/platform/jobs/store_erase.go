package jobs

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// EraseTeam deletes all of a team's jobs. If a deleted job is running, its worker cannot record an outcome. EraseTeam
// reads the whole queue once, in steps, because no index supports finding a team's jobs.
func (q *Queue) EraseTeam(ctx context.Context, teamID string) error {
	err := q.d.WalkIDs(ctx, "jobs", func(tx *db.Tx, after, upTo db.ID) error {
		_, err := tx.Exec(ctx, `DELETE FROM jobs WHERE id > $1 AND id <= $2 AND team_id = $3`, after, upTo, db.ID(teamID))
		return err
	})
	if err != nil {
		return fmt.Errorf("erase the jobs of team %s: %w", teamID, err)
	}
	return nil
}
