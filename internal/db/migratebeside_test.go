package db_test

import (
	"context"
	"path/filepath"
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

// The emails of a content that was stored before are looked for from the first that has it on, and those of one that no
// email has yet from its own id on.
func TestMigrateContents(t *testing.T) {
	for engine, url := range map[string]string{"sqlite": filepath.Join(t.TempDir(), "test.db"),
		"postgres": dbtest.PostgresURL(t)} {
		ctx := t.Context()
		d, err := db.Open(context.Background(), db.Options{URL: url, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		db.MigrateUpTo(t, d, "0075_keyed_rows.sql")
		err = d.Update(ctx, func(tx *db.Tx) error {
			for _, contentID := range []string{"c2", "c5"} {
				tx.Queue(ctx, `INSERT INTO contents (id, team_id, kept, used_at, created_at, parts, sender, subject, reply_to,
					headers, html, body_text) VALUES ($1, 'team', FALSE, 0, 0, 0, '', '', '', '', '', '')`, contentID)
			}
			for emailID, contentID := range map[string]string{"c0": "", "c1": "c2", "c3": "c2"} {
				tx.Queue(ctx, `INSERT INTO emails (id, team_id, api_key_id, domain_id, message_id, sender, subject, recipients,
					tags, topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at, content_id)
					VALUES ($1, 'team', '', '', '', '', '', '', '', '', '', '', '', 0, 0, 0, $2)`, emailID, contentID)
			}
			return nil
		})
		if err == nil {
			_, err = d.Migrate(ctx)
		}
		var got string
		if err == nil {
			err = d.QueryRow(ctx, `SELECT MIN(from_id) || ' ' || MAX(from_id) FROM contents`).Scan(&got)
		}
		if err != nil || got != "c1 c5" {
			t.Errorf("%s: they begin with %s, %v", engine, got, err)
		}
	}
}
