package tlsreports

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

// table names the tables of TLS reports.
var table = dailyreports.Table{Reports: "tls_reports", About: "''", Counts: []string{"tls_report_sessions",
	"tls_report_policies"}}

// add adds the counts of some reports in one transaction. The rows belong to no team.
func (s *Service) add(ctx context.Context, order []dailyreports.DayDomain, pending entries) error {
	var reports, policies, sessions columns
	for _, at := range order {
		e := pending[at]
		for _, d := range slices.Sorted(maps.Keys(e.About)) {
			text, err := json.Marshal(e.About[d])
			if err != nil {
				return fmt.Errorf("encode a TLS policy: %w", err)
			}
			policies.add(at, d, string(text))
		}
		if len(e.About) > 0 {
			reports.add(at, id.New())
			reports.numbers = append(reports.numbers, dailyreports.FirstTry(at.Day))
		}
		for _, r := range slices.SortedFunc(maps.Keys(e.Rows), compareRows) {
			sessions.add(at, r.digest, r.result, r.host, r.address)
			sessions.numbers = append(sessions.numbers, e.Rows[r])
		}
	}
	err := s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		now := s.c.Now()
		from := 0 // the days are in order
		for from < len(order) && dailyreports.IsLate(order[from].Day, now) {
			from++
		}
		if from > 0 {
			s.p.Log.Warn("TLS sessions of yesterday are not reported, because their counts could not be stored in time",
				"domains", from)
		}
		if from == len(order) {
			return nil
		}
		first := order[from].Day
		if r := reports.since(first); len(r.days) > 0 {
			tx.QueueRows(ctx, `tls_reports (day, domain, report_id, send_at, tries, expires_at, targets)`,
				`ON CONFLICT (day, domain) DO NOTHING`, r.days, r.domains, r.texts[0], r.numbers, int64(0), int64(0), "")
		}
		if p := policies.since(first); len(p.days) > 0 {
			tx.QueueRows(ctx, `tls_report_policies (day, domain, digest, policy)`,
				`ON CONFLICT (day, domain, digest) DO NOTHING`, p.days, p.domains, p.texts[0], p.texts[1])
		}
		if c := sessions.since(first); len(c.days) > 0 {
			tx.QueueRows(ctx, `tls_report_sessions (day, domain, digest, result, host, address, sessions)`,
				`ON CONFLICT (day, domain, digest, result, host, address) DO UPDATE
				SET sessions = tls_report_sessions.sessions + excluded.sessions`, c.days, c.domains, c.texts[0], c.texts[1],
				c.texts[2], c.texts[3], c.numbers)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store counts of TLS sessions: %w", err)
	}
	return nil
}

// columns holds rows in the form for QueueRows.
type columns struct {
	days    []int64
	domains []string
	texts   [4][]string
	numbers []int64
}

func (c *columns) add(at dailyreports.DayDomain, texts ...string) {
	c.days, c.domains = append(c.days, at.Day), append(c.domains, at.Domain)
	for i, text := range texts {
		c.texts[i] = append(c.texts[i], text)
	}
}

// since returns the rows from a day on. The rows must be in the order of their days.
func (c *columns) since(first int64) columns {
	n := 0
	for n < len(c.days) && c.days[n] < first {
		n++
	}
	out := columns{days: c.days[n:], domains: c.domains[n:]}
	for i, list := range c.texts {
		if len(list) > 0 {
			out.texts[i] = list[n:]
		}
	}
	if len(c.numbers) > 0 {
		out.numbers = c.numbers[n:]
	}
	return out
}

// storedPolicy is a policy with its digest.
type storedPolicy struct {
	digest string
	tlsrpt.Policy
}

const maxStoredPolicies = 200 // of all nodes, in a report

// policies returns the policies of a report.
func (s *Service) policies(ctx context.Context, at dailyreports.DayDomain) ([]storedPolicy, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT digest, policy FROM tls_report_policies WHERE day = $1 AND domain = $2
		ORDER BY digest LIMIT $3`, at.Day, at.Domain, maxStoredPolicies)
	all, err := db.Collect(rows, err, func(r db.Row) (p storedPolicy, err error) {
		var text string
		if err = r.Scan(&p.digest, &text); err == nil {
			err = json.Unmarshal([]byte(text), &p.Policy)
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the policies of a TLS report: %w", err)
	}
	return all, nil
}

// count is a number of sessions.
type count struct {
	row
	sessions int64
}

// totals returns the sessions of a report by policy and result.
func (s *Service) totals(ctx context.Context, at dailyreports.DayDomain) ([]count, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT digest, result, CAST(SUM(sessions) AS BIGINT) FROM tls_report_sessions
		WHERE day = $1 AND domain = $2 GROUP BY digest, result ORDER BY digest, result`, at.Day, at.Domain)
	all, err := db.Collect(rows, err, func(r db.Row) (c count, err error) {
		return c, r.Scan(&c.digest, &c.result, &c.sessions)
	})
	if err != nil {
		return nil, fmt.Errorf("read the totals of a TLS report: %w", err)
	}
	return all, nil
}

// failures returns the most frequent failures of a report.
func (s *Service) failures(ctx context.Context, at dailyreports.DayDomain, limit int) ([]count, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT digest, result, host, address, sessions FROM tls_report_sessions
		WHERE day = $1 AND domain = $2 AND result <> '' AND (host <> '' OR address <> '')
		ORDER BY sessions DESC, digest, result, host, address LIMIT $3`, at.Day, at.Domain, limit)
	all, err := db.Collect(rows, err, func(r db.Row) (c count, err error) {
		return c, r.Scan(&c.digest, &c.result, &c.host, &c.address, &c.sessions)
	})
	if err != nil {
		return nil, fmt.Errorf("read the failures of a TLS report: %w", err)
	}
	return all, nil
}
