package events

import (
	"context"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
)

func insert(ctx context.Context, tx *db.Tx, e *Event) error {
	data, err := e.encoded()
	if err != nil {
		return err
	}
	tx.Queue(ctx, `INSERT INTO email_events (id, team_id, email_id, domain_id, broadcast_id, type, detail, recipient, data,
		created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, e.ID, e.TeamID, e.EmailID, e.DomainID, e.BroadcastID,
		strings.TrimPrefix(string(e.Type), "email."), e.detail(), e.Recipient, data, e.At.UnixMicro())
	return nil
}

// Entry is an event as an email's timeline shows it.
type Entry struct {
	ID        string
	Type      string // without the "email." before it
	Recipient string
	Data      string // JSON, empty when none
	At        time.Time
}

// timelineMax bounds what one email's timeline shows; opens and clicks can be many.
const timelineMax = 1000

// Timeline returns the events of an email in the order in which they were recorded.
func Timeline(ctx context.Context, r db.Reader, teamID, emailID string) ([]Entry, error) {
	rows, err := r.Query(ctx, `SELECT id, type, recipient, data, created_at FROM email_events
		WHERE email_id = $1 AND team_id = $2 ORDER BY id LIMIT $3`, emailID, teamID, timelineMax)
	return db.Collect(rows, err, func(r db.Row) (e Entry, err error) {
		var at int64
		err = r.Scan(&e.ID, &e.Type, &e.Recipient, &e.Data, &at)
		e.At = db.Time(at)
		return e, err
	})
}
