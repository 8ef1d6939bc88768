package emails

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	gaveHTML = 1 << iota // bits of the column parts
	gaveText
	hasFiles
	isRaw      // the sender composed the message, which is stored unchanged
	isBlob     // a blob contains the message without the prepended fields
	needsUTF8  // only hosts that support SMTPUTF8 accept the message
	markedBulk // the email is bulk mail
)

// recipientLists is the JSON value in the column recipients. The column recipients is read as a whole, and queries
// never look inside it. The column is empty if the email's only recipient is the only address in the lists.
type recipientLists struct {
	To      []string `json:"to"`
	Cc      []string `json:"cc,omitempty"`
	Bcc     []string `json:"bcc,omitempty"`
	ReplyTo []string `json:"reply_to,omitempty"`
}

// body is the content that an email does not share with others.
type body struct {
	parts               int
	headers, html, text string
}

// insertRow inserts an email's row and its own body; b is nil if the email has none. If the email is not scheduled, its
// first event is part of the row.
func insertRow(ctx context.Context, tx *db.Tx, e *Email, b *body) error {
	to, err := e.lists()
	if err != nil {
		return err
	}
	tags, err := db.EncodeList(e.Tags)
	if err != nil {
		return fmt.Errorf("encode tags: %w", err)
	}
	variables, err := e.shared.encoded()
	if err != nil {
		return err
	}
	messageID := e.MessageID
	if strings.HasPrefix(messageID, "<"+e.ID) && messageID == defaultMessageID(e.ID, e.From) {
		messageID = "" // omitted to save space
	}
	tx.Proof(`SELECT 1 FROM emails WHERE id = $1 AND team_id = $2`, db.ID(e.ID), db.ID(e.TeamID))
	args := []any{db.ID(e.ID), db.ID(e.TeamID), db.ID(e.Actor.ID), db.ID(e.DomainID), messageID, e.From, e.Subject, to,
		tags, db.ID(e.TopicID), db.ID(e.TemplateID), db.ID(e.BroadcastID), states.Number(e.LastEvent), rank[e.LastEvent],
		db.MicrosOrNull(e.ScheduledAt), e.CreatedAt.UnixMicro(), teams.ActorKinds.Number(e.Actor.Kind),
		db.ID(e.shared.contentID), variables, db.ID(e.ContactID), e.only}
	if b == nil {
		tx.QueueRow(ctx, insertOnly, args...)
		return nil
	}
	if tx.OneWriter() { // SQLite
		tx.QueueRow(ctx, insertOnly, args...)
		tx.Queue(ctx, `INSERT INTO email_bodies (email_id, team_id, parts, headers, html, body_text)
			VALUES ($1, $2, $3, $4, $5, $6)`, db.ID(e.ID), db.ID(e.TeamID), b.parts, b.headers, b.html, b.text)
		return nil
	}
	tx.QueueRow(ctx, insertWithBody, append(args, b.parts, b.headers, b.html, b.text)...)
	return nil
}

const (
	insertColumns = `id, team_id, actor_id, domain_id, message_id, sender, subject, recipients, tags, topic_id,
		template_id, broadcast_id, last_event, rank, scheduled_at, created_at, actor_kind, content_id, variables, contact_id,
		recipient`
	insertValues = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21`
	insertTypes  = `UUID UUID UUID UUID TEXT TEXT TEXT TEXT TEXT UUID UUID UUID SMALLINT SMALLINT BIGINT BIGINT SMALLINT
		UUID TEXT UUID TEXT`
)

// Statements that insert an email without a body of its own, or, on PostgreSQL, together with its body.
var (
	insertOnly     = db.InsertStatement(`emails (`+insertColumns+`)`, insertValues, insertTypes)
	insertWithBody = db.InsertStatement(`emails (`+insertColumns+`, parts, headers, html, body_text)`,
		insertValues+`, $22, $23, $24, $25`, insertTypes+` SMALLINT TEXT TEXT TEXT`)
)

// lists returns the value of the column recipients.
func (e *Email) lists() (string, error) {
	if e.only != "" && len(e.To) == 1 && e.To[0] == e.only && len(e.Cc)+len(e.Bcc)+len(e.ReplyTo) == 0 {
		return "", nil
	}
	text, err := json.Marshal(recipientLists{e.To, e.Cc, e.Bcc, e.ReplyTo})
	if err != nil {
		return "", fmt.Errorf("encode recipients: %w", err)
	}
	return string(text), nil
}

// defaultMessageID returns the Message-ID for an email whose sender has not chosen one; it returns "" if the From
// address cannot be parsed.
func defaultMessageID(emailID, from string) string {
	sender, err := message.ParseFrom(from)
	if err != nil {
		return ""
	}
	return "<" + emailID + "@" + sender.Domain + ">"
}

// insertRecipient inserts the row of a recipient, which only an email with several recipients has.
func insertRecipient(ctx context.Context, tx *db.Tx, e *Email, position int, r *recipient) {
	tx.Queue(ctx, `INSERT INTO email_recipients (email_id, position, team_id, kind, address, domain, state, rank,
		updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, db.ID(e.ID), position, db.ID(e.TeamID), recipientKinds.Number(r.kind),
		r.Addr(), r.Domain, states.Number(e.LastEvent), rank[e.LastEvent], e.CreatedAt.UnixMicro())
}

