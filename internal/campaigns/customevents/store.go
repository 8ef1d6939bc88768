package customevents

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	nameIndex = "custom_events_name"
	eraseRows = 500 // maximum number of rows that one transaction deletes

	columns = `id, team_id, name, fields, created_at, updated_at`
)

func scan(r db.Row) (def Definition, err error) {
	var fields string
	var created, updated int64
	if err = r.Scan((*db.ID)(&def.ID), (*db.ID)(&def.TeamID), &def.Name, &fields, &created, &updated); err != nil {
		return def, err
	}
	def.CreatedAt, def.UpdatedAt = db.Time(created), db.Time(updated)
	if fields != "" {
		if err = json.Unmarshal([]byte(fields), &def.Schema); err != nil {
			err = fmt.Errorf("read the schema of event %s: %w", def.ID, err)
		}
	}
	return def, err
}

// encoded returns a schema as JSON for storage.
func (s Schema) encoded() (string, error) {
	if s == nil {
		return "", nil
	}
	text, err := json.Marshal(s, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode the schema of an event: %w", err)
	}
	return string(text), nil
}

func insert(ctx context.Context, tx *db.Tx, def *Definition) error {
	fields, err := def.Schema.encoded()
	if err != nil {
		return err
	}
	tx.Proof(`SELECT 1 FROM custom_events WHERE id = $1`, db.ID(def.ID))
	tx.Queue(ctx, `INSERT INTO custom_events (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6)`, db.ID(def.ID),
		db.ID(def.TeamID), def.Name, fields, def.CreatedAt.UnixMicro(), db.Micros(def.UpdatedAt))
	return nil
}

func get(ctx context.Context, r db.Reader, teamID, idOrName string) (Definition, error) {
	key, value := "name", any(idOrName)
	if id.Valid(idOrName) {
		key, value = "id", db.ID(idOrName)
	}
	def, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM custom_events WHERE team_id = $1 AND `+key+` = $2`,
		db.ID(teamID), value))
	if errors.Is(err, db.ErrNoRows) {
		return def, notFound()
	}
	if err != nil {
		return def, fmt.Errorf("read a custom event: %w", err)
	}
	return def, nil
}

// getIfDefined returns the definition of an event, or the zero Definition if the team has not defined the event.
func getIfDefined(ctx context.Context, r db.Reader, teamID, name string) (Definition, error) {
	def, err := get(ctx, r, teamID, name)
	if fault.KindOf(err) == fault.NotFound {
		return Definition{}, nil
	}
	return def, err
}

func notFound() error { return fault.NotFoundf("Event not found") }

func list(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Definition, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + columns + ` FROM custom_events WHERE team_id = $1`,
		ID: "id", Args: []any{db.ID(teamID)}}, p, scan)
}

func count(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM custom_events WHERE team_id = $1`, db.ID(teamID)).Scan(&n)
	if err != nil {
		err = fmt.Errorf("count custom events: %w", err)
	}
	return n, err
}

// update saves a definition. The transaction fails with a NotFound fault if the definition has been deleted.
func update(ctx context.Context, tx *db.Tx, def *Definition) error {
	fields, err := def.Schema.encoded()
	if err != nil {
		return err
	}
	tx.QueueOne(ctx, notFound(), `UPDATE custom_events SET fields = $3, updated_at = $4 WHERE id = $1 AND team_id = $2`,
		db.ID(def.ID), db.ID(def.TeamID), fields, def.UpdatedAt.UnixMicro())
	return nil
}

// remove deletes a definition. The transaction fails with a NotFound fault if the definition has already been deleted.
func remove(ctx context.Context, tx *db.Tx, def *Definition) {
	tx.QueueOne(ctx, notFound(), `DELETE FROM custom_events WHERE id = $1 AND team_id = $2`, db.ID(def.ID),
		db.ID(def.TeamID))
}

func erase(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM custom_events WHERE team_id = $1 AND id <= (SELECT id FROM
		(SELECT id FROM custom_events WHERE team_id = $1 ORDER BY id LIMIT $2) x ORDER BY id DESC LIMIT 1)`, db.ID(teamID),
		eraseRows)
}
