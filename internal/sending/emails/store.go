package emails

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/render"
)

const (
	gaveHTML = 1 << iota // bits of email_bodies.parts
	gaveText
	hasFiles
	isRaw      // the message is stored as its caller composed it
	isBlob     // in a blob, except the prepended fields
	needsUTF8  // and only hosts with SMTPUTF8 take it
	markedBulk // it is bulk mail
)

// stored is the JSON in the recipients column: it is read whole and never queried.
type recipientLists struct {
	To      []string `json:"to"`
	Cc      []string `json:"cc,omitempty"`
	Bcc     []string `json:"bcc,omitempty"`
	ReplyTo []string `json:"reply_to,omitempty"`
}

// insertRow inserts an email's row into the table emails.
func insertRow(ctx context.Context, tx *db.Tx, e *Email) error {
	to, err := json.Marshal(recipientLists{e.To, e.Cc, e.Bcc, e.ReplyTo})
	if err != nil {
		return fmt.Errorf("encode recipients: %w", err)
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
	if e.BroadcastID != "" && messageID == defaultMessageID(e.ID, e.From) {
		messageID = "" // one of many: it need not be stored
	}
	tx.Queue(ctx, `INSERT INTO emails (id, team_id, api_key_id, domain_id, message_id, sender, subject, recipients,
		tags, topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at, actor_kind, content_id,
		variables, contact_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`,
		e.ID, e.TeamID, e.Actor.ID, e.DomainID, messageID, e.From, e.Subject, string(to), tags, e.TopicID, e.TemplateID,
		e.BroadcastID, string(e.LastEvent), rank[e.LastEvent], db.Micros(e.ScheduledAt), e.CreatedAt.UnixMicro(),
		string(e.Actor.Kind), e.shared.contentID, variables, e.ContactID)
	return nil
}

// defaultMessageID is the Message-ID of an email that has no other one; "" if the sender cannot be parsed.
func defaultMessageID(emailID, from string) string {
	sender, err := message.ParseFrom(from)
	if err != nil {
		return ""
	}
	return "<" + emailID + "@" + sender.Domain + ">"
}

func insertRecipient(ctx context.Context, tx *db.Tx, e *Email, position int, r *recipient) {
	tx.Queue(ctx, `INSERT INTO email_recipients (email_id, position, team_id, kind, address, domain, state, rank,
		updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
		$9)`, e.ID, position, e.TeamID, r.kind, r.Addr(), r.Domain, string(e.LastEvent),
		rank[e.LastEvent], e.CreatedAt.UnixMicro())
}

// insertEmail inserts an email with its body, unless it has a shared content and nothing besides.
func insertEmail(ctx context.Context, tx *db.Tx, e *Email, d *draft) error {
	headers, err := db.EncodeList(d.Headers)
	if err != nil {
		return fmt.Errorf("encode headers: %w", err)
	}
	if err := insertRow(ctx, tx, e); err != nil {
		return err
	}
	html, text, parts := "", "", 0
	if d.HTML != nil {
		html, parts = *d.HTML, parts|gaveHTML
	}
	if d.Text != nil {
		text, parts = *d.Text, parts|gaveText
	}
	if len(d.Attachments) > 0 {
		parts |= hasFiles
	}
	if e.bulk {
		parts |= markedBulk
	}
	if d.raw != nil {
		parts |= isRaw
		if d.raw.blobKey != "" {
			parts |= isBlob
		}
		tx.Queue(ctx, `INSERT INTO email_messages (email_id, team_id, content, blob_key) VALUES ($1, $2, $3, $4)`, e.ID,
			e.TeamID,
			d.raw.content, d.raw.blobKey)
		if d.raw.UTF8 {
			parts |= needsUTF8
		}
	}
	if e.shared.contentID == "" || parts != 0 || headers != "" {
		tx.Queue(ctx, `INSERT INTO email_bodies (email_id, team_id, html, body_text, parts, headers)
			VALUES ($1, $2, $3, $4, $5, $6)`,
			e.ID, e.TeamID, html, text, parts, headers)
	}
	for i := range d.recipients {
		d.recipients[i].position = i
		insertRecipient(ctx, tx, e, i, &d.recipients[i])
	}
	return nil
}

const emailColumns = `e.id, e.team_id, e.api_key_id, e.domain_id, e.message_id, e.sender, e.subject, e.recipients,
	e.tags, e.topic_id, e.template_id, e.broadcast_id, e.last_event, e.scheduled_at, e.created_at, e.actor_kind,
	e.contact_id`

// emailRow is the destination of scanning emailColumns.
type emailRow struct {
	Email
	to, tags           string
	last               string
	scheduled, created int64
}

func (r *emailRow) dest(more ...any) []any {
	return append([]any{&r.ID, &r.TeamID, &r.Actor.ID, &r.DomainID, &r.MessageID, &r.From, &r.Subject, &r.to, &r.tags,
		&r.TopicID,
		&r.TemplateID, &r.BroadcastID, &r.last, &r.scheduled, &r.created, &r.Actor.Kind, &r.ContactID}, more...)
}

// complete sets what is not stored of an email.
func (r *emailRow) complete() {
	if r.MessageID == "" {
		r.MessageID = defaultMessageID(r.ID, r.From)
	}
}

func (r *emailRow) email() (Email, error) {
	var to recipientLists
	if err := json.Unmarshal([]byte(r.to), &to); err != nil {
		return Email{}, fmt.Errorf("read the recipients of email %s: %w", r.ID, err)
	}
	tags, err := db.DecodeList[Tag](r.tags)
	if err != nil {
		return Email{}, fmt.Errorf("read the tags of email %s: %w", r.ID, err)
	}
	r.complete()
	e := r.Email
	e.To, e.Cc, e.Bcc, e.ReplyTo, e.Tags = to.To, to.Cc, to.Bcc, to.ReplyTo, tags
	e.LastEvent, e.ScheduledAt, e.CreatedAt = State(r.last), db.Time(r.scheduled), db.Time(r.created)
	return e, nil
}

// getEmail returns an email with the body of its own, if it has one. If it has neither that nor a shared content, its
// content was deleted.
func getEmail(ctx context.Context, r db.Reader, teamID, emailID string) (Email, error) {
	var html, text string
	e, parts, err := selectEmail(ctx, r, teamID, emailID, `COALESCE(b.html, ''), COALESCE(b.body_text, '')`, &html, &text)
	return e.withBody(parts, html, text), err
}

// getEmailWithin is getEmail if the body has at most so many octets, and otherwise returns an empty one, which neither
// engine reads then. size is how many it has.
func getEmailWithin(ctx context.Context, r db.Reader, teamID, emailID string, most int) (e Email, size int64,
	err error) {
	var html, text string
	const octets = `OCTET_LENGTH(COALESCE(b.html, '')) + OCTET_LENGTH(COALESCE(b.body_text, ''))`
	columns := fmt.Sprintf(`%[1]s, CASE WHEN %[1]s > %[2]d THEN '' ELSE COALESCE(b.html, '') END,
		CASE WHEN %[1]s > %[2]d THEN '' ELSE COALESCE(b.body_text, '') END`, octets, most)
	e, parts, err := selectEmail(ctx, r, teamID, emailID, columns, &size, &html, &text)
	return e.withBody(parts, html, text), size, err
}

// withBody returns an email with those texts that were given.
func (e Email) withBody(parts int, html, text string) Email {
	if parts&gaveHTML != 0 {
		e.HTML = &html
	}
	if parts&gaveText != 0 {
		e.Text = &text
	}
	return e
}

// readEmail returns an email without its body, which neither engine reads for this query.
func readEmail(ctx context.Context, r db.Reader, teamID, emailID string) (Email, error) {
	e, _, err := selectEmail(ctx, r, teamID, emailID, `0`, new(int))
	return e, err
}

// selectEmail reads an email and additional columns.
func selectEmail(ctx context.Context, r db.Reader, teamID, emailID, columns string, dest ...any) (Email, int, error) {
	var row emailRow
	var variables string
	var parts int
	err := r.QueryRow(ctx, `SELECT `+emailColumns+`, e.content_id, e.variables, COALESCE(b.parts, 0), `+columns+`
		FROM emails e LEFT JOIN email_bodies b ON b.email_id = e.id WHERE e.id = $1 AND e.team_id = $2`, emailID, teamID).
		Scan(row.dest(append([]any{&row.shared.contentID, &variables, &parts}, dest...)...)...)
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
	e.bulk, e.isRaw = parts&markedBulk != 0, parts&isRaw != 0
	e.hasHTML = parts&gaveHTML != 0 && !e.isRaw
	return e, parts, nil
}

// exists returns a NotFound fault when the team has no such email.
func exists(ctx context.Context, r db.Reader, teamID, emailID string) error {
	var one int
	err := r.QueryRow(ctx, `SELECT 1 FROM emails WHERE id = $1 AND team_id = $2`, emailID, teamID).Scan(&one)
	if errors.Is(err, db.ErrNoRows) {
		return fault.NotFoundf("Email not found")
	}
	if err != nil {
		return fmt.Errorf("look for email %s: %w", emailID, err)
	}
	return nil
}

func listEmails(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Email, bool, error) {
	return page.Query(ctx, r, emailsWithin(teamID, Span{}), p, scanEmail)
}

func listRecipients(ctx context.Context, r db.Reader, teamID, emailID string) ([]Recipient, error) {
	rows, err := r.Query(ctx, `SELECT kind, address, state, updated_at FROM email_recipients
		WHERE email_id = $1 AND team_id = $2 ORDER BY position`, emailID, teamID)
	return db.Collect(rows, err, func(r db.Row) (to Recipient, err error) {
		var state string
		var at int64
		err = r.Scan(&to.Kind, &to.Address, &state, &at)
		to.State, to.UpdatedAt = State(state), db.Time(at)
		return to, err
	})
}

// pending returns the envelope addresses of an email that are not settled, of one destination, or of all if domain is
// "", in order.
func pending(ctx context.Context, r db.Reader, emailID, domain string) ([]recipient, error) {
	rows, err := r.Query(ctx, `SELECT r.kind, r.address, r.position FROM email_recipients r
		WHERE r.email_id = $1 AND (r.domain = $3 OR CAST($3 AS TEXT) = '') AND r.rank < $2 ORDER BY r.position`,
		emailID, settled, domain)
	return db.Collect(rows, err, func(r db.Row) (to recipient, err error) {
		var address string
		if err := r.Scan(&to.kind, &address, &to.position); err != nil {
			return to, err
		}
		to.Address, err = message.ParseAddress(address)
		return to, err
	})
}

// positionOf returns the position of a recipient in the envelope of an email, -1 if there is none of that address.
func positionOf(ctx context.Context, r db.Reader, teamID, emailID, address string) (position int, err error) {
	err = r.QueryRow(ctx, `SELECT position FROM email_recipients WHERE email_id = $1 AND team_id = $2 AND address = $3`,
		emailID, teamID, address).Scan(&position)
	if errors.Is(err, db.ErrNoRows) {
		return -1, nil
	}
	return position, err
}

// setSchedule changes the time of a scheduled email. It reports false if there is none.
func setSchedule(ctx context.Context, tx *db.Tx, teamID, emailID string,
	at interface{ UnixMicro() int64 }) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET scheduled_at = $3 WHERE id = $1 AND team_id = $2
		AND last_event = 'scheduled'`,
		emailID, teamID, at.UnixMicro())
	return n > 0, err
}

// lockSchedule returns when a scheduled email is due, and blocks changes to that until the transaction ends. ok is
// false if the email does not exist or is not scheduled.
func lockSchedule(ctx context.Context, tx *db.Tx, teamID, emailID string) (at time.Time, ok bool, err error) {
	var us int64
	err = tx.QueryRow(ctx, `UPDATE emails SET scheduled_at = scheduled_at WHERE id = $1 AND team_id = $2
		AND last_event = 'scheduled'
		RETURNING scheduled_at`, emailID, teamID).Scan(&us)
	if errors.Is(err, db.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("read when email %s is due: %w", emailID, err)
	}
	return db.Time(us), true, nil
}

// takeScheduled advances an email out of the state scheduled if its time is not after until. Of Cancel and the release
// at its time only one succeeds; the other gets nil.
func takeScheduled(ctx context.Context, tx *db.Tx, teamID, emailID string, to State, until int64) (*Email, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET last_event = $3, rank = $4
		WHERE id = $1 AND team_id = $2 AND last_event = 'scheduled' AND scheduled_at <=
		$5`, emailID, teamID, string(to), rank[to], until)
	if err != nil || n == 0 {
		return nil, err
	}
	tx.Queue(ctx, `UPDATE email_recipients SET state = $2, rank = $3, updated_at = $4 WHERE email_id = $1 AND rank < $3`,
		emailID, string(to), rank[to], tx.Now().UnixMicro())
	e, err := readEmail(ctx, tx.Reader, teamID, emailID)
	return &e, err
}

