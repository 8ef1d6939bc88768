package emails

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/render"
)

// findTeam returns the team of an email, or "" if there is no such email. Only a report that does not name the team
// needs it. The events of the email name the team. If they were deleted, findTeam looks for the email in each team.
func findTeam(ctx context.Context, r db.Reader, emailID string) (teamID string, err error) {
	for _, text := range []string{`SELECT team_id FROM email_events WHERE email_id = $1 LIMIT 1`,
		`SELECT e.team_id FROM teams t CROSS JOIN emails e WHERE e.team_id = t.id AND e.id = $1 LIMIT 1`} {
		err = r.QueryRow(ctx, text, db.ID(emailID)).Scan((*db.ID)(&teamID))
		if !errors.Is(err, db.ErrNoRows) {
			return teamID, err
		}
	}
	return "", nil
}

// bounceTarget reads an email and its recipients for a bounce or a complaint.
func bounceTarget(ctx context.Context, r db.Reader, teamID, emailID string) (BounceTarget, error) {
	e := BounceTarget{ID: emailID}
	var from, only string
	var by teams.ActorRef
	var kind int16
	err := r.QueryRow(ctx, `SELECT team_id, domain_id, broadcast_id, contact_id, message_id, sender, recipient,
		actor_kind, actor_id FROM emails WHERE id = $1 AND team_id = $2`, db.ID(emailID), db.ID(teamID)).
		Scan((*db.ID)(&e.TeamID), (*db.ID)(&e.DomainID), (*db.ID)(&e.BroadcastID),
			(*db.ID)(&e.ContactID), &e.MessageID, &from, &only, &kind, (*db.ID)(&by.ID))
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return e, fmt.Errorf("read the email of a report: %w", err)
	}
	if by.Kind, err = teams.ActorKinds.Name(kind); err != nil {
		return e, fmt.Errorf("read the email of a report: %w", err)
	}
	e.ForwardRule = forwardRule(by)
	if e.MessageID == "" {
		e.MessageID = defaultMessageID(emailID, from)
	}
	if e.OneRecipient = only != ""; e.OneRecipient {
		to, err := message.ParseAddress(only)
		e.To = []BounceRecipient{{only, to.Domain}}
		return e, err
	}
	rows, err := r.Query(ctx, `SELECT address, domain FROM email_recipients WHERE email_id = $1 AND team_id = $2
		ORDER BY position`,
		db.ID(emailID), db.ID(e.TeamID))
	e.To, err = db.Collect(rows, err, func(r db.Row) (to BounceRecipient, err error) {
		err = r.Scan(&to.Address, &to.Domain)
		return to, err
	})
	return e, err
}

func teamsOf(ctx context.Context, r db.Reader, teamIDs, emailIDs []string) (map[string]string, error) {
	rows, err := r.Query(ctx, `SELECT id, team_id FROM emails WHERE id = ANY($1) AND team_id = ANY($2)`,
		db.IDs(emailIDs), db.IDs(teamIDs))
	found := make(map[string]string, len(emailIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID, teamID string
		err = r.Scan((*db.ID)(&emailID), (*db.ID)(&teamID))
		found[emailID] = teamID
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for sent emails: %w", err)
	}
	return found, nil
}

// headersOf returns the header fields specified by the sender: first the rendered fields of the shared content, then
// the email's own fields.
func headersOf(ctx context.Context, r db.Reader, teamID, emailID string) ([]message.Field, error) {
	var f fields
	err := r.QueryRow(ctx, `SELECT `+fieldColumns+` FROM emails e`+fieldTables+` WHERE e.id = $1 AND e.team_id = $2`,
		db.ID(emailID), db.ID(teamID)).Scan(f.dest()...)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the headers of email %s: %w", emailID, err)
	}
	return f.decode()
}

// fieldColumns lists the columns that are scanned into a fields value. The query must join the table emails, with the
// alias e, to fieldTables.
const (
	fieldColumns = `COALESCE(c.headers, ''), e.variables, COALESCE(b.headers, '')`
	fieldTables  = bodyTable + ` LEFT JOIN contents c ON c.id = e.content_id`
)

// fields holds the stored header fields of an email.
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

// lockRecipients locks the recipients with the given addresses until the transaction ends, so that other reports about
// them wait. The result contains those of the given addresses that are recipients of the email.
func lockRecipients(ctx context.Context, tx *db.Tx, teamID, emailID string, addresses []string) (ReportHistory, error) {
	known := ReportHistory{}
	for _, lock := range []string{
		`UPDATE email_recipients SET state = state WHERE email_id = $1 AND team_id = $2 AND address = ANY($3)
			RETURNING address`,
		`UPDATE emails SET rank = rank WHERE id = $1 AND team_id = $2 AND recipient = ANY($3) RETURNING recipient`,
	} {
		if len(known) > 0 {
			break // the email has several recipients
		}
		rows, err := tx.Query(ctx, lock, db.ID(emailID), db.ID(teamID), addresses)
		found, err := db.Collect(rows, err, scanText)
		if err != nil {
			return nil, err
		}
		for _, address := range found {
			known[address] = nil
		}
	}
	return known, nil
}

// The expression on team_id prevents SQLite from choosing the index on the team and the event time.
const selectBefore = `SELECT DISTINCT recipient, type FROM email_events WHERE email_id = $1
	AND COALESCE(team_id, team_id) = $2
	AND recipient = ANY($3)`

// load adds, for each recipient, the types of all events recorded so far.
func (b ReportHistory) load(ctx context.Context, r db.Reader, teamID, emailID string) error {
	rows, err := r.Query(ctx, selectBefore, db.ID(emailID), db.ID(teamID), slices.Collect(maps.Keys(b)))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var address string
		var number int16
		if err := r.Scan(&address, &number); err != nil {
			return none, err
		}
		typ, err := events.Types.Name(number)
		b[address] = append(b[address], typ)
		return none, err
	})
	return err
}

// setUnsubscribedRecipient completes the event for an unsubscribed address; it sets the email's domain, its broadcast,
// and the recipient as spelled in the email. If the email does not belong to the team or was not sent to this
// recipient, the event's recipient stays empty.
func setUnsubscribedRecipient(ctx context.Context, tx *db.Tx, e *events.Event, address string) error {
	rows, err := tx.Query(ctx, `SELECT e.domain_id, e.broadcast_id, COALESCE(r.address, e.recipient) FROM emails e
		LEFT JOIN email_recipients r ON r.email_id = e.id WHERE e.id = $1 AND e.team_id = $2 ORDER BY r.position`,
		db.ID(e.EmailID), db.ID(e.TeamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var to string
		if err = r.Scan((*db.ID)(&e.DomainID), (*db.ID)(&e.BroadcastID), &to); err != nil || e.Recipient != "" {
			return none, err
		}
		if a, err := message.ParseAddress(to); err == nil && a.Key() == address {
			e.Recipient = to
		}
		return none, nil
	})
	return err
}
