package emails

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/search"
)

// SetDomain changes an email's sending domain to another one with the same name, which the team has added after it
// deleted the first one.
func SetDomain(ctx context.Context, tx *db.Tx, teamID, emailID, domainID string) error {
	tx.Queue(ctx, `UPDATE emails SET domain_id = $3 WHERE id = $1 AND team_id = $2`, db.ID(emailID), db.ID(teamID),
		db.ID(domainID))
	return search.Break(ctx, tx, teamID, emailID)
}

// setSender gives an email the sender of another content. If keptID is "", the email's Message-ID follows from the new
// sender, unless the email has one of its own.
func setSender(ctx context.Context, tx *db.Tx, e *Email, contentID, from, domainID, keptID string) error {
	tx.Queue(ctx, `UPDATE emails SET content_id = $3, sender = $4, domain_id = $5,
		message_id = CASE WHEN CAST($6 AS TEXT) = '' THEN message_id ELSE $6 END WHERE id = $1 AND team_id = $2`,
		db.ID(e.ID), db.ID(e.TeamID), db.ID(contentID), from, db.ID(domainID), keptID)
	return search.Break(ctx, tx, e.TeamID, e.ID)
}

// Conditions that are false if no address in $2 is suppressed for the email e, and the recipient in $2 accepts the
// email. The look-ups are part of the statement that loads an email, because a separate statement for each email would
// cost much more. If an email has no contact, topic or broadcast, its recipient cannot refuse it. Even tables that are
// not read would cost half of the statement's time on PostgreSQL.
const (
	isSuppressed = `EXISTS (SELECT 1 FROM suppressions s WHERE s.team_id = e.team_id AND s.address = ANY($2))`
	mayBeRefused = `(` + isSuppressed + ` OR NOT ` + contacts.AcceptsEmail + `)`
)

// outgoing says which statement loads an email.
type outgoing struct {
	alone    bool // SQLite
	audience bool // as in Delivery
	several  bool // $2 is a list of recipients, not one recipient
}

// outgoingQueries holds the results of selectOutgoing.
var outgoingQueries = map[outgoing]*db.RowQuery{}

func init() {
	for i := range 8 {
		o := outgoing{i&1 != 0, i&2 != 0, i&4 != 0}
		outgoingQueries[o] = selectOutgoing(o)
	}
}

// selectOutgoing returns the statement that loads an email with its own body and the value of a condition.
func selectOutgoing(o outgoing) *db.RowQuery {
	body, join, condition, types := "e", "", isSuppressed, ""
	if o.alone { // SQLite keeps bodies in a table of their own. On PostgreSQL, the view would look up the email twice.
		body, join = "b", bodyTable
	}
	if o.audience {
		condition = mayBeRefused
	}
	if !o.several {
		condition, types = strings.ReplaceAll(condition, "= ANY($2)", "= $2"), "UUID TEXT UUID"
	}
	return db.NewRowQuery("emails", `SELECT `+emailColumns+`, `+strings.ReplaceAll(`b.parts IS NOT NULL,
		COALESCE(b.html, ''), COALESCE(b.body_text, ''), COALESCE(b.parts, 0), COALESCE(b.headers, '')`, "b.", body+".")+`,
		e.content_id, e.variables, `+condition+` FROM emails e`+join+` WHERE e.id = $1 AND e.team_id = $3
		AND COALESCE((SELECT t.deleted_at FROM teams t WHERE t.id = e.team_id), 0) = 0`, types)
}

// readTogetherMax is the maximum size of an email, in bytes as in [Delivery.Size], that is read in a statement or a
// transaction with other emails. A large email would delay the others.
const readTogetherMax = 256 << 10

// readOutgoing reads an email and its body into o, and reports whether the email has its own body. The parameter keys
// contains the job's recipients. If the email does not exist or its team was deleted, readOutgoing returns
// db.ErrNoRows.
func readOutgoing(ctx context.Context, d *db.DB, of Delivery, keys []string, o *Outgoing) (own bool, err error) {
	row := &o.row
	var variables string
	var recipients any = keys
	if len(keys) == 1 {
		recipients = keys[0]
	}
	q := outgoingQueries[outgoing{d.Alone(), of.Audience, len(keys) != 1}]
	read := d.ReadLargeRow
	if of.Size > 0 && of.Size <= readTogetherMax && (len(keys) == 1 || d.Alone()) {
		read = d.ReadRow
	}
	dest := row.dest(&own, &o.body.html, &o.body.text, &o.body.flags, &o.body.headers,
		(*db.ID)(&row.shared.contentID), &variables, &o.MayBeRefused)
	table := d.PartitionOf("emails", db.ID(of.EmailID))
	err = read(ctx, q.In(table), db.ID(of.EmailID), recipients, db.ID(of.TeamID)).Scan(dest...)
	if table != "emails" && d.ForgetPartitions(err) {
		err = read(ctx, q, db.ID(of.EmailID), recipients, db.ID(of.TeamID)).Scan(dest...)
	}
	if err == nil {
		err = row.shared.decode(variables)
	}
	return own, err
}