// sizes are the sizes of the content of an email, in octets.
type sizes struct {
	teamID, domainID   string
	shared             shared
	parts              int
	texts, attachments int64
}

// sizeOf reads the sizes only: neither engine reads the texts for this query. It takes no team, because delivery calls
// it and knows only the job's.
func sizeOf(ctx context.Context, r db.Reader, emailID string) (z sizes, err error) {
	var variables string
	err = r.QueryRow(ctx, `SELECT e.team_id, e.domain_id, e.content_id, e.variables, COALESCE(b.parts, 0),
		COALESCE(OCTET_LENGTH(b.html) + OCTET_LENGTH(b.body_text), 0),
		(SELECT CAST(COALESCE(SUM(a.size), 0) AS BIGINT) FROM email_attachments a WHERE a.email_id = e.id)
		FROM emails e LEFT JOIN email_bodies b ON b.email_id = e.id
		WHERE e.id = $1 AND (b.email_id IS NOT NULL OR e.content_id <> '')`, emailID).
		Scan(&z.teamID, &z.domainID, &z.shared.contentID, &variables, &z.parts, &z.texts, &z.attachments)
	if err == nil {
		err = z.shared.decode(variables)
	}
	return z, err
}

// anyScheduled reads the release jobs in the team's lane, which are those of all its scheduled emails.
func anyScheduled(ctx context.Context, r db.Reader, teamID, domainID string) (found bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM jobs j JOIN emails e ON e.id = j.dedupe
		WHERE j.kind = $1 AND j.lane = $2 AND e.team_id || '' = $2 AND e.domain_id = $3 AND e.last_event = 'scheduled')`,
		ReleaseKind, teamID, domainID).Scan(&found)
	return found, err
}

func insertAttachment(ctx context.Context, tx *db.Tx, a *Attachment) {
	tx.Queue(ctx, `INSERT INTO email_attachments (id, email_id, team_id, filename, content_type, content_id, size,
		blob_key, path)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
		$9)`, a.ID, a.EmailID, a.TeamID, a.Filename, a.ContentType, a.ContentID, a.Size,
		a.blobKey, a.path)
}

const attachmentColumns = `id, email_id, team_id, filename, content_type, content_id, size, blob_key, path`

func scanAttachment(r db.Row) (a Attachment, err error) {
	err = r.Scan(&a.ID, &a.EmailID, &a.TeamID, &a.Filename, &a.ContentType, &a.ContentID, &a.Size, &a.blobKey, &a.path)
	return a, err
}

func attachmentsOf(ctx context.Context, r db.Reader, teamID, emailID string) ([]Attachment, error) {
	rows, err := r.Query(ctx, `SELECT `+attachmentColumns+
		` FROM email_attachments WHERE email_id = $1 AND team_id = $2 ORDER BY id`,
		emailID, teamID)
	return db.Collect(rows, err, scanAttachment)
}

func pageOfAttachments(ctx context.Context, r db.Reader, teamID, emailID string,
	p page.Page) ([]Attachment, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + attachmentColumns + ` FROM email_attachments
		WHERE email_id = $1 AND team_id = $2`, ID: "id", Args: []any{emailID, teamID}}, p, scanAttachment)
}

func getAttachment(ctx context.Context, r db.Reader, teamID, emailID, attachmentID string) (Attachment, error) {
	a, err := scanAttachment(r.QueryRow(ctx, `SELECT `+attachmentColumns+` FROM email_attachments
		WHERE id = $1 AND email_id = $2 AND team_id = $3`, attachmentID, emailID, teamID))
	if errors.Is(err, db.ErrNoRows) {
		return a, fault.NotFoundf("Attachment not found")
	}
	if err != nil {
		return a, fmt.Errorf("read attachment: %w", err)
	}
	return a, nil
}

// messageInRow reads the part of a caller's composed message that is in a row, and the key of the blob with the rest,
// "" when there is none.
func messageInRow(ctx context.Context, r db.Reader, teamID, emailID string) (text []byte, blobKey string, err error) {
	err = r.QueryRow(ctx, `SELECT content, blob_key FROM email_messages WHERE email_id = $1 AND team_id = $2`, emailID,
		teamID).
		Scan(&text, &blobKey)
	if errors.Is(err, db.ErrNoRows) {
		return nil, rawPrefix + emailID, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the message of email %s: %w", emailID, err)
	}
	return text, blobKey, nil
}

// usedBlobs returns those of the keys that an email of any team refers to. The sweep calls it. For messages without a
// row, the name in the key is the id of their email.
func usedBlobs(ctx context.Context, r db.Reader, keys, names []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT blob_key FROM email_attachments WHERE blob_key = ANY($1) AND blob_key <> ''
		UNION ALL SELECT blob_key FROM email_messages WHERE blob_key = ANY($1) AND blob_key <> ''
		UNION ALL SELECT '`+rawPrefix+`' || email_id FROM email_bodies WHERE email_id = ANY($2)`, keys, names)
	return db.Collect(rows, err, scanText)
}

