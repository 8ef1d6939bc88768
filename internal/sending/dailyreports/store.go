package dailyreports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/db"
)

// Table names the tables of a kind of reports.
type Table struct {
	// Reports has the columns day, domain, report_id, send_at, tries, expires_at and targets, with the key (day,
	// domain). The package that counts inserts a row with the first count.
	Reports string
	About   string   // SQL expression for Report.About
	Counts  []string // tables of counts, with the columns day and domain
}

// due returns at most sendBatch reports whose next try is due at a time. Those that have waited longest come first.
func (s *Sender) due(ctx context.Context, at time.Time) ([]*Report, error) {
	rows, err := s.DB.Query(ctx, `SELECT day, domain, report_id, send_at, tries, expires_at, targets, `+s.Table.About+`
		FROM `+s.Table.Reports+` WHERE send_at <= $1 ORDER BY send_at LIMIT $2`, db.Micros(at), sendBatch)
	all, err := db.Collect(rows, err, func(r db.Row) (*Report, error) {
		var x Report
		var targets string
		err := r.Scan(&x.Day, &x.Domain, &x.ID, &x.sendAt, &x.tries, &x.expiresAt, &targets, &x.About)
		if err == nil && targets != "" {
			err = json.Unmarshal([]byte(targets), &x.targets)
		}
		return &x, err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s reports to send: %w", s.Kind, err)
	}
	return all, nil
}

// save stores the state of a report, with a new time of the next try. It returns false if another node has changed the
// report since it was read.
func (s *Sender) save(ctx context.Context, x *Report, sendAt time.Time) (ok bool, err error) {
	targets := []byte{}
	if x.targets != nil {
		if targets, err = json.Marshal(x.targets); err != nil {
			return false, fmt.Errorf("encode the targets of a %s report: %w", s.Kind, err)
		}
	}
	// The time always changes, because it is the fence.
	next := max(db.Micros(sendAt), x.sendAt+1)
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE `+s.Table.Reports+` SET send_at = $4, tries = $5, expires_at = $6, targets = $7
			WHERE day = $1 AND domain = $2 AND send_at = $3`, x.Day, x.Domain, x.sendAt, next, x.tries, x.expiresAt,
			string(targets))
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store the state of the %s report to %s: %w", s.Kind, x.Domain, err)
	}
	x.sendAt = next
	return ok, nil
}

// remove deletes reports with their counts.
func (s *Sender) remove(ctx context.Context, all []*Report) error {
	byDay := map[int64][]string{}
	for _, x := range all {
		byDay[x.Day] = append(byDay[x.Day], x.Domain)
	}
	for _, day := range slices.Sorted(maps.Keys(byDay)) {
		err := s.DB.Update(ctx, func(tx *db.Tx) error {
			for _, table := range slices.Concat(s.Table.Counts, []string{s.Table.Reports}) {
				tx.Queue(ctx, `DELETE FROM `+table+` WHERE day = $1 AND domain = ANY($2)`, day, byDay[day])
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete %s reports: %w", s.Kind, err)
		}
	}
	return nil
}
