package emails

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
)

const (
	eraseRows    = 500     // maximum number of a team's rows that one transaction deletes
	removeEmails = 100     // maximum number of emails that one transaction deletes
	removeRows   = 500     // maximum number of rows of these emails, unless a single email has more
	bytesPerRow  = 8 << 10 // number of bytes of content that count as one row
	lastID       = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

// These lists contain the tables whose key begins with an email id: tables with content, tables with the timeline, and
// all of them.
var (
	contentTables  = []string{"email_attachments", "email_messages", "email_bodies"}
	timelineTables = []string{"email_events"}
	emailTables    = slices.Concat(contentTables, timelineTables, []string{"email_recipients"})
)

// isSettled is an SQL condition that is true if all recipients of an email are settled; e is the row of the table
// emails. If the email was deleted, e may be missing from an outer join. The condition uses COUNT, because with EXISTS,
// PostgreSQL might scan the recipients of all emails.
var isSettled = fmt.Sprintf(`(CASE WHEN e.recipient <> '' THEN e.rank >= %[1]d ELSE
	(SELECT COUNT(*) FROM email_recipients s WHERE s.email_id = e.id AND s.rank < %[1]d) = 0 END)`, settled)

// contentRows returns an SQL expression for the number of rows as which the content of an email of team $1 is counted.
// The database can compute this number without reading the content.
func contentRows(column string) string {
	return fmt.Sprintf(`((SELECT COUNT(*) FROM email_attachments a WHERE a.email_id = %[1]s)
		+ COALESCE((SELECT (OCTET_LENGTH(b.html) + OCTET_LENGTH(b.body_text)) / %[2]d
			FROM email_bodies b WHERE b.email_id = %[1]s AND b.team_id = $1), 0)
		+ COALESCE((SELECT OCTET_LENGTH(m.content) / %[2]d
			FROM email_messages m WHERE m.email_id = %[1]s), 0))`, column, bytesPerRow)
}

// timelineRows returns an SQL expression for the number of rows that hold an email's events and attempts.
func timelineRows(column string) string {
	return `(SELECT COUNT(*) FROM email_events v WHERE v.email_id = ` + column + `)`
}

var (
	selectEmails = `SELECT e.id, ` + isSettled + `, ` + contentRows("e.id") + ` + ` + timelineRows("e.id") + `
		+ (SELECT COUNT(*) FROM email_recipients p WHERE p.email_id = e.id)
		FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3 ORDER BY e.id LIMIT $4`
	selectThese = `SELECT e.id, ` + isSettled + `, ` + contentRows("e.id") + ` + ` + timelineRows("e.id") + `
		+ (SELECT COUNT(*) FROM email_recipients p WHERE p.email_id = e.id)
		FROM emails e WHERE e.team_id = $1 AND e.id = ANY($2) ORDER BY e.id LIMIT $3`
	selectContents = `SELECT e.id, ` + isSettled + `, ` + contentRows("e.id") + `
		FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3 ORDER BY e.id LIMIT $4`
	selectSkipped = `SELECT l.email_id, ` + isSettled + `, ` + contentRows("l.email_id") + `
		FROM email_bodies_left l LEFT JOIN emails e ON e.id = l.email_id AND e.team_id = l.team_id
		WHERE l.team_id = $1 AND l.email_id > $2 AND l.email_id < $3 ORDER BY l.email_id LIMIT $4`
	// selectTimelines finds the emails that have events in a time range but no event at or after another time.
	selectTimelines = `SELECT o.email_id, ` + isSettled + `, ` + timelineRows("o.email_id") + `
		FROM (SELECT DISTINCT v.email_id FROM email_events v
			WHERE v.team_id = $1 AND v.created_at > $2 AND v.created_at <= $3) o
		LEFT JOIN emails e ON e.id = o.email_id AND e.team_id = $1
		WHERE (SELECT COUNT(*) FROM email_events n WHERE n.email_id = o.email_id AND n.created_at + 0 >= $4) = 0
		ORDER BY o.email_id`
)

// removable is an email that may be deleted, entirely or in part.
type removable struct {
	id      string
	settled bool
	rows    int // number of rows that are deleted with the email
}

// readRemovable runs one of the queries above and returns a batch of a team's emails between two ids, oldest first.
func readRemovable(ctx context.Context, r db.Reader, query, teamID, after, before string) ([]removable, error) {
	rows, err := r.Query(ctx, query, db.ID(teamID), db.OrNoID(after), db.ID(before), removeEmails)
	return db.Collect(rows, err, scanRemovable)
}

// removableOf returns the given emails of a team, except those that do not exist.
func removableOf(ctx context.Context, r db.Reader, teamID string, emailIDs []string) ([]removable, error) {
	rows, err := r.Query(ctx, selectThese, db.ID(teamID), db.IDs(emailIDs), removeEmails)
	return db.Collect(rows, err, scanRemovable)
}

func scanRemovable(r db.Row) (e removable, err error) {
	err = r.Scan((*db.ID)(&e.id), &e.settled, &e.rows)
	return e, err
}

// eventsUpTo returns the time of the last event in the next batch of a team's events that are later than after and
// earlier than before. If there are no events in this range, eventsUpTo returns 0.
func eventsUpTo(ctx context.Context, r db.Reader, teamID string, after, before int64) (at int64, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(MAX(created_at), 0) FROM (SELECT created_at FROM email_events
		WHERE team_id = $1 AND created_at > $2 AND created_at < $3 ORDER BY created_at LIMIT $4) x`, db.ID(teamID), after,
		before, removeRows).Scan(&at)
	return at, err
}

// timelinesBetween returns the emails that have an event later than after and not later than upTo, but no event at or
// after the time before.
func timelinesBetween(ctx context.Context, r db.Reader, teamID string, after, upTo, before int64) ([]removable, error) {
	rows, err := r.Query(ctx, selectTimelines, db.ID(teamID), after, upTo, before)
	return db.Collect(rows, err, scanRemovable)
}

// bodiesUntil returns the id of the email up to which a team's bodies have been deleted, or "" if none have been
// deleted.
func bodiesUntil(ctx context.Context, r db.Reader, teamID string) (emailID string, err error) {
	err = r.QueryRow(ctx, `SELECT email_id FROM email_bodies_until WHERE team_id = $1`, db.ID(teamID)).
		Scan((*db.ID)(&emailID))
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return emailID, err
}

// setBodiesUntil stores the id for later calls to bodiesUntil, and records the skipped emails, whose bodies must be
// deleted later.
func setBodiesUntil(ctx context.Context, tx *db.Tx, teamID, emailID string, left []string) {
	tx.Queue(ctx, `INSERT INTO email_bodies_until (team_id, email_id) VALUES ($1, $2) ON CONFLICT (team_id) DO UPDATE
		SET email_id = excluded.email_id WHERE email_bodies_until.email_id < excluded.email_id`, db.ID(teamID),
		db.ID(emailID))
	for _, leftID := range left {
		tx.Queue(ctx, `INSERT INTO email_bodies_left (team_id, email_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
			db.ID(teamID), db.ID(leftID))
	}
}

