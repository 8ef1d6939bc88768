package emails

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

func trackedEmails(ctx context.Context, r db.Reader, teamIDs, emailIDs []string,
	positions []int64) (map[string]*TrackedEmail, error) {
	found := make(map[string]*TrackedEmail, len(emailIDs))
	var several []string
	rows, err := r.Query(ctx, `SELECT e.id, e.team_id, e.domain_id, e.broadcast_id, e.contact_id, e.recipient,
		e.last_event, COALESCE(e.updated_at, e.created_at) FROM emails e
		JOIN teams t ON t.id = e.team_id WHERE e.id = ANY($1) AND e.team_id = ANY($2)
		AND t.deleted_at = 0`, db.IDs(emailIDs), db.IDs(teamIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID, address string
		var last int16
		var since int64
		f := &TrackedEmail{To: map[int]TrackedRecipient{}}
		err = r.Scan((*db.ID)(&emailID), (*db.ID)(&f.TeamID), (*db.ID)(&f.DomainID), (*db.ID)(&f.BroadcastID),
			(*db.ID)(&f.ContactID), &address, &last, &since)
		if err != nil {
			return none, err
		}
		state, err := states.Name(last)
		if f.OneRecipient = address != ""; f.OneRecipient {
			f.To[0] = TrackedRecipient{address, recipientState(state), db.Time(since)}
		} else {
			several = append(several, emailID)
		}
		found[emailID] = f
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the emails of tracked links: %w", err)
	}
	if len(several) == 0 {
		return found, nil
	}
	rows, err = r.Query(ctx, `SELECT email_id, position, address, state, updated_at FROM email_recipients
		WHERE email_id = ANY($1) AND position = ANY($2) AND team_id = ANY($3)`, db.IDs(several), positions,
		db.IDs(teamIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID string
		var number int16
		var position int
		var since int64
		var to TrackedRecipient
		if err := r.Scan((*db.ID)(&emailID), &position, &to.Address, &number, &since); err != nil {
			return none, err
		}
		state, err := states.Name(number)
		if f := found[emailID]; f != nil {
			to.State, to.Since = state, db.Time(since)
			f.To[position] = to
		}
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the recipients of tracked links: %w", err)
	}
	return found, nil
}

func eventSummaries(ctx context.Context, r db.Reader, teamID string,
	emailIDs []string) (map[string]*events.Email, error) {
	all := make(map[string]*events.Email, len(emailIDs))
	rows, err := r.Query(ctx, `SELECT `+emailColumns+`, `+fieldColumns+` FROM emails e`+fieldTables+`
		WHERE e.id = ANY($1) AND e.team_id = $2`, db.IDs(emailIDs), db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var row emailRow
		var f fields
		if err := r.Scan(row.dest(f.dest()...)...); err != nil {
			return none, err
		}
		e, err := row.email()
		if err != nil {
			return none, err
		}
		headers, err := f.decode()
		if err != nil {
			return none, fmt.Errorf("read the headers of email %s: %w", e.ID, err)
		}
		all[e.ID] = e.eventSummary(headers)
		return none, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the summaries of emails: %w", err)
	}
	return all, nil
}

// emailWithHeaders returns an email without its body, together with the header fields specified by its sender.
func emailWithHeaders(ctx context.Context, r db.Reader, teamID, emailID string) (Email, []message.Field, error) {
	var row emailRow
	var f fields
	err := r.QueryRow(ctx, `SELECT `+emailColumns+`, `+fieldColumns+` FROM emails e`+fieldTables+`
		WHERE e.id = $1 AND e.team_id = $2`, db.ID(emailID), db.ID(teamID)).Scan(row.dest(f.dest()...)...)
	if errors.Is(err, db.ErrNoRows) {
		return Email{}, nil, fault.NotFoundf("Email not found")
	}
	if err != nil {
		return Email{}, nil, fmt.Errorf("read email %s: %w", emailID, err)
	}
	e, err := row.email()
	if err != nil {
		return e, nil, err
	}
	headers, err := f.decode()
	if err != nil {
		return e, nil, fmt.Errorf("read the headers of email %s: %w", emailID, err)
	}
	return e, headers, nil
}
