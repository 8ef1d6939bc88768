package imports

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

const importColumns = `id, team_id, status, filename, size, position, lines, created, updated, skipped, failed, kept,
	reason, created_at, started_at, finished_at`

func (i *Import) dest(created, started, finished *int64, more ...any) []any {
	return append([]any{(*db.ID)(&i.ID), (*db.ID)(&i.TeamID), &i.Status, &i.Filename, &i.Size, &i.Position, &i.lines,
		&i.Created, &i.Updated, &i.Skipped, &i.Failed, &i.Kept, &i.Reason, created, started, finished}, more...)
}

func scanImport(r db.Row, more ...any) (i Import, err error) {
	var created, started, finished int64
	err = r.Scan(i.dest(&created, &started, &finished, more...)...)
	i.CreatedAt, i.StartedAt, i.FinishedAt = db.Time(created), db.Time(started), db.Time(finished)
	return i, err
}

func importByID(ctx context.Context, r db.Reader, teamID, importID string) (Import, error) {
	if !id.Valid(importID) {
		return Import{}, notFound()
	}
	i, err := scanImport(r.QueryRow(ctx, `SELECT `+importColumns+` FROM contact_imports WHERE id = $1 AND team_id = $2`,
		db.ID(importID), db.ID(teamID)))
	return requireImport(i, err)
}

func notFound() error { return fault.NotFoundf("Contact import not found") }

func requireImport(i Import, err error) (Import, error) {
	if errors.Is(err, db.ErrNoRows) {
		return i, notFound()
	}
	if err != nil {
		return i, fmt.Errorf("read import: %w", err)
	}
	return i, nil
}

// planOf returns an import and its plan.
func planOf(ctx context.Context, r db.Reader, teamID, importID string) (i Import, p plan, err error) {
	var text string
	i, err = scanImport(r.QueryRow(ctx, `SELECT `+importColumns+`, plan FROM contact_imports
		WHERE id = $1 AND team_id = $2`, db.ID(importID), db.ID(teamID)), &text)
	if i, err = requireImport(i, err); err != nil {
		return i, p, err
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return i, p, fmt.Errorf("read the plan of import %s: %w", importID, err)
	}
	return i, p, nil
}

func insertImport(ctx context.Context, tx *db.Tx, i *Import, p *plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the plan of an import: %w", err)
	}
	tx.Proof(`SELECT 1 FROM contact_imports WHERE id = $1`, db.ID(i.ID))
	tx.Queue(ctx, `INSERT INTO contact_imports (`+importColumns+`, plan)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, 0, '', $8, 0, 0, $9)`, db.ID(i.ID), db.ID(i.TeamID),
		string(i.Status), i.Filename, i.Size, i.Position, i.lines, i.CreatedAt.UnixMicro(), string(text))
	return nil
}

