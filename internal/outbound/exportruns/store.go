package exportruns

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const columns = `id, list, filters, state, items, started_at, updated_at, oldest, reached`

func list(ctx context.Context, r db.Reader, teamID, userID string, since time.Time) ([]Run, error) {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM export_runs WHERE team_id = $1 AND user_id = $2
		AND started_at > $3 ORDER BY started_at DESC LIMIT $4`, db.ID(teamID), db.ID(userID), since.UnixMicro(), most)
	all, err := db.Collect(rows, err, func(r db.Row) (x Run, err error) {
		var state int16
		var started, updated, oldest, reached int64
		if err := r.Scan((*db.ID)(&x.ID), &x.List, &x.Filters, &state, &x.Items, &started, &updated, &oldest,
			&reached); err != nil {
			return x, err
		}
		x.StartedAt, x.UpdatedAt, x.Oldest, x.Reached = db.Time(started), db.Time(updated), db.Time(oldest),
			db.Time(reached)
		x.State, err = states.Name(state)
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("list exports: %w", err)
	}
	return all, nil
}

// micro returns a time in microseconds since 1970, or 0 for the zero time.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func insert(ctx context.Context, tx *db.Tx, teamID, userID string, x *Run) {
	tx.Proof(`SELECT 1 FROM export_runs WHERE id = $1`, db.ID(x.ID))
	tx.Queue(ctx, `INSERT INTO export_runs (team_id, user_id, `+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, db.ID(teamID), db.ID(userID), db.ID(x.ID), x.List, x.Filters,
		states.Number(x.State), x.Items, x.StartedAt.UnixMicro(), x.UpdatedAt.UnixMicro(), micro(x.Oldest),
		micro(x.Reached))
}

func update(ctx context.Context, tx *db.Tx, teamID, userID string, x *Run) {
	tx.Queue(ctx, `UPDATE export_runs SET state = $4, items = $5, updated_at = $6, reached = $7
		WHERE id = $1 AND team_id = $2 AND user_id = $3`, db.ID(x.ID), db.ID(teamID), db.ID(userID),
		states.Number(x.State), x.Items, x.UpdatedAt.UnixMicro(), micro(x.Reached))
}

// removeOld deletes the runs of a user in a team that began before a time, and those beyond the newest most.
func removeOld(ctx context.Context, tx *db.Tx, teamID, userID string, before time.Time) error {
	_, err := tx.Exec(ctx, `DELETE FROM export_runs WHERE team_id = $1 AND user_id = $2 AND (started_at < $3
		OR started_at < (SELECT x.started_at FROM export_runs x WHERE x.team_id = $1 AND x.user_id = $2
			ORDER BY x.started_at DESC LIMIT 1 OFFSET $4))`, db.ID(teamID), db.ID(userID), before.UnixMicro(), most-1)
	return err
}

func removeOf(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM export_runs WHERE team_id = $1 AND user_id = $2`, db.ID(teamID), db.ID(userID))
	return err
}

func removeSome(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM export_runs WHERE id IN (SELECT id FROM export_runs WHERE team_id = $1
		ORDER BY user_id LIMIT $2)`, db.ID(teamID), limit)
}