// insertEmail inserts an email with its recipients and, unless the email has only shared content, its body.
func insertEmail(ctx context.Context, tx *db.Tx, e *Email, d *draft) error {
	headers, err := db.EncodeList(d.Headers)
	if err != nil {
		return fmt.Errorf("encode headers: %w", err)
	}
	b := &body{headers: headers}
	if d.HTML != nil {
		b.html, b.parts = *d.HTML, b.parts|gaveHTML
	}
	if d.Text != nil {
		b.text, b.parts = *d.Text, b.parts|gaveText
	}
	if len(d.Attachments) > 0 {
		b.parts |= hasFiles
	}
	if e.bulk {
		b.parts |= markedBulk
	}
	if d.raw != nil {
		b.parts |= isRaw
		if d.raw.blobKey != "" {
			b.parts |= isBlob
		}
		tx.Queue(ctx, `INSERT INTO email_messages (email_id, team_id, content, blob_key) VALUES ($1, $2, $3, $4)`,
			db.ID(e.ID), db.ID(e.TeamID), d.raw.content, d.raw.blobKey)
		if d.raw.UTF8 {
			b.parts |= needsUTF8
		}
	}
	if e.shared.contentID != "" && b.parts == 0 && headers == "" {
		b = nil
	}
	if err := insertRow(ctx, tx, e, b); err != nil {
		return err
	}
	for i := range d.recipients {
		d.recipients[i].position = i
		if e.only == "" {
			insertRecipient(ctx, tx, e, i, &d.recipients[i])
		}
	}
	return nil
}

const emailColumns = `e.id, e.team_id, e.actor_id, e.domain_id, e.message_id, e.sender, e.subject, e.recipients,
	e.tags, e.topic_id, e.template_id, e.broadcast_id, e.last_event, COALESCE(e.scheduled_at, 0),
	e.created_at, e.actor_kind, e.contact_id, e.recipient, COALESCE(e.updated_at, e.created_at)`

// emailRow is the destination into which emailColumns are scanned.
type emailRow struct {
	Email
	to, tags           string
	last, actor        int16
	scheduled, created int64
	updated            int64
}

func (r *emailRow) dest(more ...any) []any {
	return append([]any{(*db.ID)(&r.ID), (*db.ID)(&r.TeamID), (*db.ID)(&r.Actor.ID), (*db.ID)(&r.DomainID), &r.MessageID,
		&r.From, &r.Subject, &r.to, &r.tags, (*db.ID)(&r.TopicID), (*db.ID)(&r.TemplateID), (*db.ID)(&r.BroadcastID),
		&r.last, &r.scheduled, &r.created, &r.actor, (*db.ID)(&r.ContactID), &r.only, &r.updated}, more...)
}

// complete sets the fields that are numbers in the database, or omitted. It is for delivery, which must not send an
// email whose state it does not know.
func (r *emailRow) complete() (err error) {
	if r.LastEvent, err = states.Name(r.last); err != nil {
		return fmt.Errorf("read email %s: %w", r.ID, err)
	}
	return r.completeOthers()
}

// completeOthers is like complete, but leaves out the state.
func (r *emailRow) completeOthers() (err error) {
	if r.Actor.Kind, err = teams.ActorKinds.Name(r.actor); err != nil {
		return fmt.Errorf("read email %s: %w", r.ID, err)
	}
	if r.MessageID == "" {
		r.MessageID = defaultMessageID(r.ID, r.From)
	}
	return nil
}