// listImports returns a page of a team's imports with the given status. If status is "", listImports returns imports of
// any status.
func listImports(ctx context.Context, r db.Reader, teamID string, status Status, p page.Page) ([]Import, bool, error) {
	s := page.Select{Text: `SELECT ` + importColumns + ` FROM contact_imports WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
	if status != "" {
		s.Text += ` AND status = $2`
		s.Args = append(s.Args, string(status))
	}
	return page.Query(ctx, r, s, p, func(r db.Row) (Import, error) { return scanImport(r) })
}

// waiting returns how many of a team's imports have not ended, and the id of the oldest of these, or "" if there are
// none. waiting counts at most limit queued imports and at most limit running imports.
func waiting(ctx context.Context, r db.Reader, teamID string, limit int) (n int, first string, err error) {
	for _, status := range []Status{Queued, InProgress} {
		rows, err := r.Query(ctx, `SELECT id FROM contact_imports WHERE team_id = $1 AND status = $2 ORDER BY id LIMIT $3`,
			db.ID(teamID), string(status), limit)
		ids, err := db.Collect(rows, err, scanID)
		if err != nil {
			return 0, "", fmt.Errorf("look for imports that have not ended: %w", err)
		}
		n += len(ids)
		if len(ids) > 0 && (first == "" || ids[0] < first) {
			first = ids[0]
		}
	}
	return n, first, nil
}

func startImport(ctx context.Context, tx *db.Tx, i *Import) {
	tx.Queue(ctx, `UPDATE contact_imports SET status = $3, started_at = $4 WHERE id = $1 AND team_id = $2
		AND status = 'queued'`, db.ID(i.ID), db.ID(i.TeamID), string(InProgress), tx.Now().UnixMicro())
}

// advance queues a statement that stores an import's new position and counts after a batch. The parameter from is the
// position at which the batch began. If the import is no longer at this position, the transaction fails with errMoved.
func advance(ctx context.Context, tx *db.Tx, from int64, i *Import) {
	// If the stored position is already the new position, an earlier attempt has committed this batch.
	tx.Proof(`SELECT 1 FROM contact_imports WHERE id = $1 AND position >= $2`, db.ID(i.ID), i.Position)
	tx.QueueOne(ctx, errMoved, `UPDATE contact_imports SET position = $4, lines = $5, created = $6, updated = $7,
		skipped = $8, failed = $9, kept = $10, reason = '' WHERE id = $1 AND team_id = $2 AND position = $3
		AND status = 'in_progress'`, db.ID(i.ID), db.ID(i.TeamID), from, i.Position, i.lines, i.Created, i.Updated,
		i.Skipped, i.Failed, i.Kept)
}

// setHoldReason stores the reason why an import cannot continue for now, unless the import has ended.
func setHoldReason(ctx context.Context, tx *db.Tx, teamID, importID string) error {
	i, err := importByID(ctx, tx.Reader, teamID, importID)
	if fault.KindOf(err) == fault.NotFound || err == nil && i.Done() {
		return nil
	}
	if err != nil {
		return err
	}
	tx.Queue(ctx, `UPDATE contact_imports SET reason = $3 WHERE id = $1 AND team_id = $2 AND finished_at = 0`,
		db.ID(importID), db.ID(teamID), fmt.Sprintf(holdReason, i.lines))
	return nil
}

// end stores an import's final status, or returns false if the import has already ended.
func end(ctx context.Context, tx *db.Tx, teamID, importID string, status Status, reason string) (bool, error) {
	now := tx.Now().UnixMicro()
	tx.Proof(`SELECT 1 FROM contact_imports WHERE id = $1 AND finished_at = $2`, db.ID(importID), now)
	n, err := tx.Exec(ctx, `UPDATE contact_imports SET status = $3, reason = $4, finished_at = $5
		WHERE id = $1 AND team_id = $2 AND finished_at = 0`, db.ID(importID), db.ID(teamID), string(status),
		db.Text(reason, 1000), now)
	if err != nil {
		return false, fmt.Errorf("end an import: %w", err)
	}
	return n > 0, nil
}

// failures holds failed rows as columns, the form that db.Tx.QueueRows accepts.
type failures struct {
	lines   []int64
	reasons []string
	fields  []string
}

func (f *failures) add(line int64, reason string, fields []string) {
	text, err := db.EncodeList(fields)
	if err != nil || len(text) > maxKeptRow {
		text = ""
	}
	f.lines, f.reasons = append(f.lines, line), append(f.reasons, db.Text(reason, 1000))
	f.fields = append(f.fields, text)
}

func insertFailures(ctx context.Context, tx *db.Tx, i *Import, f *failures, kept int) {
	if kept > 0 {
		tx.QueueRows(ctx, `contact_import_failures (import_id, line, team_id, reason, fields)`, "", db.ID(i.ID),
			f.lines[:kept], db.ID(i.TeamID), f.reasons[:kept], f.fields[:kept])
	}
}

// Failure is a row in a file that could not be imported.
type Failure struct {
	Line   int64
	Reason string
	Fields []string // the row's fields; nil if they were too long to be stored
}

// listFailures returns a page of the failed rows after the given line, in the order of the file.
func listFailures(ctx context.Context, r db.Reader, teamID, importID string, after int64, limit int) ([]Failure,
	error) {
	rows, err := r.Query(ctx, `SELECT line, reason, fields FROM contact_import_failures WHERE import_id = $1
		AND line > $2 AND team_id = $3 ORDER BY line LIMIT $4`, db.ID(importID), after, db.ID(teamID), limit)
	return db.Collect(rows, err, func(r db.Row) (f Failure, err error) {
		var text string
		if err = r.Scan(&f.Line, &f.Reason, &text); err == nil {
			f.Fields, err = db.DecodeList[string](text)
		}
		return f, err
	})
}

// unfinished returns those of the given ids that belong to imports that have not ended.
func unfinished(ctx context.Context, r db.Reader, ids []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM contact_imports WHERE id = ANY($1) AND finished_at = 0`, db.IDs(ids))
	return db.Collect(rows, err, scanID)
}

