package tracking

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// hitKind identifies the hits that share one limit.
type hitKind struct {
	emailID, recipient string // recipient is "" if unknown
	typ                string // opened or clicked
	detail             string // of the event
}

// countStored returns the number of stored hits of each kind, at most recordedMax per kind. Only hits on the given
// emails are counted: those by the given recipients, and those without a known recipient. With the index
// email_events_hits, countStored reads no more rows per kind than it counts.
func countStored(ctx context.Context, r db.Reader, teamIDs, emailIDs, recipients []string) (map[hitKind]int, error) {
	n := map[hitKind]int{}
	rows, err := r.Query(ctx, `SELECT w.email_id, w.recipient, t.type, d.detail, (SELECT COUNT(*) FROM
		(SELECT 1 FROM email_events v WHERE v.type IN `+events.AnyOf(events.EmailOpened, events.EmailClicked)+`
		AND v.email_id = w.email_id
		AND v.type = t.type AND v.recipient = w.recipient AND v.detail = d.detail LIMIT $3) hits)
		FROM (SELECT email_id, address AS recipient FROM email_recipients WHERE email_id = ANY($1) AND address = ANY($2)
		UNION SELECT id, recipient FROM emails WHERE id = ANY($1) AND team_id = ANY($4) AND recipient = ANY($2)
		UNION SELECT id, '' FROM emails WHERE id = ANY($1) AND team_id = ANY($4)) w,
		(SELECT `+events.Types.SQL(events.EmailOpened)+` AS type
		UNION ALL SELECT `+events.Types.SQL(events.EmailClicked)+`) t,
		(SELECT '' AS detail UNION ALL SELECT 'machine') d`, db.IDs(emailIDs), recipients, recordedMax,
		db.IDs(teamIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var k hitKind
		var count int
		var number int16
		if err := r.Scan((*db.ID)(&k.emailID), &k.recipient, &number, &k.detail, &count); err != nil {
			return none, err
		}
		k.typ, err = events.TypeName(number)
		n[k] = count
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("count the opens and clicks of emails: %w", err)
	}
	return n, nil
}

// storedEventIDs returns the event ids of a batch that are already stored.
func storedEventIDs(ctx context.Context, r db.Reader, emailIDs []string, batch []*pendingHit) (map[string]bool, error) {
	var ids []string
	for _, w := range batch {
		if w.unsure {
			ids = append(ids, w.eventID)
		}
	}
	found := map[string]bool{}
	rows, err := r.Query(ctx, `SELECT id FROM email_events WHERE email_id = ANY($1) AND id = ANY($2)`,
		db.IDs(emailIDs), db.IDs(ids))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var eventID string
		err = r.Scan((*db.ID)(&eventID))
		found[eventID] = true
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("find the opens and clicks that are recorded: %w", err)
	}
	return found, nil
}
