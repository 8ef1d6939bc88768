package savedfilters

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

const columns = `id, list, name, query, created_at`

func scan(r db.Row) (f Filter, err error) {
	var query string
	var created int64
	if err := r.Scan((*db.ID)(&f.ID), &f.List, &f.Name, &query, &created); err != nil {
		return f, err
	}
	f.CreatedAt = db.Time(created)
	if f.Query, err = url.ParseQuery(query); err != nil {
		return f, fmt.Errorf("read the saved filter %s: %w", f.ID, err)
	}
	return f, nil
}

func list(ctx context.Context, r db.Reader, teamID, userID string, of List) ([]Filter, error) {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM saved_filters WHERE team_id = $1 AND user_id = $2 AND list = $3
		ORDER BY name LIMIT $4`, db.ID(teamID), db.ID(userID), string(of), Max)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list saved filters: %w", err)
	}
	return all, nil
}

func count(ctx context.Context, r db.Reader, teamID, userID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM saved_filters WHERE team_id = $1 AND user_id = $2`, db.ID(teamID),
		db.ID(userID)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count saved filters: %w", err)
	}
	return n, nil
}

func get(ctx context.Context, r db.Reader, teamID, userID string, of List, filterID string) (Filter, error) {
	f, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM saved_filters WHERE id = $1 AND team_id = $2
		AND user_id = $3 AND list = $4`, db.ID(filterID), db.ID(teamID), db.ID(userID), string(of)))
	if errors.Is(err, db.ErrNoRows) {
		return f, fault.NotFoundf("Saved filter not found")
	}
	if err != nil {
		return f, fmt.Errorf("read a saved filter: %w", err)
	}
	return f, nil
}

// insert stores a filter, and reports whether the user had none with that name.
func insert(ctx context.Context, tx *db.Tx, teamID, userID string, f *Filter) (bool, error) {
	tx.Proof(`SELECT 1 FROM saved_filters WHERE id = $1`, db.ID(f.ID))
	n, err := tx.Exec(ctx, `INSERT INTO saved_filters (id, team_id, user_id, list, name, query, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (team_id, user_id, list, name) DO NOTHING`, db.ID(f.ID),
		db.ID(teamID), db.ID(userID), string(f.List), f.Name, f.Query.Encode(), f.CreatedAt.UnixMicro())
	if err != nil {
		return false, fmt.Errorf("save a filter: %w", err)
	}
	return n > 0, nil
}

func remove(ctx context.Context, tx *db.Tx, teamID, userID, filterID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM saved_filters WHERE id = $1 AND team_id = $2 AND user_id = $3`, db.ID(filterID),
		db.ID(teamID), db.ID(userID))
	return err
}

func removeOf(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM saved_filters WHERE team_id = $1 AND user_id = $2`, db.ID(teamID), db.ID(userID))
	return err
}

func removeSome(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM saved_filters WHERE id IN (SELECT id FROM saved_filters WHERE team_id = $1
		ORDER BY user_id LIMIT $2)`, db.ID(teamID), limit)
}
