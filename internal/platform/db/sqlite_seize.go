package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// sqliteOf returns the engine of an SQLite database, also if its statements are traced.
func sqliteOf(e engine) (*sqliteDB, bool) {
	if t, ok := e.(traced); ok {
		e = t.engine
	}
	s, ok := e.(*sqliteDB)
	return s, ok
}

// errFrozen is the cause of failed updates while the database is frozen.
var errFrozen = errors.New("the installation is being moved to another database")

// Freeze runs last after the updates that were begun earlier, and makes all other updates of this process fail with
// [ErrUnavailable] until Thaw is called. Reads continue. Freeze works on SQLite only.
func (d *DB) Freeze(ctx context.Context, last func(*Tx) error) error {
	s, ok := sqliteOf(d.e)
	if !ok {
		return errors.New("only SQLite can be frozen")
	}
	s.frozen.Store(true)
	return s.enqueue(ctx, last)
}

// Thaw ends the effect of Freeze.
func (d *DB) Thaw() {
	if s, ok := sqliteOf(d.e); ok {
		s.frozen.Store(false)
	}
}

// Seize runs fn in a write transaction on an SQLite file, with a connection of its own. Meanwhile, no process can
// write to the file: updates of other processes wait for ten seconds and then fail with [ErrUnavailable].
func (d *DB) Seize(ctx context.Context, fn func(*sql.Conn) error) (err error) {
	s, ok := sqliteOf(d.e)
	if !ok {
		return errors.New("only an SQLite file can be seized")
	}
	handle, err := s.open()
	if err != nil {
		return err
	}
	defer handle.Close()
	c, err := handle.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("wait for other writers: %w", err)
	}
	if err := fn(c); err != nil {
		_, rolled := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, rolled)
	}
	if _, err := c.ExecContext(context.WithoutCancel(ctx), "COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// SendHints sends this process's hints to the node at once. Commands need it only while they wait for the node.
func (d *DB) SendHints(ctx context.Context) { d.flushHints(ctx) }