// decodeLists sets the lists of recipients and tags.
func (r *emailRow) decodeLists() (err error) {
	to := recipientLists{To: []string{r.only}}
	if r.to != "" || r.only == "" {
		to = recipientLists{}
		if err := json.Unmarshal([]byte(r.to), &to); err != nil {
			return fmt.Errorf("read the recipients of email %s: %w", r.ID, err)
		}
	}
	r.To, r.Cc, r.Bcc, r.ReplyTo = to.To, to.Cc, to.Bcc, to.ReplyTo
	if r.Tags, err = db.DecodeList[Tag](r.tags); err != nil {
		return fmt.Errorf("read the tags of email %s: %w", r.ID, err)
	}
	return nil
}

func (r *emailRow) email() (Email, error) {
	if err := errors.Join(r.decodeLists(), r.completeOthers()); err != nil {
		return Email{}, err
	}
	r.LastEvent = readState(r.last)
	e := r.Email
	e.ScheduledAt, e.CreatedAt = db.Time(r.scheduled), db.Time(r.created)
	e.updatedAt = db.Time(r.updated)
	return e, nil
}

// getEmail returns an email with its own body, if it has one. If the email has neither a body nor shared content, its
// content has been deleted.
func getEmail(ctx context.Context, r db.Reader, teamID, emailID string) (Email, error) {
	var html, text string
	e, flags, err := selectEmail(ctx, r, teamID, emailID, `COALESCE(b.html, ''), COALESCE(b.body_text, '')`, &html, &text)
	return e.withBody(flags, html, text), err
}

// getEmailWithin is like getEmail, but with a size limit, in bytes, for the body. The second result is the size of the
// body. If the body exceeds the limit, the database does not read it, and the email is returned without a body.
func getEmailWithin(ctx context.Context, r db.Reader, teamID, emailID string, most int) (e Email, size int64,
	err error) {
	var html, text string
	const bodySize = `OCTET_LENGTH(COALESCE(b.html, '')) + OCTET_LENGTH(COALESCE(b.body_text, ''))`
	columns := fmt.Sprintf(`%[1]s, CASE WHEN %[1]s > %[2]d THEN '' ELSE COALESCE(b.html, '') END,
		CASE WHEN %[1]s > %[2]d THEN '' ELSE COALESCE(b.body_text, '') END`, bodySize, most)
	e, flags, err := selectEmail(ctx, r, teamID, emailID, columns, &size, &html, &text)
	return e.withBody(flags, html, text), size, err
}

// withBody returns the email with the HTML and the text that its sender provided.
func (e Email) withBody(flags int, html, text string) Email {
	if flags&gaveHTML != 0 {
		e.HTML = &html
	}
	if flags&gaveText != 0 {
		e.Text = &text
	}
	return e
}

// readEmail returns an email without its body. The database does not read the body for this query.
func readEmail(ctx context.Context, r db.Reader, teamID, emailID string) (Email, error) {
	e, _, err := selectEmail(ctx, r, teamID, emailID, `0`, new(int))
	return e, err
}

// bodyTable joins the own body of an email, if it has one.
const bodyTable = ` LEFT JOIN email_bodies b ON b.email_id = e.id AND b.team_id = e.team_id`

// selectEmail reads an email and additional columns.
func selectEmail(ctx context.Context, r db.Reader, teamID, emailID, columns string, dest ...any) (Email, int, error) {
	var row emailRow
	var variables string
	var flags int
	err := r.QueryRow(ctx, `SELECT `+emailColumns+`, e.content_id, e.variables, COALESCE(b.parts, 0), `+columns+`
		FROM emails e`+bodyTable+` WHERE e.id = $1 AND e.team_id = $2`, db.ID(emailID),
		db.ID(teamID)).
		Scan(row.dest(append([]any{(*db.ID)(&row.shared.contentID), &variables, &flags}, dest...)...)...)
	if errors.Is(err, db.ErrNoRows) {
		return Email{}, 0, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return Email{}, 0, fmt.Errorf("read email: %w", err)
	}
	e, err := row.email()
	if err != nil {
		return e, 0, err
	}
	if err := e.shared.decode(variables); err != nil {
		return e, 0, fmt.Errorf("read the variables of email %s: %w", emailID, err)
	}
	e.bulk, e.isRaw = flags&markedBulk != 0, flags&isRaw != 0
	e.hasHTML = flags&gaveHTML != 0 && !e.isRaw
	return e, flags, nil
}

