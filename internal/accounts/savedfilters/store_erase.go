package savedfilters

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// erasable is a saved filter with its place in the order of the index.
type erasable struct {
	Filter
	userID string
}

// EraseAddress deletes the saved filters that search for an address or have it in their name, for the teams in scope.
// A filter without the address would find other rows than its name says.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		for at := (erasable{userID: string(db.NoID)}); ; {
			all, err := after(ctx, d.Reader, teamID, &at)
			if err == nil && len(all) > 0 {
				at = all[len(all)-1]
				err = eraseSome(ctx, d, teamID, a, all, scope.DryRun, &found)
			}
			if err != nil {
				return found, fmt.Errorf("erase an address in the saved filters of team %s: %w", teamID, err)
			}
			if len(all) < eraseRows {
				break
			}
		}
	}
	return found, nil
}

// eraseSome deletes those of the filters that contain the address.
func eraseSome(ctx context.Context, d *db.DB, teamID string, a erasure.Address, all []erasable, dry bool,
	found *erasure.Report) error {
	all = slices.DeleteFunc(all, func(f erasable) bool { return !f.contains(a) })
	if len(all) == 0 {
		return nil
	}
	if found.Add("saved filters", len(all)); dry {
		return nil
	}
	return d.Update(ctx, func(tx *db.Tx) error {
		for i := range all {
			tx.Queue(ctx, `DELETE FROM saved_filters WHERE id = $1 AND team_id = $2`, db.ID(all[i].ID), db.ID(teamID))
		}
		return nil
	})
}

// after returns the filters of a team that follow a filter in the order of the index, at most eraseRows.
func after(ctx context.Context, r db.Reader, teamID string, at *erasable) ([]erasable, error) {
	rows, err := r.Query(ctx, `SELECT user_id, `+columns+` FROM saved_filters WHERE team_id = $1
		AND (user_id, list, name) > ($2, $3, $4) ORDER BY user_id, list, name LIMIT $5`, db.ID(teamID), db.ID(at.userID),
		string(at.List), at.Name, eraseRows)
	return db.Collect(rows, err, func(r db.Row) (x erasable, err error) {
		var query string
		var created int64
		if err := r.Scan((*db.ID)(&x.userID), (*db.ID)(&x.ID), &x.List, &x.Name, &query, &created); err != nil {
			return x, err
		}
		x.Query, err = url.ParseQuery(query)
		return x, err
	})
}

// contains reports whether the filter's name or one of its values contains an address. The values are decoded, because
// the plus sign of an encoded space could be part of another address.
func (f *Filter) contains(a erasure.Address) bool {
	if a.In(f.Name) {
		return true
	}
	for _, values := range f.Query {
		if slices.ContainsFunc(values, a.In) {
			return true
		}
	}
	return false
}
