package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Facts about the whole installation, which the table installation stores.
const (
	// FactKeyCheck is a value that only the secret key of the installation produces.
	FactKeyCheck = "secret_key_check"
	// FactEarlierKeys are the check values of the secret keys that a rotation has replaced, separated by spaces.
	FactEarlierKeys = "earlier_secret_keys"
	// FactLastBackup is the time of the last complete backup, in the format of RFC 3339.
	FactLastBackup = "last_backup"
	// FactMovedTo names the database to which the installation was moved, without a password. A moved installation does
	// not start.
	FactMovedTo = "moved_to"
	// FactMoveID identifies a move that has begun. The database that the move copies from and the one that it copies to
	// have it.
	FactMoveID = "move"
	// FactPaused is the request to pause that the node has followed last, for the end of a move.
	FactPaused = "paused"
	// FactCommitTest changes whenever the command doctor measures the time of a commit. Its value means nothing.
	FactCommitTest = "commit_test"
	// FactExamined is the time at which nodes examined the installation last, in the format of RFC 3339.
	FactExamined = "examined"
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
	return FactIn(ctx, d.Reader, name)
}

// FactIn returns a fact, as [DB.Fact] does, for a reader of a migrated database, such as a transaction.
func FactIn(ctx context.Context, r Reader, name string) (value string, err error) {
	err = r.QueryRow(ctx, `SELECT value FROM installation WHERE name = $1`, name).Scan(&value)
	if errors.Is(err, ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s of the installation: %w", name, err)
	}
	return value, nil
}

// Began returns when the database was created: when its first migration was applied.
func (d *DB) Began(ctx context.Context) (at time.Time, err error) {
	var first *int64
	if err := d.QueryRow(ctx, `SELECT MIN(applied_at) FROM migrations`).Scan(&first); err != nil || first == nil {
		return at, err
	}
	return Time(*first), nil
}

// Schema returns the name of the newest migration that was applied.
func (d *DB) Schema(ctx context.Context) (name string, err error) {
	if err := d.QueryRow(ctx, `SELECT MAX(name) FROM migrations`).Scan(&name); err != nil {
		return "", fmt.Errorf("read the newest migration: %w", err)
	}
	return name, nil
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

// SetFact stores a fact, and replaces the stored one. An empty value deletes the fact.
func (d *DB) SetFact(ctx context.Context, name, value string) error {
	err := d.Update(ctx, func(tx *Tx) error {
		SetFact(ctx, tx, name, value)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store %s of the installation: %w", name, err)
	}
	return nil
}

// SetFact stores a fact in a transaction, as [DB.SetFact] does.
func SetFact(ctx context.Context, tx *Tx, name, value string) {
	if value == "" {
		tx.Queue(ctx, `DELETE FROM installation WHERE name = $1`, name)
		return
	}
	tx.Queue(ctx, `INSERT INTO installation (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
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
	return knowEnough(known, oldest)
}

// CheckFileProgram returns an error if the database in an SQLite file, which no process changes, needs a later program
// than this one.
func CheckFileProgram(ctx context.Context, path string) error {
	known, err := readMigrations(migrations, "sqlite")
	if err != nil {
		return err
	}
	oldest, err := FactOfFile(ctx, path, factOldest)
	if err != nil {
		return err
	}
	return knowEnough(known, oldest)
}

// knowEnough returns an error if a program that knows the given migrations is older than the given fact demands.
func knowEnough(known []migration, oldest string) error {
	need, release, _ := strings.Cut(oldest, " ")
	if need == "" || known[len(known)-1].name >= need {
		return nil
	}
	return fmt.Errorf("the database was upgraded for Postrider %s, and this program is older: start %s or a later "+
		"release, or restore a backup that was made before the upgrade", release, release)
}