func deleteSkipped(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) {
	tx.Queue(ctx, `DELETE FROM email_bodies_left WHERE team_id = $1 AND email_id = ANY($2)`, db.ID(teamID),
		db.IDs(emailIDs))
}

// filesOf returns the keys of the blobs that belong to the given emails of a team.
func filesOf(ctx context.Context, r db.Reader, teamID string, emailIDs []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT blob_key FROM email_attachments WHERE email_id = ANY($1) AND team_id = $2`,
		db.IDs(emailIDs), db.ID(teamID))
	keys, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		keys[i], _, _ = strings.Cut(key, fileMark)
	}
	rows, err = r.Query(ctx, `SELECT blob_key FROM email_messages WHERE email_id = ANY($1) AND team_id = $2`,
		db.IDs(emailIDs), db.ID(teamID))
	raws, err := db.Collect(rows, err, scanText)
	keys = append(keys, raws...)
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key == "" }), err
}

func scanText(r db.Row) (text string, err error) {
	err = r.Scan(&text)
	return text, err
}

// deleteOfEmails returns a statement that deletes the rows of the given emails from a table. The statement compares the
// team in the same way as selectBefore, so that SQLite uses the index on the email id. Bodies are found by their team,
// because on PostgreSQL, they are in the rows of the emails.
func deleteOfEmails(table string) string {
	if table == "email_bodies" {
		return `DELETE FROM email_bodies WHERE team_id = $1 AND email_id = ANY($2)`
	}
	return `DELETE FROM ` + table + ` WHERE COALESCE(team_id, team_id) = $1 AND email_id = ANY($2)`
}

// deleteIn deletes the rows of the given emails from the given tables.
func deleteIn(ctx context.Context, tx *db.Tx, tables []string, teamID string, emailIDs []string) {
	for _, table := range tables {
		tx.Queue(ctx, deleteOfEmails(table), db.ID(teamID), db.IDs(emailIDs))
	}
}

// deleteShare removes the reference to shared content, and the variables, from the given emails.
func deleteShare(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) {
	tx.Queue(ctx, `UPDATE emails SET content_id = NULL, variables = '' WHERE team_id = $1 AND id = ANY($2)
		AND content_id IS NOT NULL`, db.ID(teamID), db.IDs(emailIDs))
}

// contentsOf reads the emails that are recorded as the first users of the given contents. The function returns a map
// from email ids to content ids.
func contentsOf(ctx context.Context, r db.Reader, teamID string, all []content.Unused) (map[string]string, error) {
	var firsts []string
	for _, u := range all {
		firsts = append(firsts, u.From)
	}
	has := map[string]string{}
	rows, err := r.Query(ctx, `SELECT id, content_id FROM emails WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID),
		db.IDs(firsts))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID, contentID string
		err = r.Scan((*db.ID)(&emailID), (*db.ID)(&contentID))
		has[emailID] = contentID
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the content ids of emails: %w", err)
	}
	return has, nil
}

