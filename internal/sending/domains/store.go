package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const columns = `id, team_id, name, region, return_path, tracking_subdomain, old_tracking, tls, open_tracking,
	click_tracking, sending, receiving, status, checks, rsa_key, ed25519_key, rsa_record, ed25519_record, placeholder,
	verify_since, checked_at, created_at, setup, former_setup, setup_token, rsa_selector, ed25519_selector, keys_since,
	rotate_at, dmarc_record, bimi_record`

func scan(r db.Row) (d Domain, err error) {
	var old, status, checks string
	var since, checked, created, keysSince, rotateAt int64
	err = r.Scan((*db.ID)(&d.ID), (*db.ID)(&d.TeamID), &d.Name, &d.Region, &d.ReturnPath, &d.TrackingSubdomain, &old,
		&d.TLS, &d.OpenTracking, &d.ClickTracking, &d.Sending, &d.Receiving, &status, &checks, &d.rsa.sealed,
		&d.ed25519.sealed, &d.rsa.record, &d.ed25519.record, &d.Placeholder, &since, &checked, &created,
		&d.Setup, &d.FormerSetup, &d.setupToken, &d.rsa.selector, &d.ed25519.selector, &keysSince, &rotateAt,
		&d.DMARCRecord, &d.BIMIRecord)
	if errors.Is(err, db.ErrNoRows) {
		return d, fault.NotFoundf("Domain not found")
	}
	if err != nil {
		return d, fmt.Errorf("read domain: %w", err)
	}
	for label := range strings.SplitSeq(old, ",") {
		if label != "" {
			d.Tracked = append(d.Tracked, label)
		}
	}
	d.Status, d.VerifySince, d.CheckedAt, d.CreatedAt = Status(status), db.Time(since), db.Time(checked), db.Time(created)
	if d.keysSince, d.rotateAt = d.CreatedAt, db.Time(rotateAt); keysSince != 0 {
		d.keysSince = db.Time(keysSince)
	}
	if err := json.Unmarshal([]byte(checks), &d.checks); err != nil {
		return d, fmt.Errorf("read the checks of domain %s: %w", d.ID, err)
	}
	return d, nil
}

func encodeChecks(d *Domain) string {
	text, _ := json.Marshal(d.checks) // Strings and numbers can always be encoded.
	return string(text)
}

func insertDomain(ctx context.Context, tx *db.Tx, d *Domain) {
	tx.Proof(`SELECT 1 FROM domains WHERE id = $1`, db.ID(d.ID))
	tx.Queue(ctx, `INSERT INTO domains (`+columns+
		`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
		$17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31)`, db.ID(d.ID), db.ID(d.TeamID), d.Name,
		d.Region, d.ReturnPath, d.TrackingSubdomain,
		strings.Join(d.Tracked, ","), d.TLS, d.OpenTracking, d.ClickTracking, d.Sending, d.Receiving, string(d.Status),
		encodeChecks(d), d.rsa.sealed, d.ed25519.sealed, d.rsa.record, d.ed25519.record, d.Placeholder,
		db.Micros(d.VerifySince), db.Micros(d.CheckedAt), d.CreatedAt.UnixMicro(), cmp.Or(d.Setup, SetupRecords),
		d.FormerSetup, d.setupToken, d.rsa.selector, d.ed25519.selector, db.Micros(d.keysSince), db.Micros(d.rotateAt),
		d.DMARCRecord, d.BIMIRecord)
}

func saveDomain(ctx context.Context, tx *db.Tx, d *Domain) {
	tx.Queue(ctx, `UPDATE domains SET tracking_subdomain = $3, old_tracking = $4, tls = $5, open_tracking = $6,
		click_tracking = $7,
		sending = $8, receiving = $9, status = $10, checks = $11, verify_since = $12, checked_at = $13, placeholder = $14,
		setup = $15, former_setup = $16, setup_token = $17, dmarc_record = $18, bimi_record = $19
		WHERE id = $1 AND team_id = $2`, db.ID(d.ID), db.ID(d.TeamID), d.TrackingSubdomain, strings.Join(d.Tracked, ","),
		d.TLS, d.OpenTracking, d.ClickTracking, d.Sending, d.Receiving, string(d.Status), encodeChecks(d),
		db.Micros(d.VerifySince), db.Micros(d.CheckedAt), d.Placeholder, cmp.Or(d.Setup, SetupRecords), d.FormerSetup,
		d.setupToken, d.DMARCRecord, d.BIMIRecord)
}

func getDomain(ctx context.Context, r db.Reader, teamID, domainID string) (Domain, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM domains WHERE id = $1 AND team_id = $2`, db.ID(domainID),
		db.ID(teamID)))
}

// lockDomain serializes the transactions that change a domain, because each of them writes the whole row.
func lockDomain(ctx context.Context, tx *db.Tx, domainID string) error {
	if err := tx.Serialize(ctx, "domain "+domainID); err != nil {
		return fmt.Errorf("wait for others that change domain %s: %w", domainID, err)
	}
	return nil
}

// domainToChange locks and reads a domain that the transaction will change.
func domainToChange(ctx context.Context, tx *db.Tx, teamID, domainID string) (Domain, error) {
	if err := lockDomain(ctx, tx, domainID); err != nil {
		return Domain{}, err
	}
	return getDomain(ctx, tx.Reader, teamID, domainID)
}

// domainByID does not require a team id, because all teams send from the sandbox domains, which belong to no team.
func domainByID(ctx context.Context, r db.Reader, domainID string) (Domain, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM domains WHERE id = $1`, db.ID(domainID)))
}

