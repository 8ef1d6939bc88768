package emails

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
)

// matchedEmail is an email with the erased address among its recipients, or a forwarded email whose author has the
// address.
type matchedEmail struct {
	id, teamID string
	others     int // number of recipients with other addresses
	settled    bool
	copied     bool // a rule forwarded it, and the address is its author's
}

// recipientScope selects the emails of a team between two ids.
type recipientScope struct {
	where string // condition on the table emails, with the alias e
	args  []any  // from $2 on
}

func scopeTeam(teamID string, after, upTo db.ID) recipientScope {
	return recipientScope{`e.id > $2 AND e.id <= $3 AND e.team_id = $4`, []any{after, upTo, db.ID(teamID)}}
}

// nextTeam returns the next team after another one that has emails, or "".
func nextTeam(ctx context.Context, r db.Reader, after string) (teamID string, err error) {
	err = r.QueryRow(ctx, `SELECT team_id FROM emails WHERE team_id > $1 ORDER BY team_id LIMIT 1`, db.OrNoID(after)).
		Scan((*db.ID)(&teamID))
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return teamID, err
}

// recipients returns a subquery for the recipients of the emails in the scope.
func (s recipientScope) recipients() string {
	return `(SELECT e.id AS email_id, e.team_id, e.recipient AS address FROM emails e
		WHERE e.recipient <> '' AND ` + s.where + `
		UNION ALL SELECT r.email_id, r.team_id, r.address FROM emails e JOIN email_recipients r ON r.email_id = e.id
		WHERE e.recipient = '' AND ` + s.where + `) p`
}

// emailsTo returns the emails in the given scope that have the address among their recipients. First, the stored
// spellings of the address are looked up, because SQLite and PostgreSQL convert to lower case differently.
func emailsTo(ctx context.Context, r db.Reader, a erasure.Address, of recipientScope) ([]matchedEmail, error) {
	rows, err := r.Query(ctx, `SELECT DISTINCT p.address FROM `+of.recipients()+` WHERE LOWER(p.address) LIKE $1
		ESCAPE '\'`, append([]any{a.Like()}, of.args...)...)
	all, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, fmt.Errorf("look for recipients with an address: %w", err)
	}
	spellings := a.Spellings(all)
	if len(spellings) == 0 {
		return nil, nil
	}
	rows, err = r.Query(ctx, `SELECT e.id, e.team_id, (SELECT COUNT(*) FROM email_recipients o
			WHERE o.email_id = e.id AND o.address <> ALL($1) AND o.address <> '`+erasure.Placeholder+`'), `+isSettled+`
		FROM (SELECT DISTINCT p.email_id FROM `+of.recipients()+` WHERE p.address = ANY($1)) q
		JOIN emails e ON e.id = q.email_id AND e.team_id = $4
		ORDER BY e.id`, append([]any{spellings}, of.args...)...)
	return db.Collect(rows, err, scanAddressed)
}

// forwardedFrom returns the emails in the given scope that a rule forwarded and whose author has the address. Such an
// email has one recipient and contains the author's message, so that it is erased as a whole.
func forwardedFrom(ctx context.Context, r db.Reader, a erasure.Address, of recipientScope) ([]matchedEmail, error) {
	rows, err := r.Query(ctx, `SELECT e.id, e.team_id, e.sender, `+isSettled+` FROM emails e WHERE `+of.where+`
		AND e.actor_kind = $5 AND e.actor_id IS NOT NULL AND `+erasure.MayContain(1, "e.sender")+` ORDER BY e.id`,
		append(append([]any{a.Pattern()}, of.args...), teams.ActorKinds.Number(teams.SystemActor))...)
	var some []matchedEmail
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		e := matchedEmail{copied: true}
		var sender string
		err = r.Scan((*db.ID)(&e.id), (*db.ID)(&e.teamID), &sender, &e.settled)
		if err == nil && (a.Is(sender) || a.In(sender)) {
			some = append(some, e)
		}
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for forwarded emails of an author: %w", err)
	}
	return some, nil
}

func scanAddressed(r db.Row) (e matchedEmail, err error) {
	err = r.Scan((*db.ID)(&e.id), (*db.ID)(&e.teamID), &e.others, &e.settled)
	return e, err
}

// contentNames reports whether an email's content may contain an address. For a raw message, the result is always true.
// For shared content, only the email's variables are searched.
func contentNames(ctx context.Context, r db.Reader, a erasure.Address, teamID, emailID string) (bool, error) {
	var variables, html, text, headers string
	var flags int
	err := r.QueryRow(ctx, `SELECT e.variables, COALESCE(b.html, ''), COALESCE(b.body_text, ''), COALESCE(b.headers, ''),
		COALESCE(b.parts, 0) FROM emails e`+bodyTable+` WHERE e.id = $1 AND e.team_id = $2`, db.ID(emailID),
		db.ID(teamID)).Scan(&variables, &html, &text, &headers, &flags)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the content of email %s: %w", emailID, err)
	}
	return flags&isRaw != 0 || anyContains(a, variables, html, text, headers), nil
}

