package dmarcreports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/platform/db"
)

// add adds counts in one transaction. The rows belong to no team.
func (s *Service) add(ctx context.Context, all []count, pending map[dayDomain]*entry, days map[int64]int64) error {
	err := s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		now, late := s.c.Now(), 0
		for _, d := range slices.Sorted(maps.Keys(days)) {
			if !isLate(d, now) {
				tx.Queue(ctx, `INSERT INTO dmarc_report_days (day, messages) VALUES ($1, $2)
					ON CONFLICT (day) DO UPDATE SET messages = dmarc_report_days.messages + excluded.messages`, d, days[d])
			}
		}
		var about, rows columns
		for i, c := range all {
			if isLate(c.day, now) {
				late++
				continue
			}
			if i == 0 || all[i-1].dayDomain != c.dayDomain {
				first := db.Time(c.day).Add(day + settleFor + rand.N(spread-settleFor))
				about.add(c.dayDomain, id.New(), pending[c.dayDomain].published, db.Micros(first))
			}
			rows.add(c.dayDomain, digest(c.row), c.row, c.messages)
		}
		if late > 0 {
			s.p.Log.Warn("messages of yesterday are missing in DMARC reports, because their counts could not be stored in "+
				"time", "rows", late)
		}
		if len(about.days) > 0 {
			tx.QueueRows(ctx, `dmarc_reports (day, domain, report_id, published, send_at, tries, expires_at, targets)`,
				`ON CONFLICT (day, domain) DO UPDATE SET published = excluded.published`, about.days, about.domains,
				about.texts, about.more, about.numbers, int64(0), int64(0), "")
			tx.QueueRows(ctx, `dmarc_report_rows (day, domain, digest, identity, messages)`,
				`ON CONFLICT (day, domain, digest) DO UPDATE SET messages = dmarc_report_rows.messages + excluded.messages`,
				rows.days, rows.domains, rows.texts, rows.more, rows.numbers)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store counts of received messages: %w", err)
	}
	return nil
}

// columns holds rows in the form for QueueRows.
type columns struct {
	days                 []int64
	domains, texts, more []string
	numbers              []int64
}

func (c *columns) add(at dayDomain, text, more string, n int64) {
	c.days, c.domains = append(c.days, at.day), append(c.domains, at.domain)
	c.texts, c.more, c.numbers = append(c.texts, text), append(c.more, more), append(c.numbers, n)
}

// report is a row of dmarc_reports.
type report struct {
	dayDomain
	id        string
	published published
	sendAt    int64 // also the fence: a node that acts on the report changes it first
	tries     int64
	expiresAt int64
	targets   []target
}

// target is a target with its state.
type target struct {
	To    string `json:"to"`
	State state  `json:"state,omitempty"`
}

// state is the state of a target; "" means that it waits for the next try.
type state string

const (
	trying  state = "trying" // a node has begun a try; if it was killed, the outcome is unknown
	settled state = "settled"
)

// due returns reports whose next try is due at a time. Those that have waited longest come first.
func (s *Service) due(ctx context.Context, at time.Time, limit int) ([]report, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT day, domain, report_id, published, send_at, tries, expires_at, targets
		FROM dmarc_reports WHERE send_at <= $1 ORDER BY send_at LIMIT $2`, db.Micros(at), limit)
	all, err := db.Collect(rows, err, func(r db.Row) (x report, err error) {
		var about, targets string
		err = r.Scan(&x.day, &x.domain, &x.id, &about, &x.sendAt, &x.tries, &x.expiresAt, &targets)
		if err == nil {
			err = json.Unmarshal([]byte(about), &x.published)
		}
		if err == nil && targets != "" {
			err = json.Unmarshal([]byte(targets), &x.targets)
		}
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("list DMARC reports to send: %w", err)
	}
	return all, nil
}

// save stores the state of a report, with a new time of the next try. It returns false if another node has changed the
// report since it was read.
func (s *Service) save(ctx context.Context, x *report, sendAt time.Time) (ok bool, err error) {
	targets := ""
	if x.targets != nil {
		targets = encode(x.targets)
	}
	// The time always changes, because it is the fence.
	next := max(db.Micros(sendAt), x.sendAt+1)
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE dmarc_reports SET send_at = $4, tries = $5, expires_at = $6, targets = $7
			WHERE day = $1 AND domain = $2 AND send_at = $3`, x.day, x.domain, x.sendAt, next, x.tries, x.expiresAt,
			targets)
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store the state of the DMARC report to %s: %w", x.domain, err)
	}
	x.sendAt = next
	return ok, nil
}

