package domainreports

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// targetOf does not require a team id, because the address determines the team.
func targetOf(ctx context.Context, r db.Reader, token string) (t Target, ok bool, err error) {
	err = r.QueryRow(ctx, `SELECT a.team_id, a.domain_id, d.name, d.return_path FROM report_addresses a
		JOIN domains d ON d.id = a.domain_id AND d.team_id = a.team_id WHERE a.token = $1`, token).Scan((*db.ID)(&t.TeamID),
		(*db.ID)(&t.DomainID), &t.Domain, &t.returnPath)
	if errors.Is(err, db.ErrNoRows) {
		return Target{}, false, nil
	}
	if err != nil {
		return Target{}, false, fmt.Errorf("find the domain of an address for reports: %w", err)
	}
	t.returnPath += "." + t.Domain
	return t, true, nil
}

// tokenOf returns a domain's token, or "" if it has none yet.
func tokenOf(ctx context.Context, r db.Reader, teamID, domainID string) (token string, err error) {
	err = r.QueryRow(ctx, `SELECT token FROM report_addresses WHERE domain_id = $1 AND team_id = $2`, db.ID(domainID),
		db.ID(teamID)).Scan(&token)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return token, err
}

// insertToken adds the address of a domain, unless it has one.
func insertToken(ctx context.Context, tx *db.Tx, teamID, domainID string) {
	tx.Queue(ctx, `INSERT INTO report_addresses (domain_id, team_id, token, noticed_at, dmarc)
		VALUES ($1, $2, $3, 0, '') ON CONFLICT (domain_id) DO NOTHING`, db.ID(domainID), db.ID(teamID), newToken())
}

// createToken returns the token of a domain, which it creates if needed.
func (s *Service) createToken(ctx context.Context, d *domains.Domain) (token string, err error) {
	err = s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		insertToken(ctx, tx, d.TeamID, d.ID)
		token, err = tokenOf(ctx, tx.Reader, d.TeamID, d.ID)
		return err
	})
	return token, err
}

// storedRecords are a domain's address for reports, and the advised records of the last look-up.
type storedRecords struct {
	token        string
	dmarc        string // "" if it was never looked up
	dmarcRecords int    // number of the domain's DMARC records if it has several, of which none counts
	inherited    bool   // whether dmarc comes from the domains above
	tls          string // "" if it was never looked up
	asks         string // what the present DMARC record asks of receivers; "" if it was never looked up
	asksSince    int64  // 0: since before the first look-up
}

// recordsOf returns what is stored of a domain; nothing is not an error.
func recordsOf(ctx context.Context, r db.Reader, teamID, domainID string) (x storedRecords, err error) {
	err = r.QueryRow(ctx, `SELECT token, dmarc, dmarc_records, dmarc_inherited, tls, dmarc_asks, asks_since
		FROM report_addresses WHERE domain_id = $1 AND team_id = $2`, db.ID(domainID), db.ID(teamID)).Scan(&x.token, &x.dmarc,
		&x.dmarcRecords, &x.inherited, &x.tls, &x.asks, &x.asksSince)
	if errors.Is(err, db.ErrNoRows) {
		return storedRecords{}, nil
	}
	if err != nil {
		return storedRecords{}, fmt.Errorf("read the stored records for reports: %w", err)
	}
	return x, nil
}

// recordsOfAll returns what is stored of domains, which may belong to several teams, by the id of the domain.
func recordsOfAll(ctx context.Context, r db.Reader, of []*domains.Domain) (map[string]storedRecords, error) {
	ids, teams := make([]string, len(of)), make([]string, len(of))
	for i, d := range of {
		ids[i], teams[i] = d.ID, d.TeamID
	}
	all := make(map[string]storedRecords, len(of))
	rows, err := r.Query(ctx, `SELECT domain_id, token, dmarc, dmarc_records, tls FROM report_addresses
		WHERE domain_id = ANY($1) AND team_id = ANY($2)`, db.IDs(ids), db.IDs(teams))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var id string
		var x storedRecords
		err = r.Scan((*db.ID)(&id), &x.token, &x.dmarc, &x.dmarcRecords, &x.tls)
		all[id] = x
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the stored records for reports of domains: %w", err)
	}
	return all, nil
}

