package domainreports

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// total is a number of messages of a period, added up by day, source, reporter and results.
type total struct {
	key
	day      int64
	reporter string
	messages int64
}

// viewRows limits the rows of a view. A domain has at most about maxDayRows rows a day.
const viewRows = 400_000

// dmarcTotals calls each for every number of messages of a domain in a period.
func dmarcTotals(ctx context.Context, r db.Reader, teamID, domainID string, from, to int64, each func(total)) error {
	rows, err := r.Query(ctx, `SELECT day, reporter, source, own, header_from, disposition, dkim, spf, dkim_domain,
		selector, dkim_result, spf_domain, spf_result, messages FROM received_dmarc_rows WHERE domain_id = $1 AND day >= $2
		AND day < $3 AND proven AND team_id = $4 LIMIT $5`, db.ID(domainID), from, to, db.ID(teamID), viewRows)
	if err != nil {
		return fmt.Errorf("read the counts of DMARC reports: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var x total
		if err := rows.Scan(&x.day, &x.reporter, &x.source, &x.own, &x.headerFrom, &x.disposition, &x.dkim, &x.spf,
			&x.dkimDomain, &x.selector, &x.dkimResult, &x.spfDomain, &x.spfResult, &x.messages); err != nil {
			return fmt.Errorf("read the counts of DMARC reports: %w", err)
		}
		each(x)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the counts of DMARC reports: %w", err)
	}
	return nil
}

// Apart counts what reports without proof say.
type Apart struct{ Messages, Failed int64 }

func unprovenMessages(ctx context.Context, r db.Reader, teamID, domainID string, from, to int64) (a Apart, err error) {
	err = r.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(messages), 0) AS BIGINT),
		CAST(COALESCE(SUM(CASE WHEN dkim OR spf THEN 0 ELSE messages END), 0) AS BIGINT) FROM received_dmarc_rows
		WHERE domain_id = $1 AND day >= $2 AND day < $3 AND NOT proven AND team_id = $4`, db.ID(domainID), from, to,
		db.ID(teamID)).Scan(&a.Messages, &a.Failed)
	if err != nil {
		return a, fmt.Errorf("read the counts of reports without proof: %w", err)
	}
	return a, nil
}

func unprovenSessions(ctx context.Context, r db.Reader, teamID, domainID string, from, to int64) (a Apart, err error) {
	err = r.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(sessions), 0) AS BIGINT),
		CAST(COALESCE(SUM(CASE WHEN result = '' THEN 0 ELSE sessions END), 0) AS BIGINT) FROM received_tls_rows
		WHERE domain_id = $1 AND day >= $2 AND day < $3 AND NOT proven AND team_id = $4`, db.ID(domainID), from, to,
		db.ID(teamID)).Scan(&a.Messages, &a.Failed)
	if err != nil {
		return a, fmt.Errorf("read the counts of reports without proof: %w", err)
	}
	return a, nil
}

// tlsTotal is a number of sessions of a period.
type tlsTotal struct {
	sessions
	day      int64
	reporter string
}

