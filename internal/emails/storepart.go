package emails

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/page"
)

// lateness is how much later than the time of an email its id may be from.
const lateness = time.Hour

// emailsWithin is the list of a team's emails of a span. The bounds on the id let the index find them; those on the
// time are exact.
func emailsWithin(teamID string, within Span) page.Select {
	s := page.Select{Text: `SELECT ` + emailColumns + ` FROM emails e WHERE e.team_id = $1`, ID: "e.id",
		Args: []any{teamID}}
	for _, bound := range []struct {
		at   time.Time
		sign string
		id   string
	}{{within.From, ">=", id.First(within.From)}, {within.To, "<", id.First(within.To.Add(lateness))}} {
		if !bound.at.IsZero() {
			s.Args = append(s.Args, bound.id, bound.at.UnixMicro())
			s.Text += fmt.Sprintf(" AND e.id %s $%d AND e.created_at %s $%d", bound.sign, len(s.Args)-1, bound.sign,
				len(s.Args))
		}
	}
	return s
}

func partOfEmails(ctx context.Context, r db.Reader, teamID string, within Span, after string) ([]Email, string, error) {
	s := emailsWithin(teamID, within)
	return page.Part(ctx, r, s, s, after, partRows, scanEmail, func(e Email) string { return e.ID })
}

func scanEmail(r db.Row) (Email, error) {
	var row emailRow
	if err := r.Scan(row.dest()...); err != nil {
		return Email{}, err
	}
	return row.email()
}

// recipientsOf returns the recipients of emails, by the ids of these.
func recipientsOf(ctx context.Context, r db.Reader, teamID string, emailIDs []string) (map[string][]Recipient, error) {
	rows, err := r.Query(ctx, `SELECT email_id, kind, address, state, updated_at FROM email_recipients
		WHERE email_id = ANY($1) AND team_id = $2 ORDER BY email_id, position`, emailIDs, teamID)
	of := map[string][]Recipient{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID string
		var to Recipient
		var at int64
		err = r.Scan(&emailID, &to.Kind, &to.Address, &to.State, &at)
		to.UpdatedAt = db.Time(at)
		of[emailID] = append(of[emailID], to)
		return none, err
	})
	return of, err
}

const partToRows = 2000 // that one call of PartTo looks at

func partTo(ctx context.Context, r db.Reader, teamID, address, after string) ([]Listed, string, error) {
	all := emailsWithin(teamID, Span{})
	// The recipients of an email are few, and found by its id. An email may have the address twice.
	to := page.Select{Text: `SELECT ` + emailColumns + `, r.kind, r.address, r.state, r.updated_at FROM emails e
		JOIN email_recipients r ON r.email_id = e.id AND LOWER(r.address) = $2 AND r.position = (SELECT MIN(f.position)
			FROM email_recipients f WHERE f.email_id = e.id AND LOWER(f.address) = $2) WHERE e.team_id = $1`,
		ID: "e.id", Args: []any{teamID, address}}
	return page.Part(ctx, r, all, to, after, partToRows, func(r db.Row) (s Listed, err error) {
		var row emailRow
		var to Recipient
		var at int64
		if err = r.Scan(row.dest(&to.Kind, &to.Address, &to.State, &at)...); err != nil {
			return s, err
		}
		to.UpdatedAt = db.Time(at)
		s.Email, err = row.email()
		s.Recipients = []Recipient{to}
		return s, err
	}, func(s Listed) string { return s.ID })
}
