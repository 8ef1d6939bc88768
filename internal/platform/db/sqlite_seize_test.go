package db_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestFreeze(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	set := func(value string) error { return d.SetFact(t.Context(), "colour", value) }
	if err := set("red"); err != nil {
		t.Fatal(err)
	}
	err := d.Freeze(t.Context(), func(tx *db.Tx) error {
		db.SetFact(t.Context(), tx, "colour", "blue")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := set("green"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("an update while it is frozen: %v", err)
	}
	if got, err := d.Fact(t.Context(), "colour"); got != "blue" || err != nil {
		t.Errorf("%q, %v; want what the last update stored", got, err)
	}
	d.Thaw()
	if err := set("green"); err != nil {
		t.Error(err)
	}
}

// The changes of a seizing process are stored entirely or not at all.
func TestSeize(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	set := func(c *sql.Conn, value string) error {
		_, err := c.ExecContext(t.Context(), `INSERT INTO installation (name, value) VALUES ('colour', $1)`, value)
		return err
	}
	failed := errors.New("failed")
	err := d.Seize(t.Context(), func(c *sql.Conn) error { return errors.Join(set(c, "red"), failed) })
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if got, err := d.Fact(t.Context(), "colour"); got != "" || err != nil {
		t.Errorf("%q, %v; want nothing after an error", got, err)
	}
	if err := d.Seize(t.Context(), func(c *sql.Conn) error { return set(c, "blue") }); err != nil {
		t.Error(err)
	}
	if got, err := d.Fact(t.Context(), "colour"); got != "blue" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
