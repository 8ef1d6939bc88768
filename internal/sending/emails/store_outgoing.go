package emails

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/db"
)

// SetDomain changes an email's sending domain to another one with the same name, which the team has added after it
// deleted the first one.
func SetDomain(ctx context.Context, tx *db.Tx, teamID, emailID, domainID string) {
	tx.Queue(ctx, `UPDATE emails SET domain_id = $3 WHERE id = $1 AND team_id = $2`, db.ID(emailID), db.ID(teamID),
		db.ID(domainID))
}

// setSender gives an email the sender of another content. If keptID is "", the email's Message-ID follows from the new
// sender, unless the email has one of its own.
func setSender(ctx context.Context, tx *db.Tx, e *Email, contentID, from, domainID, keptID string) {
	tx.Queue(ctx, `UPDATE emails SET content_id = $3, sender = $4, domain_id = $5,
		message_id = CASE WHEN CAST($6 AS TEXT) = '' THEN message_id ELSE $6 END WHERE id = $1 AND team_id = $2`,
		db.ID(e.ID), db.ID(e.TeamID), db.ID(contentID), from, db.ID(domainID), keptID)
}

// Conditions that are false if no address in $2 is suppressed for the email e, and the recipient in $2 accepts the
// email. The look-ups are part of the statement that loads an email, because a separate statement for each email would
// cost much more. If an email has no contact, topic or broadcast, its recipient cannot refuse it. Even tables that are
// not read would cost half of the statement's time on PostgreSQL.
const (
	isSuppressed = `EXISTS (SELECT 1 FROM suppressions s WHERE s.team_id = e.team_id AND s.address = ANY($2))`
	mayBeRefused = `(` + isSuppressed + ` OR NOT ` + contacts.AcceptsEmail + `)`
)

// selectOutgoing returns the statement that loads an email with its own body and the value of a condition.
func selectOutgoing(alone, audience bool) string {
	body, join, condition := "e", "", isSuppressed
	if alone { // SQLite keeps bodies in a table of their own. On PostgreSQL, the view would look up the email twice.
		body, join = "b", bodyTable
	}
	if audience {
		condition = mayBeRefused
	}
	return `SELECT ` + emailColumns + `, ` + strings.ReplaceAll(`b.parts IS NOT NULL, COALESCE(b.html, ''),
		COALESCE(b.body_text, ''), COALESCE(b.parts, 0), COALESCE(b.headers, '')`, "b.", body+".") + `,
		e.content_id, e.variables, ` + condition + ` FROM emails e` + join + ` WHERE e.id = $1 AND e.team_id = $3
		AND COALESCE((SELECT t.deleted_at FROM teams t WHERE t.id = e.team_id), 0) = 0`
}

// outgoing has the arguments of selectOutgoing.
type outgoing struct{ alone, audience bool }

// outgoingTexts holds the results of selectOutgoing.
var outgoingTexts = map[outgoing]*db.PartTexts{
	{}:                            db.NewPartTexts("emails", selectOutgoing(false, false)),
	{audience: true}:              db.NewPartTexts("emails", selectOutgoing(false, true)),
	{alone: true}:                 db.NewPartTexts("emails", selectOutgoing(true, false)),
	{alone: true, audience: true}: db.NewPartTexts("emails", selectOutgoing(true, true)),
}

// readTogetherMax is the maximum size of an email, in bytes as in [Delivery.Size], that is read in a transaction with
// other emails. A large email would delay the others.
const readTogetherMax = 256 << 10

// readOutgoing reads an email and its body into o, and reports whether the email has its own body. The parameter keys
// contains the job's recipients. If the email does not exist or its team was deleted, readOutgoing returns
// db.ErrNoRows.
func readOutgoing(ctx context.Context, d *db.DB, of Delivery, keys []string, o *Outgoing) (own bool, err error) {
	row := &o.row
	var variables string
	texts := outgoingTexts[outgoing{d.Alone(), of.Audience}]
	table := d.PartitionOf("emails", db.ID(of.EmailID))
	read := func(r db.Reader) error {
		return r.QueryRow(ctx, texts.In(table), db.ID(of.EmailID), keys, db.ID(of.TeamID)).Scan(row.dest(&own,
			&o.body.html, &o.body.text, &o.body.flags, &o.body.headers, (*db.ID)(&row.shared.contentID), &variables,
			&o.MayBeRefused)...)
	}
	if of.Size > 0 && of.Size <= readTogetherMax {
		err = d.ReadTogether(ctx, read)
	} else {
		err = read(d.Reader)
	}
	if table != "emails" && d.ForgetPartitions(err) {
		table = "emails"
		err = read(d.Reader)
	}
	if err == nil {
		err = row.shared.decode(variables)
	}
	return own, err
}
