package receiving

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/search"
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

// row is an email whose columns with attachments and checks are not decoded yet.
type row struct {
	Email
	files, origin, authentication, spam string // JSON
}

func scanRow(r db.Row) (e row, err error) {
	var to, received string
	var created int64
	err = r.Scan((*db.ID)(&e.TeamID), (*db.ID)(&e.ID), (*db.ID)(&e.DomainID), &e.From, &e.Subject, &e.MessageID, &to,
		&received, &e.files, (*db.ID)(&e.ThreadID), &e.origin, &e.authentication, &e.spam, &e.Size, &e.blobKey, &created)
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return e, fmt.Errorf("read received email: %w", err)
	}
	var list recipients
	err = errors.Join(e.read(to, &list), e.read(received, &e.ReceivedFor))
	e.To, e.Cc, e.Bcc, e.ReplyTo, e.CreatedAt = list.To, list.Cc, list.Bcc, list.ReplyTo, db.Time(created)
	return e, err
}

// decode decodes the other columns.
func (e *row) decode() error {
	return errors.Join(e.read(e.files, &e.Files), e.read(e.origin, &e.Origin),
		e.read(e.authentication, &e.Authentication), e.read(e.spam, &e.Spam))
}

// read decodes the JSON of a column, if it has any.
func (e *row) read(text string, dst any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), dst); err != nil {
		return fmt.Errorf("read received email %s: %w", e.ID, err)
	}
	return nil
}

func scanEmail(r db.Row) (Email, error) {
	e, err := scanRow(r)
	if err == nil {
		err = e.decode()
	}
	return e.Email, err
}

func getEmail(ctx context.Context, r db.Reader, teamID, emailID string) (Email, error) {
	return scanEmail(r.QueryRow(ctx, `SELECT `+columns+` FROM received_emails WHERE team_id = $1 AND id = $2`,
		db.ID(teamID), db.ID(emailID)))
}

// selectEmails selects a team's emails, or those of one conversation.
func selectEmails(teamID, threadID string) page.Select {
	if threadID == "" {
		return page.Select{Text: `SELECT ` + columns + ` FROM received_emails WHERE team_id = $1`, ID: "id",
			Args: []any{db.ID(teamID)}}
	}
	// With bounds on the id, SQLite would use the primary key, and read the emails of all conversations.
	return page.Select{Text: `SELECT ` + columns + ` FROM received_emails /*sqlite: INDEXED BY received_emails_thread */
		WHERE team_id = $1 AND thread_id = $2`, ID: "id", Args: []any{db.ID(teamID), db.ID(threadID)}}
}

func listEmails(ctx context.Context, r db.Reader, teamID, threadID string, p page.Page) ([]Email, bool, error) {
	return page.Query(ctx, r, selectEmails(teamID, threadID), p, scanEmail)
}

// searchedEmails returns the list in which a search for emails reads.
func searchedEmails(d *db.DB, teamID string, f *Filter) search.List[row] {
	all := selectEmails(teamID, f.ThreadID)
	some := all
	some.Args = slices.Clone(all.Args)
	add := func(condition string, arg any) {
		some.Args = append(some.Args, arg)
		some.Text += fmt.Sprintf(" AND "+condition, len(some.Args))
	}
	if !f.CreatedAfter.IsZero() {
		add("created_at >= $%d", f.CreatedAfter.UnixMicro())
	}
	if !f.CreatedBefore.IsZero() {
		add("created_at < $%d", f.CreatedBefore.UnixMicro())
	}
	return search.List[row]{DB: d, TeamID: teamID, All: all, Some: some, Scan: scanRow,
		ID: func(e *row) string { return e.ID }}
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
