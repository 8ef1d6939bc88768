package db_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// If a node on the previous release accepts an email while a new node starts and migrates, the email keeps its body.
func TestMigrateBesideANodeOfTheReleaseBefore(t *testing.T) {
	ctx := t.Context()
	url := dbtest.EmptyPostgresURL(t)
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
		// statements that the previous release runs to accept an email
		tx.Queue(ctx, `INSERT INTO emails (id, team_id, api_key_id, domain_id, message_id, sender, subject, recipients,
			tags, topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at)
			VALUES ('email', 'team', '', '', '', '', '', '', '', '', '', '', 'queued', 10, 0, 0)`)
		if _, err := tx.Exec(ctx, `INSERT INTO email_bodies (email_id, team_id, html, body_text, parts, headers)
			VALUES ('email', 'team', 'hello', '', 1, '')`); err != nil {
			return err
		}
		go func() {
			_, err := after.Migrate(context.Background())
			migrated <- err
		}()
		for until := time.Now().Add(8 * time.Second); time.Now().Before(until); { // waits until the migration blocks
			var n int
			if err := before.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database()`).Scan(&n); err != nil || n > 0 {
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

// For each stored content, the migration sets the first email to the oldest email that uses the content. If no email
// uses the content, the first email is the content's own id.
func TestMigrateContents(t *testing.T) {
	for engine, url := range map[string]string{"sqlite": filepath.Join(t.TempDir(), "test.db"),
		"postgres": dbtest.EmptyPostgresURL(t)} {
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

// After the migration, pending and decided approvals have their values in the new columns.
func TestMigrateApprovals(t *testing.T) {
	for engine, url := range map[string]string{"sqlite": filepath.Join(t.TempDir(), "test.db"),
		"postgres": dbtest.EmptyPostgresURL(t)} {
		ctx := t.Context()
		d, err := db.Open(context.Background(), db.Options{URL: url, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		db.MigrateUpTo(t, d, "0090_approvals.sql")
		columns := strings.Fields("id team_id actor_kind actor_id actor_name request sender subject state " +
			"decided_by_kind decided_by_id reason email_id recipients created_at expires_at decided_at")
		row := func(n int) (values []any) {
			for i, name := range columns {
				if i >= len(columns)-4 {
					values = append(values, int64(100*n+i))
					continue
				}
				values = append(values, fmt.Sprintf("%s %d", name, n))
			}
			return values
		}
		err = d.Update(ctx, func(tx *db.Tx) error {
			for n := range 3 {
				tx.Queue(ctx, `INSERT INTO approvals (`+strings.Join(columns, ", ")+`)
					VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`, row(n)...)
			}
			return nil
		})
		if err == nil {
			_, err = d.Migrate(ctx)
		}
		if err != nil {
			t.Fatalf("%s: %v", engine, err)
		}
		for n := range 3 {
			want, got, to := row(n), make([]any, len(columns)), make([]any, len(columns))
			for i := range got {
				to[i] = &got[i]
			}
			err := d.QueryRow(ctx, `SELECT `+strings.Join(columns, ", ")+` FROM approvals WHERE id = $1`,
				want[0]).Scan(to...)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: a row is %v, %v; want %v", engine, got, err, want)
			}
		}
	}
}