// remove deletes reports with their counts.
func (s *Service) remove(ctx context.Context, all ...report) error {
	byDay := map[int64][]string{}
	for _, x := range all {
		byDay[x.day] = append(byDay[x.day], x.domain)
	}
	for _, from := range slices.Sorted(maps.Keys(byDay)) {
		domains := byDay[from]
		err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
			tx.Queue(ctx, `DELETE FROM dmarc_report_rows WHERE day = $1 AND domain = ANY($2)`, from, domains)
			tx.Queue(ctx, `DELETE FROM dmarc_reports WHERE day = $1 AND domain = ANY($2)`, from, domains)
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete DMARC reports: %w", err)
		}
	}
	return nil
}

// prune deletes the numbers of messages of past days, and the bounces of targets that have rested long enough.
func (s *Service) prune(ctx context.Context) error {
	now := s.c.Now()
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `DELETE FROM dmarc_report_days WHERE day < $1`, db.Micros(now.Add(-keepDays)))
		tx.Queue(ctx, `DELETE FROM dmarc_report_bounces WHERE last_at < $1`, db.Micros(now.Add(-restFor)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete old message counts and bounces of DMARC reports: %w", err)
	}
	return nil
}

// received returns the number of messages that the installation received on a day.
func (s *Service) received(ctx context.Context, day int64) (n int64, err error) {
	err = s.p.DB.QueryRow(ctx, `SELECT messages FROM dmarc_report_days WHERE day = $1`, day).Scan(&n)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return 0, fmt.Errorf("read the number of received messages: %w", err)
	}
	return n, nil
}

// maxRows limits the rows of a report. The rows with the most messages are reported.
const maxRows = 20_000

// rows returns the rows of a report.
func (s *Service) rows(ctx context.Context, x report) ([]dmarcrpt.Row, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT identity, messages FROM dmarc_report_rows WHERE day = $1 AND domain = $2
		ORDER BY messages DESC, digest LIMIT $3`, x.day, x.domain, maxRows)
	all, err := db.Collect(rows, err, func(r db.Row) (row dmarcrpt.Row, err error) {
		var text string
		var n int64
		if err = r.Scan(&text, &n); err != nil {
			return row, err
		}
		var who identity
		err = json.Unmarshal([]byte(text), &who)
		return who.row(n, &x.published.Policy), err
	})
	if err != nil {
		return nil, fmt.Errorf("read the rows of a DMARC report: %w", err)
	}
	return all, nil
}

// rests reports whether too many reports to a target bounced.
func (s *Service) rests(ctx context.Context, to string) (bool, error) {
	var bounces, last int64
	err := s.p.DB.QueryRow(ctx, `SELECT bounces, last_at FROM dmarc_report_bounces WHERE target = $1`, to).Scan(&bounces,
		&last)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return false, fmt.Errorf("read the bounces of a target of DMARC reports: %w", err)
	}
	return bounces >= maxBounces && s.c.Now().Before(db.Time(last).Add(restFor)), nil
}

// bounced stores the outcome of a report to a target. A bounce is counted; a report that arrived clears the earlier
// bounces.
func (s *Service) bounced(ctx context.Context, to string, bounce bool) error {
	err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if bounce {
			_, err = tx.Exec(ctx, `INSERT INTO dmarc_report_bounces (target, bounces, last_at) VALUES ($1, 1, $2)
				ON CONFLICT (target) DO UPDATE SET bounces = dmarc_report_bounces.bounces + 1, last_at = excluded.last_at`,
				to, db.Micros(s.c.Now()))
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM dmarc_report_bounces WHERE target = $1`, to)
		return err
	})
	if err != nil {
		return fmt.Errorf("store the bounces of a target of DMARC reports: %w", err)
	}
	return nil
}
