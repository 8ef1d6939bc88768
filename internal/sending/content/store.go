package content

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	htmlGiven = 1 << iota // bits of contents.parts
	textGiven
)

const (
	removeMax = 20 // maximum number of Contents deleted in one transaction, because a Content may be large
	teamsMax  = 200
	unusedMax = 500
)

// firstOf returns a lower bound for the ids of emails that use a Content at a given time.
func firstOf(at time.Time) db.ID { return db.ID(id.First(at.Add(-usedSlack))) }

func insert(ctx context.Context, tx *db.Tx, c *Content) error {
	replyTo, err := db.EncodeList(c.ReplyTo)
	if err != nil {
		return fmt.Errorf("encode the reply-to addresses of a content: %w", err)
	}
	headers, err := db.EncodeList(c.Headers)
	if err != nil {
		return fmt.Errorf("encode the headers of a content: %w", err)
	}
	html, text, given := "", "", 0
	if c.HTML != nil {
		html, given = *c.HTML, given|htmlGiven
	}
	if c.Text != nil {
		text, given = *c.Text, given|textGiven
	}
	now := c.CreatedAt.UnixMicro()
	tx.Queue(ctx, `INSERT INTO contents (id, team_id, kept, used_at, created_at, parts, sender, subject, reply_to,
		headers, html, body_text, from_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`, db.ID(c.ID),
		db.ID(c.TeamID), c.Kept, now, now, given, c.From, c.Subject, replyTo, headers, html, text, firstOf(c.CreatedAt))
	return nil
}

// insertCopy copies a Content. The copy keeps from_id, because emails of the original may refer to the copy.
func insertCopy(ctx context.Context, tx *db.Tx, teamID, contentID, copyID, from string) error {
	n, err := tx.Exec(ctx,
		`INSERT INTO contents (id, team_id, kept, used_at, created_at, parts, sender, subject, reply_to,
		headers, html, body_text, from_id) SELECT CAST($3 AS UUID), team_id, kept, CAST($5 AS BIGINT), CAST($5 AS BIGINT),
		parts, CAST($4 AS TEXT), subject, reply_to, headers, html, body_text, from_id FROM contents WHERE id = $1
		AND team_id = $2`, db.ID(contentID), db.ID(teamID), db.ID(copyID), from, tx.Now().UnixMicro())
	if err != nil {
		return fmt.Errorf("copy content %s: %w", contentID, err)
	}
	if n == 0 {
		return notFound()
	}
	return nil
}

func get(ctx context.Context, r db.Reader, teamID, contentID string) (c Content, err error) {
	var created int64
	var given int
	var replyTo, headers, html, text string
	err = r.QueryRow(ctx,
		`SELECT id, team_id, kept, created_at, parts, sender, subject, reply_to, headers, html, body_text
		FROM contents WHERE id = $1 AND team_id = $2`, db.ID(contentID), db.ID(teamID)).Scan((*db.ID)(&c.ID),
		(*db.ID)(&c.TeamID), &c.Kept, &created, &given, &c.From, &c.Subject, &replyTo, &headers, &html, &text)
	if errors.Is(err, db.ErrNoRows) {
		return c, notFound()
	}
	if err != nil {
		return c, fmt.Errorf("read content %s: %w", contentID, err)
	}
	c.CreatedAt = db.Time(created)
	if given&htmlGiven != 0 {
		c.HTML = &html
	}
	if given&textGiven != 0 {
		c.Text = &text
	}
	if c.ReplyTo, err = db.DecodeList[string](replyTo); err != nil {
		return c, fmt.Errorf("read the reply-to addresses of content %s: %w", contentID, err)
	}
	if c.Headers, err = db.DecodeList[message.Field](headers); err != nil {
		return c, fmt.Errorf("read the headers of content %s: %w", contentID, err)
	}
	return c, nil
}

func sizeOf(ctx context.Context, r db.Reader, teamID string, contentIDs []string) (n int64, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(SUM(OCTET_LENGTH(html) + OCTET_LENGTH(body_text)), 0) FROM contents
		WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID), db.IDs(contentIDs)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read the size of contents: %w", err)
	}
	return n, nil
}

