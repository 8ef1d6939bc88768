package emails

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

// emailsOf selects a team's emails.
func emailsOf(d *db.DB, teamID string) page.Select {
	return page.Select{Text: `SELECT ` + emailColumns + ` FROM emails e WHERE e.team_id = $1`, ID: "e.id",
		InSpans: !d.Alone(), Args: []any{db.ID(teamID)}}
}

func emailsPage(ctx context.Context, d *db.DB, teamID, after string) ([]Email, string, error) {
	s := emailsOf(d, teamID)
	return page.Part(ctx, d.Reader, s, s, after, pageRows, scanEmail, func(e Email) string { return e.ID })
}

func scanEmail(r db.Row) (Email, error) {
	var row emailRow
	if err := r.Scan(row.dest()...); err != nil {
		return Email{}, err
	}
	return row.email()
}

const pageToRows = 2000 // number of emails that one call to ListPageTo searches

func emailsPageTo(ctx context.Context, d *db.DB, teamID string, a erasure.Address,
	after string) (some []EmailWithRecipients, next string, err error) {
	r, all := d.Reader, emailsOf(d, teamID)
	to := page.Select{Text: all.Text + ` AND (LOWER(e.recipient) LIKE $2 ESCAPE '\' OR e.recipient = ''
		AND (SELECT COUNT(*) FROM email_recipients r WHERE r.email_id = e.id AND LOWER(r.address) LIKE $2 ESCAPE '\') > 0)`,
		ID: all.ID, InSpans: all.InSpans, Args: []any{db.ID(teamID), a.Like()}}
	found, next, err := page.Part(ctx, r, all, to, after, pageToRows, scanEmail, func(e Email) string { return e.ID })
	if err != nil {
		return nil, "", err
	}
	for chunk := range slices.Chunk(found, pageRows) {
		with, err := withRecipients(ctx, r, teamID, chunk)
		if err != nil {
			return nil, "", err
		}
		for _, e := range with { // an email may contain the address twice, or only a similar address
			is := func(to Recipient) bool { return a.Is(to.Address) }
			if i := slices.IndexFunc(e.Recipients, is); i >= 0 {
				some = append(some, EmailWithRecipients{e.Email, e.Recipients[i : i+1]})
			}
		}
	}
	return some, next, nil
}
