package suppressions

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const columns = `id, team_id, address, origin, source_id, created_at`

func scan(r db.Row) (s Suppression, err error) {
	var origin string
	var created int64
	err = r.Scan((*db.ID)(&s.ID), (*db.ID)(&s.TeamID), &s.Address, &origin, (*db.ID)(&s.SourceID), &created)
	s.Origin, s.CreatedAt = Origin(origin), db.Time(created)
	return s, err
}

func one(r db.Row) (Suppression, error) {
	s, err := scan(r)
	if errors.Is(err, db.ErrNoRows) {
		return s, fault.NotFoundf("Suppression not found")
	}
	if err != nil {
		return s, fmt.Errorf("read suppression: %w", err)
	}
	return s, nil
}

func insert(ctx context.Context, tx *db.Tx, s *Suppression) (added bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO suppressions (id, team_id, address, origin, source_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (team_id, address) DO NOTHING`,
		db.ID(s.ID), db.ID(s.TeamID), s.Address, string(s.Origin), db.ID(s.SourceID), s.CreatedAt.UnixMicro())
	if n > 0 {
		tx.Proof(`SELECT 1 FROM suppressions WHERE id = $1`, db.ID(s.ID))
	}
	return n > 0, err
}

func byID(ctx context.Context, r db.Reader, teamID, id string) (Suppression, error) {
	return one(r.QueryRow(ctx, `SELECT `+columns+` FROM suppressions WHERE id = $1 AND team_id = $2`, db.ID(id),
		db.ID(teamID)))
}

func byAddress(ctx context.Context, r db.Reader, teamID, address string) (Suppression, error) {
	return one(r.QueryRow(ctx, `SELECT `+columns+` FROM suppressions WHERE team_id = $1 AND address = $2`, db.ID(teamID),
		address))
}

// deleteByID deletes an entry and returns the deleted entry.
func deleteByID(ctx context.Context, tx *db.Tx, teamID, id string) (Suppression, error) {
	return one(tx.QueryRow(ctx, `DELETE FROM suppressions WHERE id = $1 AND team_id = $2 RETURNING `+columns,
		db.ID(id), db.ID(teamID)))
}

// selectList returns a query for all entries on a team's list, or for those with one origin. There is a separate index
// for each of the two queries.
func selectList(teamID string, origin Origin) page.Select {
	s := page.Select{Text: `SELECT ` + columns + ` FROM suppressions WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
	if origin != "" {
		s.Text += ` AND origin = $2`
		s.Args = append(s.Args, string(origin))
	}
	return s
}

func list(ctx context.Context, r db.Reader, teamID string, origin Origin, p page.Page) ([]Suppression, bool, error) {
	return page.Query(ctx, r, selectList(teamID, origin), p, scan)
}

func listBatch(ctx context.Context, r db.Reader, teamID string, origin Origin, after string) (some []Suppression,
	next string, err error) {
	of := selectList(teamID, origin)
	return page.Part(ctx, r, of, of, after, batchRows, scan, func(s Suppression) string { return s.ID })
}

// selectOne is run for each email with one recipient that is sent.
var selectOne = db.NewRowQuery("", `SELECT `+columns+` FROM suppressions WHERE team_id = $1 AND address = $2`,
	"UUID TEXT")

func suppressedAmong(ctx context.Context, r db.Reader, teamID string, addresses []string,
	found map[string]Suppression) error {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM suppressions WHERE team_id = $1 AND address = ANY($2)`,
		db.ID(teamID), addresses)
	all, err := db.Collect(rows, err, scan)
	for _, s := range all {
		found[s.Address] = s
	}
	return err
}

// insertAll queues the insertion of entries that no email has caused. Addresses that another
// transaction has just added keep their entries.
func insertAll(ctx context.Context, tx *db.Tx, teamID string, all []Suppression) {
	if len(all) == 0 {
		return
	}
	var ids []db.ID
	var addresses, origins []string
	var created []int64
	for _, s := range all {
		ids, addresses, origins = append(ids, db.ID(s.ID)), append(addresses, s.Address), append(origins, string(s.Origin))
		created = append(created, s.CreatedAt.UnixMicro())
	}
	tx.QueueRows(ctx, `suppressions (id, team_id, address, origin, source_id, created_at)`,
		`ON CONFLICT (team_id, address) DO NOTHING`, ids, db.ID(teamID), addresses, origins, db.ID(""), created)
}