// replaceInEmail replaces an address in the recipients, the subject and the tags of an email.
func replaceInEmail(ctx context.Context, tx *db.Tx, a erasure.Address, teamID, emailID string) error {
	var recipients, subject, tags string
	err := tx.QueryRow(ctx, `SELECT recipients, subject, tags FROM emails WHERE id = $1 AND team_id = $2`,
		db.ID(emailID), db.ID(teamID)).Scan(&recipients, &subject, &tags)
	if errors.Is(err, db.ErrNoRows) {
		return nil // the email was deleted after it was found
	}
	if err != nil {
		return fmt.Errorf("read the recipients of email %s: %w", emailID, err)
	}
	if recipients, err = replaceInLists(a, recipients); err != nil {
		return err
	}
	tx.Queue(ctx, `UPDATE emails SET recipients = $3, subject = $4, tags = $5 WHERE id = $1 AND team_id = $2`,
		db.ID(emailID), db.ID(teamID), recipients, a.Replace(subject), a.Replace(tags))
	return nil
}

// replaceInEvents replaces an address in all events and attempts of an email. Columns without the address are not
// changed, because an event without an attempt has NULL in some of them.
func replaceInEvents(ctx context.Context, tx *db.Tx, a erasure.Address, teamID, emailID string) error {
	columns := []string{"recipient", "data", "recipients", "reply", "conversation"}
	text := `SELECT id`
	for _, column := range columns {
		text += `, COALESCE(` + column + `, '')`
	}
	rows, err := tx.Query(ctx, text+` FROM email_events WHERE email_id = $1 AND COALESCE(team_id, team_id) = $2`,
		db.ID(emailID), db.ID(teamID))
	all, err := db.Collect(rows, err, func(r db.Row) ([]string, error) {
		texts := make([]string, 1+len(columns))
		dest := make([]any, len(texts))
		for i := range texts {
			dest[i] = &texts[i]
		}
		dest[0] = (*db.ID)(&texts[0])
		err := r.Scan(dest...)
		return texts, err
	})
	if err != nil {
		return fmt.Errorf("read the events of email %s: %w", emailID, err)
	}
	for _, texts := range all {
		args := []any{db.ID(emailID), db.ID(texts[0]), db.ID(teamID)}
		var set []string
		for i, column := range columns {
			if before := texts[1+i]; a.In(before) {
				args = append(args, a.Replace(before))
				set = append(set, fmt.Sprintf("%s = $%d", column, len(args)))
			}
		}
		if len(set) > 0 {
			tx.Queue(ctx, `UPDATE email_events SET `+strings.Join(set, ", ")+` WHERE email_id = $1 AND id = $2
				AND COALESCE(team_id, team_id) = $3`, args...)
		}
	}
	return nil
}

// replaceRecipient replaces an envelope recipient with the placeholder; it also deletes the data about this recipient's
// opens and clicks.
func replaceRecipient(ctx context.Context, tx *db.Tx, a erasure.Address, teamID, emailID string) error {
	rows, err := tx.Query(ctx, `SELECT address FROM email_recipients WHERE email_id = $1 AND team_id = $2
		UNION SELECT recipient FROM email_events WHERE email_id = $1 AND COALESCE(team_id, team_id) = $2`,
		db.ID(emailID), db.ID(teamID))
	all, err := db.Collect(rows, err, scanText)
	if err != nil {
		return fmt.Errorf("read the recipients of email %s: %w", emailID, err)
	}
	spellings := a.Spellings(all)
	tx.Queue(ctx, `UPDATE email_events SET data = '' WHERE email_id = $1 AND recipient = ANY($2)
		AND COALESCE(team_id, team_id) = $3 AND type IN `+events.AnyOf(events.EmailOpened, events.EmailClicked),
		db.ID(emailID), spellings, db.ID(teamID))
	if len(spellings) > 0 { // the destination of an attempt is shown as before
		to, err := message.ParseAddress(spellings[0])
		if err != nil {
			return err
		}
		tx.Queue(ctx, `UPDATE email_events SET destination = COALESCE(destination, $3) WHERE email_id = $1
			AND recipient = ANY($2) AND outcome IS NOT NULL AND COALESCE(team_id, team_id) = $4`, db.ID(emailID), spellings,
			to.Domain, db.ID(teamID))
	}
	tx.Queue(ctx, `UPDATE email_recipients SET address = $3, domain = $4 WHERE email_id = $1 AND address = ANY($2)
		AND team_id = $5`, db.ID(emailID), spellings, erasure.Placeholder, erasure.PlaceholderDomain, db.ID(teamID))
	return nil
}