func (s *Service) saveRecords(ctx context.Context, d *domains.Domain, x *storedRecords) error {
	err := s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE report_addresses SET dmarc = $3, dmarc_records = $4, tls = $5, dmarc_asks = $6,
			asks_since = $7, dmarc_inherited = $8 WHERE domain_id = $1 AND team_id = $2`, db.ID(d.ID), db.ID(d.TeamID),
			db.Text(x.dmarc, recordMax), x.dmarcRecords, db.Text(x.tls, recordMax), x.asks, x.asksSince, x.inherited)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the records for reports about %s: %w", d.Name, err)
	}
	return nil
}

const recordMax = 4 << 10

// lockReports serializes the transactions that store reports about a domain, because limits and overlaps depend on
// those that are stored.
func lockReports(ctx context.Context, tx *db.Tx, domainID string) error {
	if err := tx.Serialize(ctx, "reports of "+domainID); err != nil {
		return fmt.Errorf("wait for others that store reports about domain %s: %w", domainID, err)
	}
	return nil
}

func countsOf(ctx context.Context, r db.Reader, t *Target, day int64) (c dayCounts, err error) {
	c.day = day
	err = r.QueryRow(ctx, `SELECT reports, others, stored_rows, other_rows, bytes, dropped FROM report_days
		WHERE domain_id = $1 AND day = $2 AND team_id = $3`, db.ID(t.DomainID), day, db.ID(t.TeamID)).Scan(&c.reports,
		&c.others, &c.rows, &c.otherRows, &c.bytes, &c.dropped)
	if errors.Is(err, db.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("count the reports of a day: %w", err)
	}
	return c, nil
}

func saveCounts(ctx context.Context, tx *db.Tx, t *Target, day int64, c *dayCounts) {
	tx.Queue(ctx, `INSERT INTO report_days (domain_id, team_id, day, reports, others, stored_rows, other_rows, bytes,
		dropped) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (domain_id, day) DO UPDATE SET
		reports = excluded.reports, others = excluded.others, stored_rows = excluded.stored_rows,
		other_rows = excluded.other_rows, bytes = excluded.bytes, dropped = excluded.dropped`, db.ID(t.DomainID),
		db.ID(t.TeamID), day, c.reports, c.others, c.rows, c.otherRows, c.bytes, c.dropped)
}

// usageOf returns the zero usage for reporters without a name.
func usageOf(ctx context.Context, r db.Reader, t *Target, day int64, reporter string) (u usage, err error) {
	if reporter == "" {
		return u, nil
	}
	err = r.QueryRow(ctx, `SELECT reports, stored_rows, bytes FROM report_reporters WHERE domain_id = $1 AND day = $2
		AND reporter = $3 AND team_id = $4`, db.ID(t.DomainID), day, reporter, db.ID(t.TeamID)).Scan(&u.reports, &u.rows,
		&u.bytes)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return u, fmt.Errorf("count the reports of %s: %w", reporter, err)
	}
	return u, nil
}

func saveUsage(ctx context.Context, tx *db.Tx, t *Target, day int64, reporter string, u *usage) {
	if reporter == "" || *u == (usage{}) {
		return
	}
	tx.Queue(ctx, `INSERT INTO report_reporters (domain_id, team_id, day, reporter, reports, stored_rows, bytes)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (domain_id, day, reporter) DO UPDATE SET
		reports = excluded.reports, stored_rows = excluded.stored_rows, bytes = excluded.bytes`, db.ID(t.DomainID),
		db.ID(t.TeamID), day, reporter, u.reports, u.rows, u.bytes)
}

// isStored reports whether a report with a key is stored. The empty key is that of no report.
func isStored(ctx context.Context, r db.Reader, t *Target, dedupe string) (bool, error) {
	var one int
	err := r.QueryRow(ctx, `SELECT 1 FROM received_reports WHERE domain_id = $1 AND dedupe = $2 AND dedupe <> ''
		AND team_id = $3`, db.ID(t.DomainID), dedupe, db.ID(t.TeamID)).Scan(&one)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an earlier copy of a report: %w", err)
	}
	return true, nil
}

// noteRepeat increases the number of repetitions of a stored report. It returns false if the report is not stored.
func noteRepeat(ctx context.Context, tx *db.Tx, t *Target, dedupe string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE received_reports SET repeats = repeats + 1 WHERE domain_id = $1 AND dedupe = $2
		AND dedupe <> '' AND team_id = $3`, db.ID(t.DomainID), dedupe, db.ID(t.TeamID))
	return n > 0, err
}

