package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
)

// A node of the release before accepts an email while a node of this one starts and migrates: the email keeps its body.
func TestMigrateBesideANodeOfTheReleaseBefore(t *testing.T) {
	ctx := t.Context()
	url := dbtest.PostgresURL(t)
	open := func() *db.DB {
		d, err := db.Open(context.Background(), db.Options{URL: url, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	before, after := open(), open()
	db.MigrateUpTo(t, before, "0035_contents.sql")
	migrated := make(chan error, 1)
	err := before.Update(ctx, func(tx *db.Tx) error {
		// What accepting an email writes.
		if _, err := tx.Exec(ctx, `INSERT INTO email_bodies (email_id, team_id, html, body_text, parts, headers)
			VALUES ('email', 'team', 'hello', '', 1, '')`); err != nil {
			return err
		}
		go func() {
			_, err := after.Migrate(context.Background())
			migrated <- err
		}()
		for until := time.Now().Add(8 * time.Second); time.Now().Before(until); { // until the migration waits for this
			var n int
			if err := before.QueryRow(ctx, `SELECT COUNT(*) FROM pg_locks WHERE NOT granted`).Scan(&n); err != nil || n > 0 {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("the email was not accepted: %v", err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	var n int
	if err := after.QueryRow(ctx, `SELECT COUNT(*) FROM email_bodies WHERE email_id = 'email'`).Scan(&n); err != nil ||
		n != 1 {
		t.Errorf("an email was accepted, and %d bodies of it are there: %v", n, err)
	}
}
