package events

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Newest is the newest event of an email, for lists.
type Newest struct {
	Type   string // without the prefix "email."
	Data   string // event data as JSON; "" if there is none
	Host   string // that the attempt behind the event has reached; "" if there is none
	At     time.Time
	NextAt time.Time // when the delivery is tried again; zero if it is not
}

// OutboxHost is the host of attempts in which the outbox of a node for development has taken the email.
const OutboxHost = "outbox"

// LatestMax is the maximum number of emails for which Latest reads the newest event.
const LatestMax = 100

// Latest returns the newest event of each of a team's emails, by the email's id. Emails without events are left out.
func Latest(ctx context.Context, r db.Reader, teamID string, emailIDs []string) (map[string]Newest, error) {
	all := map[string]Newest{}
	if len(emailIDs) == 0 {
		return all, nil
	}
	rows, err := r.Query(ctx, `SELECT e.id, v.type, v.data, v.created_at, COALESCE(v.next_at, 0),
		COALESCE(v.host, '') FROM emails e
		JOIN email_events v ON v.email_id = e.id
		AND v.id = (SELECT x.id FROM email_events x WHERE x.email_id = e.id ORDER BY x.id DESC LIMIT 1)
		WHERE e.team_id = $1 AND e.id = ANY($2)`, db.ID(teamID), db.IDs(emailIDs[:min(len(emailIDs), LatestMax)]))
	type row struct {
		id string
		Newest
	}
	some, err := db.Collect(rows, err, func(r db.Row) (x row, err error) {
		var number int16
		var at, next int64
		if err := r.Scan((*db.ID)(&x.id), &number, &x.Data, &at, &next, &x.Host); err != nil {
			return x, err
		}
		x.At, x.NextAt = db.Time(at), db.Time(next)
		x.Type = ReadType(number)
		return x, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the newest events of emails: %w", err)
	}
	for _, x := range some {
		all[x.id] = x.Newest
	}
	return all, nil
}