// endedBefore returns up to limit imports that ended before the given time.
func endedBefore(ctx context.Context, r db.Reader, before int64, limit int) ([]Import, error) {
	rows, err := r.Query(ctx, `SELECT `+importColumns+` FROM contact_imports WHERE finished_at < $1 AND finished_at > 0
		ORDER BY finished_at LIMIT $2`, before, limit)
	return db.Collect(rows, err, func(r db.Row) (Import, error) { return scanImport(r) })
}

const eraseRows = 500 // rows deleted per transaction

// deleteFailures deletes a batch of an import's failed rows.
func deleteFailures(ctx context.Context, tx *db.Tx, teamID, importID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM contact_import_failures WHERE import_id = $1 AND team_id = $3 AND line <=
		(SELECT MAX(line) FROM (SELECT line FROM contact_import_failures WHERE import_id = $1 ORDER BY line LIMIT $2) x)`,
		db.ID(importID), eraseRows, db.ID(teamID))
}

// importsOf returns up to eraseRows ids of a team's imports, in order, starting after the given id.
func importsOf(ctx context.Context, r db.Reader, teamID, after string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM contact_imports WHERE team_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
		db.ID(teamID), db.OrNoID(after), eraseRows)
	return db.Collect(rows, err, scanID)
}

func deleteImport(ctx context.Context, tx *db.Tx, teamID, importID string) {
	tx.Queue(ctx, `DELETE FROM contact_imports WHERE id = $1 AND team_id = $2`, db.ID(importID), db.ID(teamID))
}

// lastFailureLine reads the batch of failed rows after the given line and returns the line of its last row, or 0 if
// there are no more failed rows.
func lastFailureLine(ctx context.Context, r db.Reader, teamID, importID string, after int64) (line int64, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(MAX(line), 0) FROM (SELECT line FROM contact_import_failures
		WHERE import_id = $1 AND line > $2 AND team_id = $4 ORDER BY line LIMIT $3) x`, db.ID(importID), after, eraseRows,
		db.ID(teamID)).Scan(&line)
	return line, err
}

// failuresMatching returns an import's failed rows that are between two lines and may contain an address,
// given the address's pattern.
func failuresMatching(ctx context.Context, r db.Reader, teamID, importID, pattern string, after, upTo int64) ([]Failure,
	error) {
	rows, err := r.Query(ctx, `SELECT line, reason, fields FROM contact_import_failures WHERE import_id = $1 AND line > $2
		AND line <= $3 AND `+erasure.MayContain(4, "reason", "fields")+` AND team_id = $5 ORDER BY line`, db.ID(importID),
		after, upTo, pattern, db.ID(teamID))
	return db.Collect(rows, err, func(r db.Row) (f Failure, err error) {
		f.Fields = []string{""}
		err = r.Scan(&f.Line, &f.Reason, &f.Fields[0])
		return f, err
	})
}

func replaceFailure(ctx context.Context, tx *db.Tx, teamID, importID string, line int64, reason, fields string) {
	tx.Queue(ctx, `UPDATE contact_import_failures SET reason = $3, fields = $4 WHERE import_id = $1 AND line = $2
		AND team_id = $5`, db.ID(importID), line, reason, fields, db.ID(teamID))
}

func scanID(r db.Row) (id string, err error) {
	err = r.Scan((*db.ID)(&id))
	return id, err
}

// ErasableTexts are the texts of imports in which an erasure replaces an address.
var ErasableTexts = erasure.Texts{Kind: "names of imported files in which it was replaced", Table: "contact_imports",
	Columns: []string{"filename"}}