// seekContent reads at most limit emails that may use the content, starting at the given email id. The results are the
// first email with the content ("" if no email uses the content), the last email read, and the number of emails read.
func seekContent(ctx context.Context, r db.Reader, u content.Unused, from string, limit int) (found, last string, n int,
	err error) {
	err = r.QueryRow(ctx, `WITH x AS (SELECT e.id, e.content_id FROM emails e WHERE e.team_id = $1 AND e.id >= $3
		AND e.id < $4 ORDER BY e.id LIMIT $5) SELECT (SELECT x.id FROM x WHERE x.content_id = $2 ORDER BY x.id LIMIT 1),
		(SELECT x.id FROM x ORDER BY x.id DESC LIMIT 1), (SELECT COUNT(*) FROM x)`, db.ID(u.TeamID), db.ID(u.ID),
		db.ID(from), db.ID(u.Until()), limit).Scan((*db.ID)(&found), (*db.ID)(&last), &n)
	if err != nil {
		return "", "", 0, fmt.Errorf("look for emails with content %s: %w", u.ID, err)
	}
	return found, last, n, nil
}

func deleteEmails(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) {
	deleteIn(ctx, tx, emailTables, teamID, emailIDs)
	deleteSkipped(ctx, tx, teamID, emailIDs)
	tx.Queue(ctx, `DELETE FROM emails WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID), db.IDs(emailIDs))
}

// deleteLooseEvents deletes a batch of the events that remain after a team's emails have been deleted, oldest first.
func deleteLooseEvents(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM email_events WHERE team_id = $1 AND created_at <= (SELECT MAX(created_at) FROM
		(SELECT created_at FROM email_events WHERE team_id = $1 ORDER BY created_at LIMIT $2) x)`, db.ID(teamID), eraseRows)
}

func deleteSomeKeys(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE team_id = $1 AND (scope, idempotency_key) IN
		(SELECT scope, idempotency_key FROM idempotency_keys WHERE team_id = $1 ORDER BY scope, idempotency_key LIMIT $2)`,
		db.ID(teamID), eraseRows)
}

// deleteSomeSkipped deletes a batch of the records about a team's deleted and skipped bodies.
func deleteSomeSkipped(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	tx.Queue(ctx, `DELETE FROM email_bodies_until WHERE team_id = $1`, db.ID(teamID))
	return tx.Exec(ctx, `DELETE FROM email_bodies_left WHERE team_id = $1 AND email_id <= (SELECT email_id FROM
		(SELECT email_id FROM email_bodies_left WHERE team_id = $1 ORDER BY email_id LIMIT $2) x
		ORDER BY email_id DESC LIMIT 1)`, db.ID(teamID), eraseRows)
}