// isKnownFile reports whether a file is stored that has a fingerprint.
func isKnownFile(ctx context.Context, r db.Reader, t *Target, fingerprint string) (bool, error) {
	var one int
	err := r.QueryRow(ctx, `SELECT 1 FROM received_reports WHERE domain_id = $1 AND fingerprint = $2 AND fingerprint <> ''
		AND team_id = $3 LIMIT 1`, db.ID(t.DomainID), fingerprint, db.ID(t.TeamID)).Scan(&one)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an earlier copy of a file: %w", err)
	}
	return true, nil
}

// noteKnownFile increases the number of repetitions of the report in a file.
func noteKnownFile(ctx context.Context, tx *db.Tx, t *Target, fingerprint string) error {
	_, err := tx.Exec(ctx, `UPDATE received_reports SET repeats = repeats + 1 WHERE domain_id = $1 AND fingerprint = $2
		AND fingerprint <> '' AND team_id = $3`, db.ID(t.DomainID), fingerprint, db.ID(t.TeamID))
	return err
}

// overlaps reports whether a counted report of the same reporter has a period in common with a report.
func overlaps(ctx context.Context, r db.Reader, t *Target, x *Report) (bool, error) {
	var one int
	err := r.QueryRow(ctx, `SELECT 1 FROM received_reports WHERE domain_id = $1 AND kind = $2 AND proven = $3
		AND reporter = $4 AND begins > $5 AND begins < $6 AND ends > $7 AND organization = $8 AND policy_domain = $9
		AND state = 'counted' AND team_id = $10 LIMIT 1`, db.ID(t.DomainID), string(x.Kind), x.Proven, x.Reporter,
		db.Micros(x.Begin.Add(-maxPeriod-1)), db.Micros(x.End), db.Micros(x.Begin), x.Organization, x.PolicyDomain,
		db.ID(t.TeamID)).Scan(&one)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

const reportColumns = `id, kind, state, reason, proven, reporter, organization, report_id, policy_domain, begins, ends,
	messages, failed, report_rows, repeats, size, blob_key, own_messages, own_failed, received_at`

func insertReport(ctx context.Context, tx *db.Tx, t *Target, x *Report) {
	tx.Proof(`SELECT 1 FROM received_reports WHERE id = $1`, db.ID(x.ID))
	tx.Queue(ctx, `INSERT INTO received_reports (team_id, domain_id, dedupe, fingerprint, `+reportColumns+`) VALUES ($1, $2, $3, $4, $5,
		$6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`, db.ID(t.TeamID),
		db.ID(t.DomainID), x.dedupe, x.fingerprint, db.ID(x.ID), string(x.Kind), string(x.State), x.Reason, x.Proven, x.Reporter,
		x.Organization, x.ReportID, x.PolicyDomain, db.Micros(x.Begin), db.Micros(x.End), x.Messages, x.Failed, x.Rows,
		x.Repeats, x.Size, x.blobKey, x.ownMessages, x.ownFailed, db.Micros(x.ReceivedAt))
}

func scanReport(r db.Row) (x Report, err error) {
	var kind, state string
	var begins, ends, at int64
	err = r.Scan((*db.ID)(&x.ID), &kind, &state, &x.Reason, &x.Proven, &x.Reporter, &x.Organization, &x.ReportID,
		&x.PolicyDomain, &begins, &ends, &x.Messages, &x.Failed, &x.Rows, &x.Repeats, &x.Size, &x.blobKey, &x.ownMessages,
		&x.ownFailed, &at)
	if errors.Is(err, db.ErrNoRows) {
		return x, fault.NotFoundf("Report not found")
	}
	x.Kind, x.State, x.Begin, x.End, x.ReceivedAt = Kind(kind), State(state), db.Time(begins), db.Time(ends), db.Time(at)
	x.HasFile = x.blobKey != ""
	return x, err
}

func listReports(ctx context.Context, r db.Reader, teamID, domainID string, p page.Page) ([]Report, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + reportColumns + ` FROM received_reports
		WHERE domain_id = $1 AND team_id = $2`, ID: "id", Args: []any{db.ID(domainID), db.ID(teamID)}}, p, scanReport)
}