func tlsTotals(ctx context.Context, r db.Reader, teamID, domainID string, from, to int64, each func(tlsTotal)) error {
	rows, err := r.Query(ctx, `SELECT day, reporter, policy_type, policy_domain, result, host, sessions
		FROM received_tls_rows WHERE domain_id = $1 AND day >= $2 AND day < $3 AND proven AND team_id = $4 LIMIT $5`,
		db.ID(domainID), from, to, db.ID(teamID), viewRows)
	if err != nil {
		return fmt.Errorf("read the counts of TLS reports: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var x tlsTotal
		if err := rows.Scan(&x.day, &x.reporter, &x.policyType, &x.policyDomain, &x.result, &x.host,
			&x.count); err != nil {
			return fmt.Errorf("read the counts of TLS reports: %w", err)
		}
		each(x)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the counts of TLS reports: %w", err)
	}
	return nil
}

// firstDay returns the day of a reporter's first proven DMARC report, or 0.
func firstDay(ctx context.Context, r db.Reader, teamID, domainID, reporter string) (day int64, err error) {
	var begins, ends int64
	err = r.QueryRow(ctx, `SELECT begins, ends FROM received_reports WHERE domain_id = $1 AND kind = 'dmarc'
		AND reporter = $2 AND state = 'counted' AND proven AND team_id = $3 ORDER BY begins LIMIT 1`, db.ID(domainID),
		reporter, db.ID(teamID)).Scan(&begins, &ends)
	if errors.Is(err, db.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the first DMARC report: %w", err)
	}
	return dayOf(db.Time(begins), db.Time(ends)), nil
}

// Defect says that signatures of this installation fail at a domain.
type Defect struct {
	TeamID, Domain   string
	Failed, Messages int64
	Reporters        int64
}

const (
	defectsMax = 20
	claimsMax  = 20_000 // reports with failures that are read
)

// recentClaims returns what reporters say since a report id, by team and domain. It covers all teams, because the
// operator is responsible.
func recentClaims(ctx context.Context, r db.Reader, since string) (map[Defect][]claim, error) {
	rows, err := r.Query(ctx, `SELECT x.team_id, COALESCE((SELECT d.name FROM domains d WHERE d.id = x.domain_id), ''),
		x.reporter, CAST(SUM(x.own_failed) AS BIGINT), CAST(SUM(x.own_messages) AS BIGINT)
		FROM (SELECT team_id, domain_id, own_failed, own_messages, reporter FROM received_reports WHERE id > $1 AND
			own_failed > 0 ORDER BY id DESC LIMIT $2) AS x
		GROUP BY x.team_id, x.domain_id, x.reporter`, db.ID(since), claimsMax)
	all := map[Defect][]claim{}
	_, err = db.Collect(rows, err, func(r db.Row) (x claim, err error) {
		var on Defect
		if err = r.Scan((*db.ID)(&on.TeamID), &on.Domain, &x.reporter, &x.failed, &x.messages); err == nil && on.Domain != "" {
			all[on] = append(all[on], x) // other domains were deleted
		}
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("find failing signatures in DMARC reports: %w", err)
	}
	return all, nil
}

// claimsAbout returns what reporters say about one domain since a report id.
func claimsAbout(ctx context.Context, r db.Reader, t *Target, since string) ([]claim, error) {
	rows, err := r.Query(ctx, `SELECT reporter, CAST(SUM(own_failed) AS BIGINT), CAST(SUM(own_messages) AS BIGINT)
		FROM received_reports WHERE domain_id = $1 AND id > $2 AND own_failed > 0 AND team_id = $3 GROUP BY reporter
		LIMIT $4`, db.ID(t.DomainID), db.ID(since), db.ID(t.TeamID), claimsMax)
	all, err := db.Collect(rows, err, func(r db.Row) (x claim, err error) {
		return x, r.Scan(&x.reporter, &x.failed, &x.messages)
	})
	if err != nil {
		return nil, fmt.Errorf("find failing signatures in DMARC reports about %s: %w", t.Domain, err)
	}
	return all, nil
}

const selectorsMax = 500

// knownSelectors returns the selectors of valid signatures from sources that pass SPF or belong to this installation.
func knownSelectors(ctx context.Context, r db.Reader, teamID, domainID string, from int64) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT DISTINCT selector FROM received_dmarc_rows WHERE domain_id = $1 AND day >= $2
		AND proven AND dkim AND (own OR spf) AND selector <> '' AND team_id = $3 LIMIT $4`, db.ID(domainID), from,
		db.ID(teamID), selectorsMax)
	all, err := db.Collect(rows, err, func(r db.Row) (name string, err error) { return name, r.Scan(&name) })
	if err != nil {
		return nil, fmt.Errorf("read the selectors in DMARC reports: %w", err)
	}
	return all, nil
}
