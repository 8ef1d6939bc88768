package domainreports

import (
	"context"
	"fmt"
	"slices"

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

// firstDay returns the first day with proven counts, or 0.
func firstDay(ctx context.Context, r db.Reader, teamID, domainID string) (day int64, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(MIN(day), 0) FROM (SELECT day FROM received_dmarc_rows WHERE domain_id = $1
		AND proven AND team_id = $2 ORDER BY domain_id, day LIMIT 1) AS f`, db.ID(domainID), db.ID(teamID)).Scan(&day)
	if err != nil {
		return 0, fmt.Errorf("find the first DMARC report: %w", err)
	}
	return day, nil
}

// Defect says that signatures of this installation fail at a domain.
type Defect struct {
	TeamID, Domain   string
	Failed, Messages int64
	Reporters        int64
}

const defectsMax = 20

// recentDefects sums the failures since a report id. It covers all teams, because the operator is responsible.
func recentDefects(ctx context.Context, r db.Reader, since string) ([]Defect, error) {
	rows, err := r.Query(ctx, `SELECT x.team_id, COALESCE((SELECT d.name FROM domains d WHERE d.id = x.domain_id), ''),
		CAST(SUM(x.own_failed) AS BIGINT), CAST(SUM(x.own_messages) AS BIGINT), COUNT(DISTINCT x.reporter)
		FROM (SELECT team_id, domain_id, own_failed, own_messages, reporter FROM received_reports WHERE id > $1 AND
			own_failed > 0 ORDER BY id DESC LIMIT 5000) AS x
		GROUP BY x.team_id, x.domain_id ORDER BY 3 DESC LIMIT $2`, db.ID(since), defectsMax)
	all, err := db.Collect(rows, err, func(r db.Row) (d Defect, err error) {
		return d, r.Scan((*db.ID)(&d.TeamID), &d.Domain, &d.Failed, &d.Messages, &d.Reporters)
	})
	if err != nil {
		return nil, fmt.Errorf("find failing signatures in DMARC reports: %w", err)
	}
	return slices.DeleteFunc(all, func(d Defect) bool { return d.Domain == "" }), nil // domains that were deleted
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