// addRows adds messages to the rows of a day.
func addRows(ctx context.Context, tx *db.Tx, t *Target, day int64, reporter string, proven bool, rows []row) {
	if len(rows) == 0 {
		return
	}
	n := len(rows)
	texts := map[string][]string{}
	add := func(column, value string) { texts[column] = append(texts[column], value) }
	own, dkim, spf, counts := make([]bool, n), make([]bool, n), make([]bool, n), make([]int64, n)
	for i, r := range rows {
		from := reporter
		if r.source == "" {
			from = ""
		}
		add("digest", r.digest(from, proven))
		add("reporter", from)
		add("source", r.source)
		add("header_from", r.headerFrom)
		add("disposition", r.disposition)
		add("dkim_domain", r.dkimDomain)
		add("selector", r.selector)
		add("dkim_result", r.dkimResult)
		add("spf_domain", r.spfDomain)
		add("spf_result", r.spfResult)
		own[i], dkim[i], spf[i], counts[i] = r.own, r.dkim, r.spf, r.messages
	}
	tx.QueueRows(ctx, `received_dmarc_rows (domain_id, team_id, day, proven, digest, reporter, source, own, header_from,
		disposition, dkim, spf, dkim_domain, selector, dkim_result, spf_domain, spf_result, messages)`,
		`ON CONFLICT (domain_id, day, digest) DO UPDATE SET messages = received_dmarc_rows.messages + excluded.messages`,
		db.ID(t.DomainID), db.ID(t.TeamID), day, proven, texts["digest"], texts["reporter"], texts["source"], own,
		texts["header_from"], texts["disposition"], dkim, spf, texts["dkim_domain"], texts["selector"],
		texts["dkim_result"], texts["spf_domain"], texts["spf_result"], counts)
}

// addSessions adds TLS sessions to the rows of a day.
func addSessions(ctx context.Context, tx *db.Tx, t *Target, day int64, reporter string, proven bool, all []sessions) {
	if len(all) == 0 {
		return
	}
	var digests, reporters, types, names, results, hosts []string
	var counts []int64
	for _, x := range all {
		from := reporter
		if x.isFolded() {
			from = ""
		}
		digests, reporters = append(digests, x.digest(from, proven)), append(reporters, from)
		types, names = append(types, x.policyType), append(names, x.policyDomain)
		results, hosts, counts = append(results, x.result), append(hosts, x.host), append(counts, x.count)
	}
	tx.QueueRows(ctx, `received_tls_rows (domain_id, team_id, day, proven, digest, reporter, policy_type, policy_domain,
		result, host, sessions)`, `ON CONFLICT (domain_id, day, digest) DO UPDATE
		SET sessions = received_tls_rows.sessions + excluded.sessions`, db.ID(t.DomainID), db.ID(t.TeamID), day, proven,
		digests, reporters, types, names, results, hosts, counts)
}

// noticedAt returns when the team was last told of failing signatures of this installation.
func noticedAt(ctx context.Context, r db.Reader, t *Target) (at int64, err error) {
	err = r.QueryRow(ctx, `SELECT noticed_at FROM report_addresses WHERE domain_id = $1 AND team_id = $2`,
		db.ID(t.DomainID), db.ID(t.TeamID)).Scan(&at)
	if errors.Is(err, db.ErrNoRows) {
		return 0, nil
	}
	return at, err
}

func saveNotice(ctx context.Context, tx *db.Tx, t *Target, at time.Time) {
	tx.Queue(ctx, `UPDATE report_addresses SET noticed_at = $3 WHERE domain_id = $1 AND team_id = $2`, db.ID(t.DomainID),
		db.ID(t.TeamID), db.Micros(at))
}
