package emails

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// SetDomain changes an email's sending domain to another one with the same name, which the team has added after it
// deleted the first one.
func SetDomain(ctx context.Context, tx *db.Tx, teamID, emailID, domainID string) {
	tx.Queue(ctx, `UPDATE emails SET domain_id = $3 WHERE id = $1 AND team_id = $2`, emailID, teamID, domainID)
}

// readOutgoing reads an email and its body into o, and reports whether the email has its own body row. The function
// does not require a team id, because it is called for a delivery job. If the email does not exist or its team was
// deleted, readOutgoing returns db.ErrNoRows.
func readOutgoing(ctx context.Context, q db.Reader, emailID string, o *Outgoing) (own bool, err error) {
	r := &o.row
	var variables string
	err = q.QueryRow(ctx, `SELECT `+emailColumns+
		`, b.email_id IS NOT NULL, e.content_id, e.variables, COALESCE(b.html, ''), COALESCE(b.body_text, ''),
		COALESCE(b.parts, 0), COALESCE(b.headers, '')
		FROM emails e LEFT JOIN email_bodies b ON b.email_id = e.id WHERE e.id = $1
		AND NOT EXISTS (SELECT 1 FROM teams t WHERE t.id = e.team_id AND t.deleted_at <> 0)`, emailID).
		Scan(r.dest(&own, &r.shared.contentID, &variables, &o.body.html, &o.body.text, &o.body.flags, &o.body.headers)...)
	if err == nil {
		err = r.shared.decode(variables)
	}
	return own, err
}