// Sender returns the From field of a content.
func Sender(ctx context.Context, r db.Reader, teamID, contentID string) (from string, err error) {
	err = r.QueryRow(ctx, `SELECT sender FROM contents WHERE id = $1 AND team_id = $2`, db.ID(contentID),
		db.ID(teamID)).Scan(&from)
	if errors.Is(err, db.ErrNoRows) {
		return "", notFound()
	}
	if err != nil {
		return "", fmt.Errorf("read the sender of content %s: %w", contentID, err)
	}
	return from, nil
}

// setUsed records the time of a Content's use. The column used_at always increases, even if the clock was set back.
// Because used_at always increases, a transaction that has read the column earlier notices the use.
func setUsed(ctx context.Context, tx *db.Tx, teamID, contentID string, at time.Time) {
	tx.QueueOne(ctx, notFound(), `UPDATE contents SET used_at = CASE WHEN used_at < $3 THEN $3 ELSE used_at + 1 END,
		from_id = CASE WHEN from_id > $4 THEN $4 ELSE from_id END WHERE id = $1 AND team_id = $2`, db.ID(contentID),
		db.ID(teamID), at.UnixMicro(), firstOf(at))
}

func release(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	tx.Queue(ctx, `UPDATE contents SET kept = $3 WHERE id = $1 AND team_id = $2`, db.ID(contentID), db.ID(teamID), false)
}

func remove(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	tx.Queue(ctx, `DELETE FROM contents WHERE id = $1 AND team_id = $2`, db.ID(contentID), db.ID(teamID))
}

// unused reads only an index, which includes from_id, because the row stores from_id after the large texts.
func unused(ctx context.Context, r db.Reader, teamID string, before time.Time, after Unused) ([]Unused, error) {
	if after.ID == "" {
		after.used = -1
	}
	rows, err := r.Query(ctx, `SELECT id, from_id, used_at FROM contents WHERE team_id = $1 AND used_at < $2 AND NOT kept
		AND (used_at, id) > ($3, $4) ORDER BY used_at, id LIMIT $5`, db.ID(teamID), before.UnixMicro(), after.used,
		db.OrNoID(after.ID), unusedMax)
	all, err := db.Collect(rows, err, func(r db.Row) (Unused, error) {
		u := Unused{TeamID: teamID}
		err := r.Scan((*db.ID)(&u.ID), (*db.ID)(&u.From), &u.used)
		return u, err
	})
	if err != nil {
		return nil, fmt.Errorf("find contents of team %s that are not used: %w", teamID, err)
	}
	return all, nil
}

func advanceFrom(ctx context.Context, tx *db.Tx, u Unused, from string) error {
	_, err := tx.Exec(ctx, `UPDATE contents SET from_id = $5 WHERE id = $1 AND team_id = $2 AND used_at = $3
		AND from_id = $4`, db.ID(u.ID), db.ID(u.TeamID), u.used, db.ID(u.From), db.ID(from))
	if err != nil {
		return fmt.Errorf("record the first email of content %s: %w", u.ID, err)
	}
	return nil
}

func removeUnused(ctx context.Context, tx *db.Tx, u Unused) {
	tx.Queue(ctx, `DELETE FROM contents WHERE id = $1 AND team_id = $2 AND used_at = $3 AND from_id = $4 AND NOT kept`,
		db.ID(u.ID), db.ID(u.TeamID), u.used, db.ID(u.From))
}

func teamsWithUnused(ctx context.Context, r db.Reader, after, last int64, before time.Time) (teamIDs []string,
	upTo int64, err error) {
	rows, err := r.Query(ctx, `SELECT t.id, t.short_id, EXISTS (SELECT 1 FROM contents c WHERE c.team_id = t.id
		AND NOT c.kept AND c.used_at < $3)
		FROM (SELECT id, short_id FROM teams WHERE short_id > $1 AND short_id <= $2 ORDER BY short_id LIMIT $4) t
		ORDER BY t.short_id`, after, last, before.UnixMicro(), teamsMax)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var teamID string
		var has bool
		if err = r.Scan((*db.ID)(&teamID), &upTo, &has); err == nil && has {
			teamIDs = append(teamIDs, teamID)
		}
		return none, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("find teams with contents that are not used: %w", err)
	}
	return teamIDs, upTo, nil
}

func eraseSome(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	n, err := tx.Exec(ctx, `DELETE FROM contents WHERE id IN (SELECT id FROM contents WHERE team_id = $1 LIMIT $2)`,
		db.ID(teamID), removeMax)
	if err != nil {
		return 0, fmt.Errorf("erase the contents of team %s: %w", teamID, err)
	}
	return n, nil
}
