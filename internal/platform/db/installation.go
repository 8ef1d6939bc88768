package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Facts about the whole installation, which the table installation stores.
const (
	// FactKeyCheck is a value that only the secret key of the installation produces.
	FactKeyCheck = "secret_key_check"
	// factOldest names the newest migration that a program must know to use the database, and the first release with it.
	factOldest = "oldest_program"
)

// firstWithFacts is the migration that creates the table of facts.
const firstWithFacts = "0008_installation"

// Fact returns a fact about the installation, or "" if it is not stored. A database that was not migrated yet to a
// release with facts has none.
func (d *DB) Fact(ctx context.Context, name string) (value string, err error) {
	have, err := appliedMigrations(ctx, d.q)
	if err != nil {
		return "", fmt.Errorf("read the applied migrations: %w", err)
	}
	if _, ok := have[firstWithFacts]; !ok {
		return "", nil
	}
	err = d.QueryRow(ctx, `SELECT value FROM installation WHERE name = $1`, name).Scan(&value)
	if errors.Is(err, ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s of the installation: %w", name, err)
	}
	return value, nil
}

// KeepFact stores a fact unless one with this name is stored already, and returns the stored one. Nodes that start at
// the same time therefore agree on one.
func (d *DB) KeepFact(ctx context.Context, name, value string) (kept string, err error) {
	err = d.Update(ctx, func(tx *Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO installation (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`,
			name, value); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT value FROM installation WHERE name = $1`, name).Scan(&kept)
	})
	if err != nil {
		return "", fmt.Errorf("store %s of the installation: %w", name, err)
	}
	return kept, nil
}

// contraction is the beginning of a comment in a migration that takes something away, or changes what it means. The
// rest of the line is the name of the migration that a program must know from then on, and the first release that knows
// it. A migration that only adds has no such line, so that the nodes of the previous release go on working beside it.
const contraction = "-- oldest program: "

// oldestProgram returns the rest of the line that begins with contraction, or "".
func (m *migration) oldestProgram() string {
	for line := range strings.Lines(m.text) {
		if rest, ok := strings.CutPrefix(line, contraction); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// CheckProgram returns an error if the database needs a later program than this one, or was not migrated for this one.
// Migrate makes the first check, too.
func (d *DB) CheckProgram(ctx context.Context) error {
	known, err := readMigrations(migrations, d.Engine())
	if err != nil {
		return err
	}
	have, err := appliedMigrations(ctx, d.q)
	if err != nil {
		return fmt.Errorf("read the applied migrations: %w", err)
	}
	for _, m := range known {
		if _, ok := have[m.name]; !ok {
			return fmt.Errorf("the database lacks the migration %s: run `postrider migrate`", m.name)
		}
	}
	return d.mayUse(ctx, known)
}

// mayUse returns an error if the database needs a later program than one that knows the given migrations.
func (d *DB) mayUse(ctx context.Context, known []migration) error {
	oldest, err := d.Fact(ctx, factOldest)
	if err != nil {
		return err
	}
	need, release, _ := strings.Cut(oldest, " ")
	if need == "" || known[len(known)-1].name >= need {
		return nil
	}
	return fmt.Errorf("the database was upgraded for Postrider %s, and this program is older: start %s or a later "+
		"release, or restore a backup that was made before the upgrade", release, release)
}
