package tlsreports

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
)

// add adds the counts of some reports in one transaction. The rows belong to no team.
func (s *Service) add(ctx context.Context, order []dayDomain, pending map[dayDomain]*entry) error {
	var reports, policies, sessions columns
	for _, at := range order {
		e := pending[at]
		for _, d := range slices.Sorted(maps.Keys(e.policies)) {
			text, err := json.Marshal(e.policies[d])
			if err != nil {
				return fmt.Errorf("encode a TLS policy: %w", err)
			}
			policies.add(at, d, string(text))
		}
		if len(e.policies) > 0 {
			reports.add(at, id.New())
			first := db.Time(at.day).Add(day + settleFor + rand.N(spread-settleFor))
			reports.numbers = append(reports.numbers, db.Micros(first))
		}
		for _, r := range slices.SortedFunc(maps.Keys(e.sessions), compareRows) {
			sessions.add(at, r.digest, r.result, r.host, r.address)
			sessions.numbers = append(sessions.numbers, e.sessions[r])
		}
	}
	err := s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		now := s.c.Now()
		from := 0 // the days are in order
		for from < len(order) && isLate(order[from].day, now) {
			from++
		}
		if from > 0 {
			s.p.Log.Warn("TLS sessions of yesterday are not reported, because their counts could not be stored in time",
				"domains", from)
		}
		if from == len(order) {
			return nil
		}
		first := order[from].day
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

func (c *columns) add(at dayDomain, texts ...string) {
	c.days, c.domains = append(c.days, at.day), append(c.domains, at.domain)
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

// report is a row of tls_reports.
type report struct {
	dayDomain
	id        string
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

func scanReport(r db.Row) (x report, err error) {
	var targets string
	err = r.Scan(&x.day, &x.domain, &x.id, &x.sendAt, &x.tries, &x.expiresAt, &targets)
	if err == nil && targets != "" {
		err = json.Unmarshal([]byte(targets), &x.targets)
	}
	return x, err
}

// due returns reports whose next try is due at a time, the longest waiting first.
func (s *Service) due(ctx context.Context, at time.Time, limit int) ([]report, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT day, domain, report_id, send_at, tries, expires_at, targets FROM tls_reports
		WHERE send_at <= $1 ORDER BY send_at LIMIT $2`, db.Micros(at), limit)
	all, err := db.Collect(rows, err, scanReport)
	if err != nil {
		return nil, fmt.Errorf("list TLS reports to send: %w", err)
	}
	return all, nil
}

// save stores the state of a report, with a new time of the next try. It returns false if another node has changed the
// report since it was read.
func (s *Service) save(ctx context.Context, x *report, sendAt time.Time) (ok bool, err error) {
	targets := []byte{}
	if x.targets != nil {
		if targets, err = json.Marshal(x.targets); err != nil {
			return false, fmt.Errorf("encode the targets of a TLS report: %w", err)
		}
	}
	// The time always changes, because it is the fence.
	next := max(db.Micros(sendAt), x.sendAt+1)
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE tls_reports SET send_at = $4, tries = $5, expires_at = $6, targets = $7
			WHERE day = $1 AND domain = $2 AND send_at = $3`, x.day, x.domain, x.sendAt, next, x.tries, x.expiresAt,
			string(targets))
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store the state of the TLS report to %s: %w", x.domain, err)
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
			tx.Queue(ctx, `DELETE FROM tls_report_sessions WHERE day = $1 AND domain = ANY($2)`, from, domains)
			tx.Queue(ctx, `DELETE FROM tls_report_policies WHERE day = $1 AND domain = ANY($2)`, from, domains)
			tx.Queue(ctx, `DELETE FROM tls_reports WHERE day = $1 AND domain = ANY($2)`, from, domains)
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete TLS reports: %w", err)
		}
	}
	return nil
}

// storedPolicy is a policy with its digest.
type storedPolicy struct {
	digest string
	tlsrpt.Policy
}

const maxStoredPolicies = 200 // of all nodes, in a report

// policies returns the policies of a report.
func (s *Service) policies(ctx context.Context, at dayDomain) ([]storedPolicy, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT digest, policy FROM tls_report_policies WHERE day = $1 AND domain = $2
		ORDER BY digest LIMIT $3`, at.day, at.domain, maxStoredPolicies)
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
func (s *Service) totals(ctx context.Context, at dayDomain) ([]count, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT digest, result, CAST(SUM(sessions) AS BIGINT) FROM tls_report_sessions
		WHERE day = $1 AND domain = $2 GROUP BY digest, result ORDER BY digest, result`, at.day, at.domain)
	all, err := db.Collect(rows, err, func(r db.Row) (c count, err error) {
		return c, r.Scan(&c.digest, &c.result, &c.sessions)
	})
	if err != nil {
		return nil, fmt.Errorf("read the totals of a TLS report: %w", err)
	}
	return all, nil
}

// failures returns the most frequent failures of a report.
func (s *Service) failures(ctx context.Context, at dayDomain, limit int) ([]count, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT digest, result, host, address, sessions FROM tls_report_sessions
		WHERE day = $1 AND domain = $2 AND result <> '' AND (host <> '' OR address <> '')
		ORDER BY sessions DESC, digest, result, host, address LIMIT $3`, at.day, at.domain, limit)
	all, err := db.Collect(rows, err, func(r db.Row) (c count, err error) {
		return c, r.Scan(&c.digest, &c.result, &c.host, &c.address, &c.sessions)
	})
	if err != nil {
		return nil, fmt.Errorf("read the failures of a TLS report: %w", err)
	}
	return all, nil
}