func domainByName(ctx context.Context, r db.Reader, teamID, name string) (Domain, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM domains WHERE name = $1 AND team_id = $2 AND NOT placeholder`,
		name, db.ID(teamID)))
}

// domainOwned returns the domain with the given name. The domain may belong to any team, because claims concern other
// teams' domains.
func domainOwned(ctx context.Context, r db.Reader, name string) (Domain, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM domains WHERE name = $1 AND NOT placeholder`, name))
}

const selectNamed = `SELECT ` + columns + ` FROM domains WHERE NOT placeholder AND name = ANY($1)`

// domainsNamed returns all domains, of any team, that have one of the names, as a map keyed by name. The function does
// not require a team id, because an incoming message specifies only a host.
func domainsNamed(ctx context.Context, r db.Reader, names ...string) (map[string]Domain, error) {
	rows, err := r.Query(ctx, selectNamed, names)
	all, err := db.Collect(rows, err, scan)
	named := make(map[string]Domain, len(all))
	for _, d := range all {
		named[d.Name] = d
	}
	return named, err
}

// takeNames registers names for a domain and releases the domain's other names; it returns the names that belong to
// another team. A name that is registered for another domain of the same team stays registered for that domain.
func takeNames(ctx context.Context, tx *db.Tx, d *Domain, names []dnsName) (others map[string]bool, err error) {
	all := []string{}
	for _, n := range names {
		all = append(all, n.name)
	}
	tx.Queue(ctx, `DELETE FROM domain_names WHERE domain_id = $1 AND team_id = $3 AND name <> ALL($2)`, db.ID(d.ID), all,
		db.ID(d.TeamID))
	if len(names) == 0 {
		return nil, nil
	}
	for _, n := range names {
		tx.Queue(ctx, `INSERT INTO domain_names (name, domain_id, team_id, host) VALUES ($1, $2, $3, $4)
			ON CONFLICT DO NOTHING`,
			n.name, db.ID(d.ID), db.ID(d.TeamID), n.host)
	}
	return namesOfOthers(ctx, tx.Reader, d.TeamID, d.ID, all)
}

const selectNamesOfOthers = `SELECT name, host FROM domain_names WHERE team_id <> $1 AND domain_id <> $2
	AND name = ANY($3)`

// namesOfOthers returns the names that belong to other teams. The parameter but is the id of a domain whose names are
// left out. In the map that namesOfOthers returns, the value is true for hosts and false for domains.
func namesOfOthers(ctx context.Context, r db.Reader, teamID, but string, names []string) (map[string]bool, error) {
	rows, err := r.Query(ctx, selectNamesOfOthers, db.ID(teamID), db.OrNoID(but), names)
	others := map[string]bool{}
	_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
		var name string
		var host bool
		err := r.Scan(&name, &host)
		others[name] = host
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("find the teams of a domain's names: %w", err)
	}
	return others, nil
}

func listDomains(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Domain, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + columns + ` FROM domains WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}, p, scan)
}

// findDomains reads the team's domains, which an index selects, and compares them with the filter.
func findDomains(ctx context.Context, r db.Reader, teamID string, f Filter, p page.Page) ([]Domain, bool, error) {
	text, args := `SELECT `+columns+` FROM domains WHERE team_id = $1`, []any{db.ID(teamID)}
	if len(f.Statuses) > 0 {
		var all []string
		for _, s := range f.Statuses {
			all = append(all, string(s))
		}
		args = append(args, all)
		text += fmt.Sprintf(` AND status = ANY($%d)`, len(args))
	}
	if f.Name != "" {
		args = append(args, "%"+strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(strings.ToLower(f.Name))+"%")
		text += fmt.Sprintf(` AND name LIKE $%d ESCAPE '\'`, len(args))
	}
	return page.Query(ctx, r, page.Select{Text: text, ID: "id", Args: args}, p, scan)
}

func countDomains(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM domains WHERE team_id = $1 AND NOT placeholder`, db.ID(teamID)).Scan(&n)
	return n, err
}

const countUnproved = `SELECT COUNT(*) FROM (SELECT 1 FROM domains WHERE team_id = $1
	AND status IN ('not_started', 'pending', 'failed') LIMIT $2) AS few`

// unprovedDomains counts the team's unverified domains, including placeholders, up to limit.
func unprovedDomains(ctx context.Context, r db.Reader, teamID string, limit int) (n int, err error) {
	err = r.QueryRow(ctx, countUnproved, db.ID(teamID), limit).Scan(&n)
	return n, err
}

func deleteDomain(ctx context.Context, tx *db.Tx, teamID, domainID string) {
	tx.Queue(ctx, `DELETE FROM domains WHERE id = $1 AND team_id = $2`, db.ID(domainID), db.ID(teamID))
}

// owned holds the ids of a domain and its team.
type owned struct{ id, teamID string }

func overdue(ctx context.Context, r db.Reader, before, missingBefore time.Time, limit int) ([]owned, error) {
	rows, err := r.Query(ctx, `SELECT id, team_id FROM domains
		WHERE status IN ('verified', 'partially_verified', 'partially_failed') AND NOT placeholder AND team_id <> $4
		AND (checked_at < $1 OR checked_at < $2 AND checks LIKE '%"temporary_failure"%') ORDER BY checked_at LIMIT $3`,
		before.UnixMicro(), missingBefore.UnixMicro(), limit, db.ID(system))
	return db.Collect(rows, err, func(r db.Row) (o owned, err error) {
		err = r.Scan((*db.ID)(&o.id), (*db.ID)(&o.teamID))
		return o, err
	})
}
