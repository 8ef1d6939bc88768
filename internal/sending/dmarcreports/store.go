package dmarcreports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

// table names the tables of DMARC reports.
var table = dailyreports.Table{Reports: "dmarc_reports", About: "published", Counts: []string{"dmarc_report_rows"}}

// add adds counts in one transaction. The rows belong to no team.
func (s *Service) add(ctx context.Context, all []count, pending dailyreports.Entries[string, string],
	days map[int64]int64) error {
	err := s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		now, late := s.c.Now(), 0
		for _, d := range slices.Sorted(maps.Keys(days)) {
			if !dailyreports.IsLate(d, now) {
				tx.Queue(ctx, `INSERT INTO dmarc_report_days (day, messages) VALUES ($1, $2)
					ON CONFLICT (day) DO UPDATE SET messages = dmarc_report_days.messages + excluded.messages`, d, days[d])
			}
		}
		var about, rows columns
		for i, c := range all {
			if dailyreports.IsLate(c.Day, now) {
				late++
				continue
			}
			if i == 0 || all[i-1].DayDomain != c.DayDomain {
				about.add(c.DayDomain, id.New(), pending[c.DayDomain].About, dailyreports.FirstTry(c.Day))
			}
			rows.add(c.DayDomain, digest(c.row), c.row, c.messages)
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

func (c *columns) add(at dailyreports.DayDomain, text, more string, n int64) {
	c.days, c.domains = append(c.days, at.Day), append(c.domains, at.Domain)
	c.texts, c.more, c.numbers = append(c.texts, text), append(c.more, more), append(c.numbers, n)
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

// rows returns the rows of a report about messages to which a policy applied.
func (s *Service) rows(ctx context.Context, at dailyreports.DayDomain, p *dmarcrpt.Policy) ([]dmarcrpt.Row, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT identity, messages FROM dmarc_report_rows WHERE day = $1 AND domain = $2
		ORDER BY messages DESC, digest LIMIT $3`, at.Day, at.Domain, maxRows)
	all, err := db.Collect(rows, err, func(r db.Row) (row dmarcrpt.Row, err error) {
		var text string
		var n int64
		if err = r.Scan(&text, &n); err != nil {
			return row, err
		}
		var who identity
		err = json.Unmarshal([]byte(text), &who)
		return who.row(n, p), err
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
