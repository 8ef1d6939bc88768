package contacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const propertyColumns = `p.id, p.team_id, p.name, p.type, p.fallback, p.has_fallback, p.created_at`

func scanProperty(r db.Row) (p Property, err error) {
	var fallback string
	var has bool
	var created int64
	err = r.Scan((*db.ID)(&p.ID), (*db.ID)(&p.TeamID), &p.Name, &p.Type, &fallback, &has, &created)
	if has {
		p.Fallback = scalar.Value{Type: p.Type, Text: fallback}
	}
	p.CreatedAt = db.Time(created)
	return p, err
}

func insertProperty(ctx context.Context, tx *db.Tx, p *Property) {
	tx.Proof(`SELECT 1 FROM contact_properties WHERE id = $1`, db.ID(p.ID))
	tx.Queue(ctx, `INSERT INTO contact_properties (id, team_id, name, type, fallback, has_fallback, created_at, deleted_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0)`, db.ID(p.ID), db.ID(p.TeamID), p.Name, string(p.Type), p.Fallback.Text,
		p.Fallback != scalar.Value{}, p.CreatedAt.UnixMicro())
}

func propertyByID(ctx context.Context, r db.Reader, teamID, propertyID string) (Property, error) {
	if !id.Valid(propertyID) {
		return Property{}, noProperty()
	}
	p, err := scanProperty(r.QueryRow(ctx, `SELECT `+propertyColumns+` FROM contact_properties p WHERE p.id = $1
		AND p.team_id = $2 AND p.deleted_at = 0`, db.ID(propertyID), db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return p, noProperty()
	}
	if err != nil {
		return p, fmt.Errorf("read property: %w", err)
	}
	return p, nil
}

func listProperties(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Property, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + propertyColumns + ` FROM contact_properties p
		WHERE p.team_id = $1 AND p.deleted_at = 0`, ID: "p.id", Args: []any{db.ID(teamID)}}, p, scanProperty)
}

// propertiesNamed returns the team's properties that have one of the given names, or all properties if names is nil.
func propertiesNamed(ctx context.Context, r db.Reader, teamID string, names []string) ([]Property, error) {
	text, args := `SELECT `+propertyColumns+` FROM contact_properties p WHERE p.team_id = $1 AND p.deleted_at = 0`,
		[]any{db.ID(teamID)}
	if names != nil {
		text, args = text+` AND p.name = ANY($2)`, append(args, names)
	}
	rows, err := r.Query(ctx, text, args...)
	all, err := db.Collect(rows, err, scanProperty)
	if err != nil {
		return nil, fmt.Errorf("read properties of contacts: %w", err)
	}
	return all, nil
}

func countProperties(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM contact_properties WHERE team_id = $1 AND deleted_at = 0`,
		db.ID(teamID)).Scan(&n)
	return n, err
}

func updateProperty(ctx context.Context, tx *db.Tx, p *Property) error {
	n, err := tx.Exec(ctx, `UPDATE contact_properties SET fallback = $3, has_fallback = $4 WHERE id = $1 AND team_id = $2
		AND deleted_at = 0`, db.ID(p.ID), db.ID(p.TeamID), p.Fallback.Text, p.Fallback != scalar.Value{})
	if err != nil {
		return fmt.Errorf("update a property: %w", err)
	}
	if n == 0 {
		return noProperty()
	}
	return nil
}

// setValue writes a contact's value for a property, or deletes it if the value is zero.
func setValue(ctx context.Context, tx *db.Tx, of *Contact, v propertyValue) {
	table, value := "contact_texts", any(v.value.Text)
	if v.Type == scalar.Number {
		table, value = "contact_numbers", v.value.Number()
	}
	if v.value == (scalar.Value{}) {
		tx.Queue(ctx, `DELETE FROM `+table+` WHERE contact_id = $1 AND property_id = $2 AND team_id = $3`, db.ID(of.ID),
			db.ID(v.ID), db.ID(of.TeamID))
		return
	}
	tx.Queue(ctx, `INSERT INTO `+table+` (team_id, contact_id, property_id, value) VALUES ($1, $2, $3, $4)
		ON CONFLICT (contact_id, property_id) DO UPDATE SET value = excluded.value`, db.ID(of.TeamID), db.ID(of.ID),
		db.ID(v.ID), value)
}
