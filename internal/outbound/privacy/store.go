package privacy

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const columns = `id, team_id, contact_id, address, refusals, dry_run, state, pass, done, report, created_at,
	completed_at`

func scan(r db.Row) (e Erasure, err error) {
	var report string
	var created, completed int64
	err = r.Scan((*db.ID)(&e.ID), (*db.ID)(&e.TeamID), (*db.ID)(&e.ContactID), &e.address, &e.Refusals, &e.DryRun,
		&e.State, &e.pass, &e.done, &report, &created, &completed)
	if err != nil {
		return e, err
	}
	e.CreatedAt, e.CompletedAt = db.Time(created), db.Time(completed)
	if e.Report, err = db.DecodeList[EraserReport](report); err != nil {
		return e, fmt.Errorf("read the report of erasure %s: %w", e.ID, err)
	}
	return e, nil
}

func one(r db.Row) (Erasure, error) {
	e, err := scan(r)
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Erasure not found")
	}
	if err != nil {
		return e, fmt.Errorf("read an erasure: %w", err)
	}
	return e, nil
}

func get(ctx context.Context, r db.Reader, teamID, erasureID string) (Erasure, error) {
	return one(r.QueryRow(ctx, `SELECT `+columns+` FROM erasures WHERE id = $1 AND team_id = $2`, db.ID(erasureID),
		db.ID(teamID)))
}

// activeErasure returns the erasure in progress for an address.
func activeErasure(ctx context.Context, r db.Reader, teamID, address string) (Erasure, error) {
	return one(r.QueryRow(ctx, `SELECT `+columns+` FROM erasures WHERE team_id = $1 AND address = $2 AND address <> ''`,
		db.ID(teamID), address))
}

func countActive(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM erasures WHERE team_id = $1 AND address <> '' LIMIT $2) x`,
		db.ID(teamID), maxActive).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count erasures: %w", err)
	}
	return n, nil
}

func list(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Erasure, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + columns + ` FROM erasures WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}, p, scan)
}

// insertErasure returns false if an erasure of the address is already in progress.
func insertErasure(ctx context.Context, tx *db.Tx, e *Erasure) (inserted bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO erasures (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, '', $8, 0)
		ON CONFLICT (team_id, address) WHERE address <> '' DO NOTHING`, db.ID(e.ID), db.ID(e.TeamID), db.ID(e.ContactID),
		e.address, e.Refusals, e.DryRun, string(e.State), e.CreatedAt.UnixMicro())
	if err != nil {
		return false, fmt.Errorf("insert an erasure: %w", err)
	}
	if n > 0 {
		tx.Proof(`SELECT 1 FROM erasures WHERE id = $1`, db.ID(e.ID))
	}
	return n > 0, nil
}

// errLost means that another worker has continued the erasure.
var errLost = errors.New("another worker has continued the erasure")

// save replaces the stored progress of an erasure with the progress in e. If the stored progress no longer matches the
// parameter before, save fails the transaction with errLost.
func save(ctx context.Context, tx *db.Tx, before, e *Erasure) error {
	report, err := db.EncodeList(e.Report)
	if err != nil {
		return fmt.Errorf("encode the report of an erasure: %w", err)
	}
	tx.QueueOne(ctx, errLost, `UPDATE erasures SET address = $3, state = $4, pass = $5, done = $6, report = $7,
		completed_at = $8 WHERE id = $1 AND team_id = $2 AND pass = $9 AND done = $10`, db.ID(e.ID), db.ID(e.TeamID),
		e.address,
		string(e.State), e.pass, e.done, report, db.Micros(e.CompletedAt), before.pass, before.done)
	return nil
}

// deleteEnded deletes up to limit ended erasures whose ids are below the given id.
func deleteEnded(ctx context.Context, tx *db.Tx, before string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM erasures WHERE id IN (SELECT id FROM erasures WHERE id < $1 AND address = ''
		ORDER BY id LIMIT $2)`, db.ID(before), limit)
}

func deleteOfTeam(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM erasures WHERE id IN (SELECT id FROM erasures WHERE team_id = $1 ORDER BY id
		LIMIT $2)`, db.ID(teamID), limit)
}