// exists returns a NotFound fault if the team has no email with this id.
func exists(ctx context.Context, r db.Reader, teamID, emailID string) error {
	var one int
	err := r.QueryRow(ctx, `SELECT 1 FROM emails WHERE id = $1 AND team_id = $2`, db.ID(emailID),
		db.ID(teamID)).Scan(&one)
	if errors.Is(err, db.ErrNoRows) {
		return fault.NotFoundf("Email not found")
	}
	if err != nil {
		return fmt.Errorf("look for email %s: %w", emailID, err)
	}
	return nil
}

func listEmails(ctx context.Context, d *db.DB, teamID string, p page.Page) ([]Email, bool, error) {
	return page.Query(ctx, d.Reader, emailsOf(d, teamID), p, scanEmail)
}

// recipientsOf returns the recipients of the given emails, in envelope order, as a map keyed by email id. The map lacks
// emails with one recipient, which have no rows of recipients.
func recipientsOf(ctx context.Context, r db.Reader, teamID string, emailIDs []string) (map[string][]Recipient, error) {
	of := map[string][]Recipient{}
	if len(emailIDs) == 0 {
		return of, nil
	}
	rows, err := r.Query(ctx, `SELECT email_id, kind, address, state, updated_at FROM email_recipients
		WHERE email_id = ANY($1) AND team_id = $2 ORDER BY email_id, position`, db.IDs(emailIDs), db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID string
		var to Recipient
		var at int64
		var kind, state int16
		if err := r.Scan((*db.ID)(&emailID), &kind, &to.Address, &state, &at); err != nil {
			return none, err
		}
		if to.Kind, err = recipientKinds.Name(kind); err != nil {
			return none, err
		}
		to.State = readState(state)
		to.UpdatedAt = db.Time(at)
		of[emailID] = append(of[emailID], to)
		return none, err
	})
	return of, err
}

// pending returns those envelope addresses of an email that are not settled, in envelope order. If domain is not "",
// only addresses at the destination domain are returned.
func pending(ctx context.Context, r db.Reader, e *Email, domain string) ([]recipient, error) {
	if e.only != "" {
		return onlyPending(e, domain)
	}
	rows, err := r.Query(ctx, `SELECT r.kind, r.address, r.position FROM email_recipients r
		WHERE r.email_id = $1 AND (r.domain = $3 OR CAST($3 AS TEXT) = '') AND r.rank < $2 ORDER BY r.position`,
		db.ID(e.ID), settled, domain)
	return db.Collect(rows, err, func(r db.Row) (to recipient, err error) {
		var address string
		var kind int16
		if err := r.Scan(&kind, &address, &to.position); err != nil {
			return to, err
		}
		if to.kind, err = recipientKinds.Name(kind); err != nil {
			return to, err
		}
		to.Address, err = message.ParseAddress(address)
		return to, err
	})
}

// positionOf returns a recipient's position in the envelope of an email with several recipients, or -1 if the address
// is not a recipient.
func positionOf(ctx context.Context, r db.Reader, teamID, emailID, address string) (position int, err error) {
	err = r.QueryRow(ctx, `SELECT position FROM email_recipients WHERE email_id = $1 AND team_id = $2 AND address = $3`,
		db.ID(emailID), db.ID(teamID), address).Scan(&position)
	if errors.Is(err, db.ErrNoRows) {
		return -1, nil
	}
	return position, err
}

// sizes holds the sizes of the parts of an email's content, in bytes.
type sizes struct {
	teamID, domainID   string
	shared             shared
	flags              int
	texts, attachments int64
}

// sizeOf reads the sizes of an email's content without reading the content itself.
func sizeOf(ctx context.Context, r db.Reader, teamID, emailID string) (z sizes, err error) {
	var variables string
	err = r.QueryRow(ctx, `SELECT e.team_id, e.domain_id, e.content_id, e.variables, COALESCE(b.parts, 0),
		COALESCE(OCTET_LENGTH(b.html) + OCTET_LENGTH(b.body_text), 0),
		(SELECT CAST(COALESCE(SUM(a.size), 0) AS BIGINT) FROM email_attachments a WHERE a.email_id = e.id)
		FROM emails e`+bodyTable+`
		WHERE e.id = $1 AND e.team_id = $2 AND (b.parts IS NOT NULL OR e.content_id IS NOT NULL)`, db.ID(emailID),
		db.ID(teamID)).
		Scan((*db.ID)(&z.teamID), (*db.ID)(&z.domainID), (*db.ID)(&z.shared.contentID), &variables, &z.flags, &z.texts,
			&z.attachments)
	if err == nil {
		err = z.shared.decode(variables)
	}
	return z, err
}
