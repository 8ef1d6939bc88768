package receiving

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// recipients is the JSON form of the recipient addresses in the header.
type recipients struct {
	To      []string `json:"to,omitempty"`
	Cc      []string `json:"cc,omitempty"`
	Bcc     []string `json:"bcc,omitempty"`
	ReplyTo []string `json:"reply_to,omitempty"`
}

const columns = `team_id, id, domain_id, sender, subject, message_id, recipients, received_for, files, thread_id,
	origin, authentication, spam, size, blob_key, created_at`

func insertEmail(ctx context.Context, tx *db.Tx, e *Email, m *incoming) error {
	var texts [6]string
	for i, value := range []any{recipients{e.To, e.Cc, e.Bcc, e.ReplyTo}, e.ReceivedFor, e.Files, e.Origin,
		e.Authentication, e.Spam} {
		if len(e.Files) == 0 && i == 2 || e.Authentication == nil && i == 4 || e.Spam == nil && i == 5 {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode received email: %w", err)
		}
		texts[i] = db.Text(string(text), len(text))
	}
	tx.Proof(`SELECT 1 FROM received_emails WHERE team_id = $1 AND id = $2`, db.ID(e.TeamID), db.ID(e.ID))
	tx.Queue(ctx, `INSERT INTO received_emails (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
		db.ID(e.TeamID), db.ID(e.ID), db.ID(e.DomainID), e.From, e.Subject, e.MessageID, texts[0], texts[1], texts[2],
		db.ID(e.ThreadID), texts[3], texts[4], texts[5], e.Size, e.blobKey, e.CreatedAt.UnixMicro())
	if e.blobKey == "" {
		tx.Queue(ctx, `INSERT INTO received_raws (team_id, email_id, content) VALUES ($1, $2, $3)`, db.ID(e.TeamID),
			db.ID(e.ID), m.raw)
	}
	return nil
}

func scanEmail(r db.Row) (e Email, err error) {
	var to, received, files, origin, auth, spam string
	var created int64
	err = r.Scan((*db.ID)(&e.TeamID), (*db.ID)(&e.ID), (*db.ID)(&e.DomainID), &e.From, &e.Subject, &e.MessageID, &to,
		&received, &files, (*db.ID)(&e.ThreadID), &origin, &auth, &spam, &e.Size, &e.blobKey, &created)
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return e, fmt.Errorf("read received email: %w", err)
	}
	var list recipients
	for _, value := range []struct {
		text string
		dst  any
	}{{to, &list}, {received, &e.ReceivedFor}, {files, &e.Files}, {origin, &e.Origin}, {auth, &e.Authentication},
		{spam, &e.Spam}} {
		if value.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(value.text), value.dst); err != nil {
			return e, fmt.Errorf("read received email %s: %w", e.ID, err)
		}
	}
	e.To, e.Cc, e.Bcc, e.ReplyTo, e.CreatedAt = list.To, list.Cc, list.Bcc, list.ReplyTo, db.Time(created)
	return e, nil
}

func getEmail(ctx context.Context, r db.Reader, teamID, emailID string) (Email, error) {
	return scanEmail(r.QueryRow(ctx, `SELECT `+columns+` FROM received_emails WHERE team_id = $1 AND id = $2`,
		db.ID(teamID), db.ID(emailID)))
}

func listEmails(ctx context.Context, r db.Reader, teamID, threadID string, p page.Page) ([]Email, bool, error) {
	q := page.Select{Text: `SELECT ` + columns + ` FROM received_emails WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
	if threadID != "" {
		q.Text, q.Args = q.Text+` AND thread_id = $2`, append(q.Args, db.ID(threadID))
	}
	return page.Query(ctx, r, q, p, scanEmail)
}

func rawInRow(ctx context.Context, r db.Reader, teamID, emailID string) (raw []byte, err error) {
	err = r.QueryRow(ctx, `SELECT content FROM received_raws WHERE team_id = $1 AND email_id = $2`, db.ID(teamID),
		db.ID(emailID)).Scan(&raw)
	if err != nil {
		return nil, fmt.Errorf("read raw message: %w", err)
	}
	return raw, nil
}

// threadsOf returns the thread ids of received emails with the given Message-IDs, by team and Message-ID. Strangers can
// send emails with an existing Message-ID, so only the oldest email with a Message-ID counts.
func threadsOf(ctx context.Context, r db.Reader, teamIDs, messageIDs []string) (map[string]map[string]string, error) {
	rows, err := r.Query(ctx, `WITH own (team_id) AS (SELECT UNNEST(CAST($1 AS UUID[]))),
		refs (message_id) AS (SELECT UNNEST(CAST($2 AS TEXT[])))
		SELECT own.team_id, refs.message_id, (SELECT thread_id FROM received_emails e
			WHERE e.team_id = own.team_id AND e.message_id = refs.message_id ORDER BY e.team_id, e.message_id, e.id LIMIT 1)
		FROM own, refs`, db.IDs(teamIDs), messageIDs)
	found := map[string]map[string]string{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var teamID, messageID, threadID string
		err = r.Scan((*db.ID)(&teamID), &messageID, (*db.ID)(&threadID))
		if found[teamID] == nil {
			found[teamID] = map[string]string{}
		}
		found[teamID][messageID] = threadID
		return none, err
	})
	return found, err
}

// usedBlobs returns those of the given blob keys that any team's emails still use, because teams share blobs.
func usedBlobs(ctx context.Context, r db.Reader, keys []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT DISTINCT blob_key FROM received_emails WHERE blob_key = ANY($1) AND blob_key <> ''`,
		keys)
	return db.Collect(rows, err, scanText)
}

func scanText(r db.Row) (text string, err error) {
	err = r.Scan(&text)
	return text, err
}
