package emails

import (
	"context"

	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// advanceRecipients updates the state of an event's recipient. If the event specifies no recipient, advanceRecipients
// updates all recipients of the email. The only recipient of an email has no row, because its state is the email's.
//
// An open or a click changes a recipient's state only after delivery, because some hosts follow the links in an email
// before they accept the message. If an open changed the state before delivery, the recipient would count as settled
// and would not receive the email. For a message with several recipients, an open or a click specifies no recipient and
// changes no recipient's state.
func advanceRecipients(ctx context.Context, tx *db.Tx, e *events.Event, to State) {
	switch {
	case e.OneRecipient:
	case e.Recipient != "" && isTrackingState(to):
		tx.Queue(ctx, `UPDATE email_recipients SET state = $3, rank = $4, updated_at = $5
			WHERE email_id = $1 AND address = $2 AND team_id = $7 AND rank < $4 AND rank >= $6`, db.ID(e.EmailID), e.Recipient,
			states.Number(to), rankOf(e), e.At.UnixMicro(), settled, db.ID(e.TeamID))
	case e.Recipient != "":
		tx.Queue(ctx, `UPDATE email_recipients SET state = $3, rank = $4, updated_at = $5
			WHERE email_id = $1 AND address = $2 AND team_id = $6 AND rank < $4`, db.ID(e.EmailID), e.Recipient,
			states.Number(to), rankOf(e), e.At.UnixMicro(), db.ID(e.TeamID))
	case to != Sent && !isTrackingState(to):
		tx.Queue(ctx, `UPDATE email_recipients SET state = $2, rank = $3, updated_at = $4
			WHERE email_id = $1 AND team_id = $5 AND rank < $3`, db.ID(e.EmailID), states.Number(to), rankOf(e),
			e.At.UnixMicro(), db.ID(e.TeamID))
	}
}

// advanceState sets the state of an email, unless the email has a state of the same or a higher rank.
var advanceState = db.NewRowStatement(
	`UPDATE emails SET last_event = $2, rank = $3, updated_at = $4 WHERE id = $1 AND team_id = $5 AND rank < $3`,
	`UPDATE emails SET last_event = u.last_event, rank = u.rank, updated_at = u.updated_at
	FROM UNNEST(CAST($1 AS UUID[]), CAST($2 AS SMALLINT[]), CAST($3 AS SMALLINT[]), CAST($4 AS BIGINT[]),
		CAST($5 AS UUID[])) AS u (id, last_event, rank, updated_at, team_id)
	WHERE emails.id = ANY($1) AND emails.id = u.id AND emails.team_id = u.team_id AND emails.rank < u.rank`)

// advanceEmail updates the state of an event's email. The column updated_at belongs to the email's only recipient, who
// cannot have the state sent.
func advanceEmail(ctx context.Context, tx *db.Tx, e *events.Event, to State) {
	switch {
	case unmailed(e):
		advanceUnmailed(ctx, tx, e, to)
	case isTrackingState(to):
		tx.Queue(ctx, `UPDATE emails SET last_event = $2, rank = $3, updated_at = $5
			WHERE id = $1 AND team_id = $6 AND rank < $3 AND rank >= $4`, db.ID(e.EmailID), states.Number(to), rankOf(e),
			settled, e.At.UnixMicro(), db.ID(e.TeamID))
	case to == Sent:
		tx.Queue(ctx, `UPDATE emails SET last_event = $2, rank = $3 WHERE id = $1 AND team_id = $4 AND rank < $3`,
			db.ID(e.EmailID), states.Number(to), rankOf(e), db.ID(e.TeamID))
	default:
		tx.QueueRowIn(ctx, "emails", advanceState, db.ID(e.EmailID), states.Number(to), rankOf(e), e.At.UnixMicro(),
			db.ID(e.TeamID))
	}
}

// advanceUnmailed sets the final state of an email that will be sent to none of its recipients. If a recipient was
// excluded because of a topic, the email fails. Otherwise, if a recipient's contact was deleted, the email is
// canceled. If all recipients are suppressed, the email is suppressed.
func advanceUnmailed(ctx context.Context, tx *db.Tx, e *events.Event, to State) {
	if e.OneRecipient {
		tx.QueueRowIn(ctx, "emails", advanceState, db.ID(e.EmailID), states.Number(to), rank[Suppressed], e.At.UnixMicro(),
			db.ID(e.TeamID))
		return
	}
	// Two transactions may each settle one of the last two recipients. The first UPDATE makes the second transaction wait
	// for the first one, so that the next statement sees the changes that the first transaction made. A statement that
	// matched no row would not wait for the other transaction.
	tx.Queue(ctx, `UPDATE emails SET rank = rank WHERE id = $1 AND team_id = $2`, db.ID(e.EmailID), db.ID(e.TeamID))
	tx.Queue(ctx, `UPDATE emails SET rank = $2, updated_at = $4, last_event = CASE WHEN recipient <> ''
		THEN CAST($3 AS SMALLINT)
		WHEN EXISTS (SELECT 1 FROM email_recipients r WHERE r.email_id = $1 AND r.state = `+states.SQL(Failed)+`)
		THEN `+states.SQL(Failed)+`
		WHEN EXISTS (SELECT 1 FROM email_recipients r WHERE r.email_id = $1 AND r.state = `+states.SQL(Canceled)+`)
		THEN `+states.SQL(Canceled)+`
		ELSE `+states.SQL(Suppressed)+` END
		WHERE id = $1 AND team_id = $5 AND rank < $2 AND NOT EXISTS (SELECT 1 FROM email_recipients r WHERE r.email_id = $1
		AND r.state NOT IN (`+states.SQL(Failed)+`, `+states.SQL(Suppressed)+`, `+states.SQL(Canceled)+`))`, db.ID(e.EmailID),
		rank[Suppressed], states.Number(to), e.At.UnixMicro(), db.ID(e.TeamID))
}

// recipientRows returns a table with the states of an email's recipients, and a condition for the addresses in $2 of
// the email $1 of the team $7.
func recipientRows(o *Outgoing) (table, where string) {
	if o.OneRecipient {
		return `emails`, `id = $1 AND team_id = $7 AND recipient = ANY($2)`
	}
	return `email_recipients`, `email_id = $1 AND team_id = $7 AND address = ANY($2)`
}

// setWithheld gives the recipients in o.To that are not settled the ranks of withheld ones; see rankWithheld.
func setWithheld(ctx context.Context, tx *db.Tx, o *Outgoing) {
	table, where := recipientRows(o)
	tx.Queue(ctx, `UPDATE `+table+` SET rank = CASE WHEN rank < $3 THEN CAST($4 AS INT) ELSE CAST($5 AS INT) END
		WHERE `+where+` AND rank < $6`, db.ID(o.ID), o.To, rank[Sent], rankWithheld, rankRetryWithheld, settled,
		db.ID(o.TeamID))
}

// unsetWithheld undoes setWithheld. It locks the email, and returns false if the email does not exist or is canceled.
func unsetWithheld(ctx context.Context, tx *db.Tx, o *Outgoing) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET rank = rank WHERE id = $1 AND team_id = $2
		AND last_event <> `+states.SQL(Canceled), db.ID(o.ID), db.ID(o.TeamID))
	if err != nil || n == 0 {
		return false, err
	}
	table, where := recipientRows(o)
	tx.Queue(ctx, `UPDATE `+table+` SET rank = CASE WHEN rank = $3 THEN CAST($4 AS INT) ELSE CAST($5 AS INT) END
		WHERE `+where+` AND rank IN ($3, $6)`, db.ID(o.ID), o.To, rankWithheld, rankReleased, rank[Delayed],
		rankRetryWithheld, db.ID(o.TeamID))
	return true, nil
}

// takeWithheld cancels an email that is withheld for all of its recipients that are not settled; it returns nil if
// there is no such email. The first statement locks the email, so that no job of the email can be released meanwhile.
func takeWithheld(ctx context.Context, tx *db.Tx, teamID, emailID string) (*Email, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET rank = rank WHERE id = $1 AND team_id = $2
		AND last_event = `+states.SQL(Delayed), db.ID(emailID), db.ID(teamID))
	if err != nil || n == 0 {
		return nil, err
	}
	var open, withheld int
	err = tx.QueryRow(ctx, `SELECT COUNT(*), COUNT(CASE WHEN r.rank IN ($3, $4) THEN 1 END) FROM
		(SELECT rank FROM email_recipients WHERE email_id = $1 AND team_id = $5
		UNION ALL SELECT rank FROM emails WHERE id = $1 AND team_id = $5 AND recipient <> '') r WHERE r.rank < $2`,
		db.ID(emailID), settled, rankWithheld, rankRetryWithheld, db.ID(teamID)).Scan(&open, &withheld)
	if err != nil {
		return nil, fmt.Errorf("count the withheld recipients of email %s: %w", emailID, err)
	}
	if open == 0 || open > withheld {
		return nil, nil
	}
	tx.Queue(ctx, `UPDATE emails SET last_event = $3, rank = $4, updated_at = $5 WHERE id = $1 AND team_id = $2`,
		db.ID(emailID), db.ID(teamID), states.Number(Canceled), rank[Canceled], tx.Now().UnixMicro())
	e, err := readEmail(ctx, tx.Reader, teamID, emailID)
	if err == nil && e.only == "" {
		tx.Queue(ctx, `UPDATE email_recipients SET state = $2, rank = $3, updated_at = $4
			WHERE email_id = $1 AND team_id = $6 AND rank < $5`, db.ID(emailID), states.Number(Canceled), rank[Canceled],
			tx.Now().UnixMicro(), settled, db.ID(teamID))
	}
	return &e, err
}

// MarkSent changes an email's state to sent, in the transaction that records an attempt. MarkSent reports whether this
// call changed the state. If the email has several jobs, only the first attempt changes the state.
func MarkSent(ctx context.Context, tx *db.Tx, teamID, emailID string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE emails SET last_event = $2, rank = $3 WHERE id = $1 AND team_id = $4
		AND rank < $3`, db.ID(emailID), states.Number(Sent), rank[Sent], db.ID(teamID))
	if err != nil {
		return false, fmt.Errorf("mark email %s as sent: %w", emailID, err)
	}
	return n > 0, nil
}

// MarkCanceled changes an email's state to canceled, in the transaction that ends its delivery job. MarkCanceled does
// not change settled emails. The caller must record the event.
func MarkCanceled(ctx context.Context, tx *db.Tx, teamID, emailID string) {
	tx.Queue(ctx, `UPDATE emails SET last_event = $2, rank = $3, updated_at = $5
		WHERE id = $1 AND team_id = $6 AND rank < $4`, db.ID(emailID), states.Number(Canceled), rank[Canceled], settled,
		tx.Now().UnixMicro(), db.ID(teamID))
}
