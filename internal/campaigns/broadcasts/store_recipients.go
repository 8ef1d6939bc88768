package broadcasts

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// state is the state of a broadcast email to one contact.
type state string

const (
	waiting    state = "waiting" // not handed to a mail server yet
	sent       state = "sent"
	delivered  state = "delivered"
	bounced    state = "bounced"
	failed     state = "failed"
	suppressed state = "suppressed" // suppressed after its email was enqueued
	canceled   state = "canceled"
	leftOut    state = "left_out" // no email was enqueued, or it was canceled because the contact was deleted
)

// states holds the numbers of the states in broadcast_recipients.state. The database trigger that counts results and
// the partial indexes have these numbers, too.
var states = db.NewNames("broadcast_recipients.state", map[state]int16{waiting: 1, sent: 2, delivered: 3, bounced: 4,
	failed: 5, suppressed: 6, canceled: 7, leftOut: 8})

// bounceTypes holds the numbers of the types of bounces in broadcast_recipients.bounce. The trigger has them, too.
var bounceTypes = db.NewNames("broadcast_recipients.bounce", map[string]int16{"": 0, "permanent": 1, "transient": 2,
	"undetermined": 3})

// inStates is an SQL condition that a column has one of the states.
func inStates(column string, some ...state) string {
	numbers := make([]string, len(some))
	for i, s := range some {
		numbers[i] = states.SQL(s)
	}
	return column + " IN (" + strings.Join(numbers, ", ") + ")"
}

// recipient is the row that a broadcast stores for one contact.
type recipient struct {
	broadcastID, contactID, emailID, address string

	state   state
	reason  string
	variant int
}

var insertRow = db.InsertStatement(`broadcast_recipients (broadcast_id, contact_id, email_id, address, state, reason,
	bounce, variant, opens, clicks, opened, clicked, complained, unsubscribed)`,
	`$1, $2, $3, $4, $5, $6, 0, $7, 0, 0, FALSE, FALSE, FALSE, FALSE`, `UUID UUID UUID TEXT SMALLINT TEXT SMALLINT`)

func insertRecipient(ctx context.Context, tx *db.Tx, r *recipient) {
	tx.QueueRow(ctx, insertRow, db.ID(r.broadcastID), db.ID(r.contactID), db.ID(r.emailID), r.address,
		states.Number(r.state), r.reason, r.variant)
}

// ofTeam is an SQL condition that selects the recipients (alias r) of a team's broadcast.
const ofTeam = `r.broadcast_id = (SELECT b.id FROM broadcasts b WHERE b.id = $1 AND b.team_id = $2)`

