package emails

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/db"
)

const (
	eraseEmails = 100 // in one transaction, with all that is theirs
	eraseRows   = 500
)

// tables of an email, of which it is the first column of the key. The email itself goes with the last.
var emailTables = [...]string{"email_attachments", "email_messages", "email_recipients", "email_attempts", "email_events", "email_bodies"}

// EraseTeam takes away the emails of a team with their files and events, and its idempotency keys. Files go before the
// rows that name them, so that an interruption leaves none behind.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		ids, err := someEmails(ctx, s.d.Reader, teamID)
		if err != nil {
			return fmt.Errorf("erase the emails of team %s: %w", teamID, err)
		}
		if len(ids) == 0 {
			break
		}
		files, err := filesOf(ctx, s.d.Reader, ids)
		if err != nil {
			return fmt.Errorf("list the files of emails to erase: %w", err)
		}
		for _, key := range files {
			if err := s.blobs.Delete(ctx, key); err != nil {
				return err
			}
		}
		if err := s.d.Update(ctx, func(tx *db.Tx) error { return deleteEmails(ctx, tx, teamID, ids) }); err != nil {
			return fmt.Errorf("erase emails of team %s: %w", teamID, err)
		}
	}
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteLooseEvents(ctx, tx, teamID) })
	if err != nil {
		return fmt.Errorf("erase the events of team %s: %w", teamID, err)
	}
	err = s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE team_id = $1 AND (scope, idempotency_key) IN
			(SELECT scope, idempotency_key FROM idempotency_keys WHERE team_id = $1 ORDER BY scope, idempotency_key LIMIT $2)`, teamID, eraseRows)
	})
	if err != nil {
		return fmt.Errorf("erase the idempotency keys of team %s: %w", teamID, err)
	}
	return nil
}

func someEmails(ctx context.Context, r db.Reader, teamID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM emails WHERE team_id = $1 ORDER BY id LIMIT $2`, teamID, eraseEmails)
	return db.Collect(rows, err, scanText)
}

// filesOf are the keys of what emails have in blobs.
func filesOf(ctx context.Context, r db.Reader, emailIDs []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT blob_key FROM email_attachments WHERE email_id = ANY($1)`, emailIDs)
	keys, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		keys[i], _, _ = strings.Cut(key, partMark)
	}
	rows, err = r.Query(ctx, fmt.Sprintf(`SELECT COALESCE(m.blob_key, '%s' || b.email_id) FROM email_bodies b
		LEFT JOIN email_messages m ON m.email_id = b.email_id WHERE b.parts & %d <> 0 AND b.email_id = ANY($1)`, rawPrefix, isBlob), emailIDs)
	raws, err := db.Collect(rows, err, scanText)
	keys = append(keys, raws...)
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key == "" }), err
}

func scanText(r db.Row) (text string, err error) {
	err = r.Scan(&text)
	return text, err
}

// deleteOfEmails is the statement that deletes what some emails have in a table. It compares the team as
// selectBefore does.
func deleteOfEmails(table string) string {
	return `DELETE FROM ` + table + ` WHERE team_id || '' = $1 AND email_id = ANY($2)`
}

func deleteEmails(ctx context.Context, tx *db.Tx, teamID string, ids []string) error {
	for _, table := range emailTables {
		if _, err := tx.Exec(ctx, deleteOfEmails(table), teamID, ids); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `DELETE FROM emails WHERE team_id = $1 AND id = ANY($2)`, teamID, ids)
	return err
}

// deleteLooseEvents deletes some of a team's events whose emails are gone, oldest first.
func deleteLooseEvents(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM email_events WHERE team_id = $1 AND created_at <= (SELECT MAX(created_at) FROM
		(SELECT created_at FROM email_events WHERE team_id = $1 ORDER BY created_at LIMIT $2) x)`, teamID, eraseRows)
}