func setFetched(ctx context.Context, tx *db.Tx, a *Attachment) {
	tx.Queue(ctx, `UPDATE email_attachments SET blob_key = $3, size = $4, content_type = $5 WHERE email_id = $1
		AND id = $2`,
		a.EmailID, a.ID, a.blobKey, a.Size, a.ContentType)
}

// RecordAttempt inserts an attempt, in the transaction that records its outcome.
func RecordAttempt(ctx context.Context, tx *db.Tx, a Attempt) error {
	to, err := json.Marshal(a.Recipients)
	if err != nil {
		return fmt.Errorf("encode recipients: %w", err)
	}
	attemptID := id.At(tx.Now())
	tx.Proof(`SELECT 1 FROM email_attempts WHERE id = $1 AND email_id = $2`, attemptID, a.EmailID)
	tx.Queue(ctx, `INSERT INTO email_attempts (id, team_id, email_id, destination, recipients, host, tls, outcome, reply,
		conversation, started_at, duration, next_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		attemptID, a.TeamID, a.EmailID, a.Destination, string(to), a.Host, a.TLS, a.Outcome, a.Reply, a.Conversation,
		a.StartedAt.UnixMicro(), a.Duration.Microseconds(), db.Micros(a.NextAt))
	return nil
}

// attemptsMax bounds how many attempts of one email are read at once if no limit is asked for. Each job of an email
// makes some tens at most, but an email to many recipients has many jobs.
const attemptsMax = 500

func listAttempts(ctx context.Context, r db.Reader, teamID, emailID string, p page.Page) ([]Attempt, bool, error) {
	if p.Limit <= 0 {
		p.Limit = attemptsMax
	}
	return page.Query(ctx, r, page.Select{Text: `SELECT id, team_id, email_id, destination, recipients, host, tls,
		outcome, reply, conversation, started_at, duration, next_at FROM email_attempts
		WHERE email_id = $1 AND team_id = $2`, ID: "id", Args: []any{emailID, teamID}, OldestFirst: true}, p, scanAttempt)
}

func scanAttempt(r db.Row) (a Attempt, err error) {
	var to string
	var started, duration, next int64
	if err := r.Scan(&a.ID, &a.TeamID, &a.EmailID, &a.Destination, &to, &a.Host, &a.TLS, &a.Outcome, &a.Reply,
		&a.Conversation, &started, &duration, &next); err != nil {
		return a, err
	}
	a.StartedAt, a.Duration, a.NextAt = db.Time(started), microseconds(duration), db.Time(next)
	a.Recipients, err = db.DecodeList[string](to)
	return a, err
}

// OutcomeUnknown is the outcome of an attempt in which the host did not say whether it accepted the message.
const OutcomeUnknown = "unknown"

// UnknownAttempts counts the attempts at a destination that ended as Unsure; with addresses, only those that had one of
// them as a recipient.
func UnknownAttempts(ctx context.Context, r db.Reader, teamID, emailID, destination string, to ...string,
) (n int, err error) {
	rows, err := r.Query(ctx, `SELECT recipients FROM email_attempts WHERE email_id = $1 AND team_id = $2
		AND destination = $3 AND outcome = $4 ORDER BY id DESC LIMIT $5`, emailID, teamID, destination, OutcomeUnknown, attemptsMax)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var text string
		if err := r.Scan(&text); err != nil {
			return none, err
		}
		had, err := db.DecodeList[string](text)
		if len(to) == 0 || slices.ContainsFunc(had, func(a string) bool { return slices.Contains(to, a) }) {
			n++
		}
		return none, err
	})
	if err != nil {
		return 0, fmt.Errorf("count attempts of email %s: %w", emailID, err)
	}
	return n, nil
}

// bounceTarget reads an email and its recipients for a report about it. It takes no team: a report has only the signed
// return path or the Message-ID, and the email determines the team.
func bounceTarget(ctx context.Context, r db.Reader, emailID string) (BounceTarget, error) {
	e := BounceTarget{ID: emailID}
	var from string
	err := r.QueryRow(ctx, `SELECT team_id, domain_id, broadcast_id, contact_id, message_id, sender FROM emails
		WHERE id = $1`, emailID).Scan(&e.TeamID, &e.DomainID, &e.BroadcastID, &e.ContactID, &e.MessageID, &from)
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return e, fmt.Errorf("read the email of a report: %w", err)
	}
	if e.MessageID == "" {
		e.MessageID = defaultMessageID(emailID, from)
	}
	rows, err := r.Query(ctx, `SELECT address, domain FROM email_recipients WHERE email_id = $1 AND team_id = $2
		ORDER BY position`,
		emailID, e.TeamID)
	e.To, err = db.Collect(rows, err, func(r db.Row) (to BounceRecipient, err error) {
		err = r.Scan(&to.Address, &to.Domain)
		return to, err
	})
	return e, err
}

func teamsOf(ctx context.Context, r db.Reader, teamIDs, emailIDs []string) (map[string]string, error) {
	rows, err := r.Query(ctx, `SELECT id, team_id FROM emails WHERE id = ANY($1) AND team_id = ANY($2)`, emailIDs, teamIDs)
	found := make(map[string]string, len(emailIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID, teamID string
		err = r.Scan(&emailID, &teamID)
		found[emailID] = teamID
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for sent emails: %w", err)
	}
	return found, nil
}

// headersOf returns the header fields that an email was given: those of its shared content, filled in, and then its
// own.
func headersOf(ctx context.Context, r db.Reader, teamID, emailID string) ([]message.Field, error) {
	var f fields
	err := r.QueryRow(ctx, `SELECT `+fieldColumns+` FROM emails e`+fieldTables+` WHERE e.id = $1 AND e.team_id = $2`,
		emailID,
		teamID).Scan(f.dest()...)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the headers of email %s: %w", emailID, err)
	}
	return f.decode()
}

// fieldColumns are the columns from which fields is scanned, for an email e joined with fieldTables.
const (
	fieldColumns = `COALESCE(c.headers, ''), e.variables, COALESCE(b.headers, '')`
	fieldTables  = ` LEFT JOIN email_bodies b ON b.email_id = e.id LEFT JOIN contents c ON c.id = e.content_id`
)

// fields are the stored header fields of an email.
type fields struct{ shared, variables, own string }

func (f *fields) dest() []any { return []any{&f.shared, &f.variables, &f.own} }

func (f *fields) decode() ([]message.Field, error) {
	var of shared
	if err := of.decode(f.variables); err != nil {
		return nil, fmt.Errorf("read the variables of an email: %w", err)
	}
	all, err := db.DecodeList[message.Field](f.shared)
	if err != nil {
		return nil, fmt.Errorf("read the headers of a content: %w", err)
	}
	for i := range all {
		t := render.Compile(all[i].Value)
		all[i].Value = t.Line(of.values)
	}
	own, err := db.DecodeList[message.Field](f.own)
	if err != nil {
		return nil, fmt.Errorf("read the headers of an email: %w", err)
	}
	return append(all, own...), nil
}

// lockRecipients blocks other transactions that report on one of the addresses until this one ends. It returns the
// addresses that are recipients.
func lockRecipients(ctx context.Context, tx *db.Tx, teamID, emailID string, addresses []string) (ReportHistory, error) {
	rows, err := tx.Query(ctx, `UPDATE email_recipients SET state = state WHERE email_id = $1 AND team_id = $2
		AND address = ANY($3)
		RETURNING address`, emailID, teamID, addresses)
	known := ReportHistory{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var address string
		err = r.Scan(&address)
		known[address] = nil
		return none, err
	})
	return known, err
}

// The expression on team_id keeps SQLite from choosing the index of the team's events by time.
const selectBefore = `SELECT DISTINCT recipient, type FROM email_events WHERE email_id = $1 AND team_id || '' = $2
	AND recipient = ANY($3)`

// load adds the types of the events recorded for each recipient.
func (b ReportHistory) load(ctx context.Context, r db.Reader, teamID, emailID string) error {
	rows, err := r.Query(ctx, selectBefore, emailID, teamID, slices.Collect(maps.Keys(b)))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var address, typ string
		err = r.Scan(&address, &typ)
		b[address] = append(b[address], events.Type("email."+typ))
		return none, err
	})
	return err
}