// recipientsAmong returns which of the contacts are recipients of a team's broadcast.
func recipientsAmong(ctx context.Context, r db.Reader, teamID, broadcastID string, contactIDs []string) (
	map[string]bool, error) {
	found := map[string]bool{}
	rows, err := r.Query(ctx, `SELECT r.contact_id FROM broadcast_recipients r WHERE `+ofTeam+`
		AND r.contact_id = ANY($3)`, db.ID(broadcastID), db.ID(teamID), db.IDs(contactIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID string
		err = r.Scan((*db.ID)(&contactID))
		found[contactID] = true
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for recipients of broadcast %s: %w", broadcastID, err)
	}
	return found, nil
}

// contentOfRecipient returns the id of the current content of the variant that a contact receives.
func contentOfRecipient(ctx context.Context, r db.Reader, teamID, broadcastID, contactID string) (contentID string,
	err error) {
	err = r.QueryRow(ctx, `SELECT v.content_id FROM broadcast_recipients r JOIN broadcast_variants v
		ON v.broadcast_id = r.broadcast_id AND v.number = r.variant WHERE r.broadcast_id = $1 AND v.team_id = $2
		AND r.contact_id = $3`, db.ID(broadcastID), db.ID(teamID), db.ID(contactID)).Scan((*db.ID)(&contentID))
	return contentID, err
}

// ofEmail is an SQL condition that selects the recipient of an email.
const ofEmail = ` WHERE broadcast_id = $1
	AND contact_id = (SELECT e.contact_id FROM emails e WHERE e.id = $3 AND e.team_id = $2)`

// advance changes the state of an email's recipient, unless the recipient already has a later state.
func advance(ctx context.Context, tx *db.Tx, h *emailUpdate) {
	from := inStates("state", waiting, sent, delivered)
	switch h.state {
	case sent:
		from = inStates("state", waiting)
	case delivered, canceled, leftOut:
		from = inStates("state", waiting, sent)
	}
	tx.Queue(ctx, `UPDATE broadcast_recipients SET state = $4, reason = $5, bounce = $6`+ofEmail+` AND `+from,
		db.ID(h.broadcastID), db.ID(h.teamID), db.ID(h.emailID), states.Number(h.state), h.reason,
		bounceTypes.Number(h.bounce))
}

// count adds opens, clicks and other actions to an email's recipient.
func count(ctx context.Context, tx *db.Tx, h *emailUpdate) {
	tx.Queue(ctx, `UPDATE broadcast_recipients SET opens = opens + $4, clicks = clicks + $5, opened = opened OR $6,
		clicked = clicked OR $7, complained = complained OR $8, unsubscribed = unsubscribed OR $9`+ofEmail,
		db.ID(h.broadcastID), db.ID(h.teamID), db.ID(h.emailID), h.opens, h.clicks, h.opened, h.clicked, h.complained,
		h.unsubscribed)
}

// countLink adds clicks on a link to the counters of the link and of the recipient.
func countLink(ctx context.Context, tx *db.Tx, h *emailUpdate, link, url string, clicks int) {
	tx.Queue(ctx, `INSERT INTO broadcast_links (broadcast_id, link, team_id, url, clicks, recipients)
		SELECT $1, $4, $2, $5, $6, CASE WHEN EXISTS (SELECT 1 FROM broadcast_clicks k WHERE k.broadcast_id = $1
		AND k.contact_id = e.contact_id AND k.link = $4) THEN 0 ELSE 1 END
		FROM emails e WHERE e.id = $3 AND e.team_id = $2 AND e.contact_id IS NOT NULL
		ON CONFLICT (broadcast_id, link) DO UPDATE SET clicks = broadcast_links.clicks + excluded.clicks,
		recipients = broadcast_links.recipients + excluded.recipients`, db.ID(h.broadcastID), db.ID(h.teamID),
		db.ID(h.emailID), link, url, clicks)
	tx.Queue(ctx, `INSERT INTO broadcast_clicks (broadcast_id, contact_id, link, team_id, clicks)
		SELECT $1, e.contact_id, $4, $2, $5 FROM emails e WHERE e.id = $3 AND e.team_id = $2 AND e.contact_id IS NOT NULL
		ON CONFLICT (broadcast_id, contact_id, link) DO UPDATE SET clicks = broadcast_clicks.clicks + excluded.clicks`,
		db.ID(h.broadcastID), db.ID(h.teamID), db.ID(h.emailID), link, clicks)
}

// recipientFilters contains the SQL condition for each recipient type. Types that may match most recipients are
// searched in batches by primary key. Every other type has an index in list order, so that pages of rare types are read
// quickly.
var recipientFilters = map[RecipientType]recipientFilter{
	"sent": {condition: inStates("r.state", sent, delivered, bounced),
		count: func(t *Tally) int64 { return t.Sent }},
	"delivered": {condition: inStates("r.state", delivered), count: func(t *Tally) int64 { return t.Delivered }},
	"waiting":   {condition: inStates("r.state", waiting), count: func(t *Tally) int64 { return t.Waiting }},

	"opened":       {index: "opens", condition: `r.opens > 0`},
	"clicked":      {index: "clicks", condition: `r.clicks > 0`},
	"bounced":      inState(bounced),
	"complained":   {index: "complained", condition: `r.complained`},
	"unsubscribed": {index: "unsubscribed", condition: `r.unsubscribed`},
	"suppressed":   {index: "reason", condition: `r.reason = 'suppressed' AND r.reason <> ''`},
	"left_out":     inState(leftOut),
	"failed":       inState(failed),
	"canceled":     inState(canceled),
}

// recipientFilter is a condition on recipients, together with an index for the condition or a function that returns the
// number of matches.
type recipientFilter struct {
	index, condition string

	count func(*Tally) int64
}

// inState returns the filter for a state that is included in the index broadcast_recipients_state.
func inState(s state) recipientFilter {
	return recipientFilter{index: "state",
		condition: fmt.Sprintf(`r.state = %s AND r.state <> %s AND r.state <> %s`, states.SQL(s), states.SQL(waiting),
			states.SQL(delivered))}
}

// listRecipients returns a page of recipients. If the page is not full even though more recipients may follow, next is
// the cursor for continuing; see [page.Search].
func listRecipients(ctx context.Context, r db.Reader, teamID, broadcastID string, q RecipientQuery, p page.Page) (
	all []Recipient, more bool, next string, err error) {
	k := recipientFilters[q.Type]
	args := []any{db.ID(broadcastID), db.ID(teamID)}
	if q.BounceType != "" {
		k = recipientFilter{index: "bounce", condition: inStates("r.state", bounced) + ` AND r.bounce = $3 AND r.bounce <> 0`}
		args = append(args, bounceTypes.Number(q.BounceType))
	}
	some := page.Select{Text: `SELECT ` + recipientColumns + ` FROM broadcast_recipients r`, ID: "r.contact_id",
		Args: args}
	switch {
	case q.contactID != "":
		some.Args = append(args, db.ID(q.contactID))
		some.Text += fmt.Sprintf(` WHERE `+ofTeam+` AND r.contact_id = $%d AND `+k.condition, len(some.Args))
	case k.index != "":
		some.Text += ` /*sqlite: INDEXED BY broadcast_recipients_` + k.index + ` */ WHERE ` + ofTeam + ` AND ` + k.condition
	default:
		tally, err := totalTally(ctx, r, teamID, broadcastID)
		if err != nil || k.count(&tally) == 0 {
			return nil, false, "", err
		}
		span := page.Select{Text: `SELECT r.contact_id AS id FROM broadcast_recipients r WHERE ` + ofTeam, ID: some.ID,
			Args: args}
		some.Text += ` WHERE ` + ofTeam + ` AND ` + k.condition
		return page.Search(ctx, r, span, some, p, scanRecipient)
	}
	all, more, err = page.Query(ctx, r, some, p, scanRecipient)
	return all, more, "", err
}

const recipientColumns = `r.contact_id, r.email_id, r.address, r.state, r.reason, r.bounce, r.variant, r.opens,
	r.clicks`

func scanRecipient(r db.Row) (one Recipient, err error) {
	var now, bounce int16
	err = r.Scan((*db.ID)(&one.ContactID), (*db.ID)(&one.EmailID), &one.Address, &now, &one.Reason, &bounce, &one.Variant,
		&one.Opens, &one.Clicks)
	if err != nil {
		return one, err
	}
	is, err := states.Name(now)
	if err != nil {
		return one, err
	}
	one.State = string(is)
	one.BounceType, err = bounceTypes.Name(bounce)
	return one, err
}

// clicksOf sets the Links field of each recipient to the links that the recipient clicked.
func clicksOf(ctx context.Context, r db.Reader, teamID, broadcastID string, all []Recipient) error {
	at := map[string]*Recipient{}
	var ids []db.ID
	for i := range all {
		at[all[i].ContactID] = &all[i]
		ids = append(ids, db.ID(all[i].ContactID))
	}
	rows, err := r.Query(ctx, `SELECT k.contact_id, l.url, k.clicks FROM broadcast_clicks k JOIN broadcast_links l
		ON l.broadcast_id = k.broadcast_id AND l.link = k.link WHERE k.broadcast_id = $1 AND k.team_id = $2
		AND k.contact_id = ANY($3) ORDER BY k.contact_id, k.clicks DESC, k.link LIMIT $4`, db.ID(broadcastID),
		db.ID(teamID), ids, linksMax*len(ids))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID string
		var link Link
		if err := r.Scan((*db.ID)(&contactID), &link.URL, &link.Clicks); err != nil {
			return none, err
		}
		if of := at[contactID]; len(of.Links) < linksMax {
			of.Links = append(of.Links, link)
		}
		return none, nil
	})
	if err != nil {
		return fmt.Errorf("read the links that recipients of broadcast %s clicked: %w", broadcastID, err)
	}
	return nil
}

// listLinks returns the clicked links after a cursor, most clicked first, or the links before a cursor in reverse
// order.
func listLinks(ctx context.Context, r db.Reader, teamID, broadcastID string, at linkCursor, before bool, limit int) (
	[]Link, error) {
	text := `SELECT link, url, clicks, recipients FROM broadcast_links WHERE broadcast_id = $1 AND team_id = $2`
	args := []any{db.ID(broadcastID), db.ID(teamID)}
	order := "DESC"
	if at.link != "" {
		compare := "<"
		if before {
			compare, order = ">", "ASC"
		}
		text += fmt.Sprintf(` AND (clicks, link) %s ($3, $4)`, compare)
		args = append(args, at.clicks, at.link)
	}
	args = append(args, limit)
	rows, err := r.Query(ctx, text+fmt.Sprintf(` ORDER BY clicks %s, link %s LIMIT $%d`, order, order, len(args)),
		args...)
	all, err := db.Collect(rows, err, func(r db.Row) (l Link, err error) {
		err = r.Scan(&l.id, &l.URL, &l.Clicks, &l.Recipients)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the links of broadcast %s: %w", broadcastID, err)
	}
	return all, nil
}
