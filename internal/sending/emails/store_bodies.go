package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// BodyStart holds the first characters of an email's own HTML and text, as its sender gave them. A body that the sender
// did not give is nil.
type BodyStart struct{ HTML, Text *string }

// BodyStarts returns the first characters of the bodies of a team's emails, by email id. Emails whose content was
// deleted are missing from the result. BodyStarts is for emails that were sent through the API with their own content.
func BodyStarts(ctx context.Context, r db.Reader, teamID string, emailIDs []string,
	characters int) (map[string]BodyStart, error) {
	return bodyStarts(ctx, r, "", teamID, emailIDs, characters)
}

// BodyStartsWith is like BodyStarts, but returns only the emails whose first characters may contain an address.
func BodyStartsWith(ctx context.Context, r db.Reader, a erasure.Address, teamID string, emailIDs []string,
	characters int) (map[string]BodyStart, error) {
	return bodyStarts(ctx, r, ` AND `+erasure.MayContain(4, `SUBSTR(html, 1, $3)`, `SUBSTR(body_text, 1, $3)`), teamID,
		emailIDs, characters, a.Pattern())
}

func bodyStarts(ctx context.Context, r db.Reader, condition, teamID string, emailIDs []string, characters int,
	more ...any) (map[string]BodyStart, error) {
	all := make(map[string]BodyStart, len(emailIDs))
	rows, err := r.Query(ctx, `SELECT email_id, parts, SUBSTR(html, 1, $3), SUBSTR(body_text, 1, $3) FROM email_bodies
		WHERE team_id = $1 AND email_id = ANY($2)`+condition, append([]any{db.ID(teamID), db.IDs(emailIDs), characters},
		more...)...)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID, html, text string
		var flags int
		err = r.Scan((*db.ID)(&emailID), &flags, &html, &text)
		var start BodyStart
		if flags&gaveHTML != 0 {
			start.HTML = &html
		}
		if flags&gaveText != 0 {
			start.Text = &text
		}
		all[emailID] = start
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the beginnings of the bodies of emails: %w", err)
	}
	return all, nil
}
