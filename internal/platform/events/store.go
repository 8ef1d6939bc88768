package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// rowsMax is the maximum number of events that one statement inserts. The number is limited because each row count
// needs its own prepared statement.
const rowsMax = 8

// insert writes the events that belong to a timeline, up to rowsMax in one statement. A delivery result often consists
// of two or three events.
func insert(ctx context.Context, tx *db.Tx, all []Event) error {
	var text strings.Builder
	var args []any
	flush := func() {
		if len(args) > 0 {
			tx.Proof(`SELECT 1 FROM email_events WHERE id = $1 AND email_id = $2`, args[0], args[2])
			tx.Queue(ctx, text.String(), args...)
		}
		text.Reset()
		args = nil
	}
	for i := range all {
		e := &all[i]
		timeline := e.TimelineID()
		if timeline == "" || e.isFirst() {
			continue
		}
		data, err := e.encoded()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			text.WriteString(`INSERT INTO email_events (id, team_id, email_id, domain_id, broadcast_id, type, detail,
				recipient, data, created_at) VALUES `)
		} else {
			text.WriteString(", ")
		}
		n := len(args)
		fmt.Fprintf(&text, "($%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8, n+9,
			n+10)
		args = append(args, e.ID, e.TeamID, timeline, e.DomainID, e.BroadcastID,
			strings.TrimPrefix(string(e.Type), "email."), e.Detail(), e.Recipient, data, e.At.UnixMicro())
		if len(args) == 10*rowsMax {
			flush()
		}
	}
	flush()
	return nil
}

// Entry is an event in an email's timeline.
type Entry struct {
	ID        string
	Type      string // without the prefix "email."
	Recipient string
	Data      string // event data as JSON; empty if there is none
	At        time.Time
}

// timelineMax is the maximum number of entries that Timeline returns if the caller sets no limit. An email can have
// many opens and clicks.
const timelineMax = 1000

// Timeline returns a page of an email's events in the order in which they were recorded, and reports whether more
// events follow. Without a limit, a page has at most 1,000 events. The first event of an email that was not scheduled
// has no row. Timeline leaves it out if it finds no other event of an email that has left the queue, because the
// timeline was deleted then.
func Timeline(ctx context.Context, r db.Reader, teamID, emailID string, p page.Page) ([]Entry, bool, error) {
	if p.Limit <= 0 {
		p.Limit = timelineMax
	}
	// SQLite reads a page of both parts by their keys only if their columns have the same types, and if no other index
	// matches the team.
	return page.Query(ctx, r, page.Select{Text: `SELECT v.id, v.type, v.recipient, v.data, v.created_at FROM
		(SELECT id, type, recipient, data, created_at FROM email_events WHERE email_id = $1 AND team_id || '' = $2
		UNION ALL SELECT e.id, CAST('queued' AS TEXT), CAST('' AS TEXT), CAST('' AS TEXT), e.created_at
		FROM emails e WHERE e.id = $1 AND e.team_id || '' = $2
		AND e.scheduled_at = 0 AND (e.last_event = 'queued'
			OR EXISTS (SELECT 1 FROM email_events x WHERE x.email_id = e.id))) v
		WHERE TRUE`, ID: "v.id", Args: []any{emailID, teamID}, OldestFirst: true}, p,
		func(r db.Row) (e Entry, err error) {
			var at int64
			err = r.Scan(&e.ID, &e.Type, &e.Recipient, &e.Data, &at)
			e.At = db.Time(at)
			return e, err
		})
}
