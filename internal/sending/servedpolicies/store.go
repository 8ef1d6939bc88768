package servedpolicies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

const columns = `domain_id, team_id, mode, max_age, hosts, body, policy_id, former_id, announce_at, obsolete_at,
	testing_since, leads_here, check_at, checked_at, changed_at, watch, name`

func scan(r db.Row) (*row, error) {
	var p row
	var mode, hosts, found string
	var age, announce, obsolete, testing, check, checked, changed int64
	err := r.Scan((*db.ID)(&p.DomainID), (*db.ID)(&p.TeamID), &mode, &age, &hosts, &p.Body, &p.ID, &p.FormerID, &announce,
		&obsolete, &testing, &p.LeadsHere, &check, &checked, &changed, &found, &p.Name)
	if err != nil {
		return nil, err
	}
	p.Mode, p.MaxAge = mtasts.Mode(mode), time.Duration(age)*time.Second
	p.AnnounceAt, p.ObsoleteAt, p.TestingSince = db.Time(announce), db.Time(obsolete), db.Time(testing)
	p.CheckAt, p.CheckedAt, p.ChangedAt = db.Time(check), db.Time(checked), db.Time(changed)
	if err := json.Unmarshal([]byte(hosts), &p.Hosts); err != nil {
		return nil, fmt.Errorf("read the hosts of a served policy: %w", err)
	}
	if err := json.Unmarshal([]byte(found), &p.Watch); err != nil {
		return nil, fmt.Errorf("read the state of a served policy: %w", err)
	}
	return &p, nil
}

// find returns the row of a team's domain, or nil if there is none.
func find(ctx context.Context, r db.Reader, teamID, domainID string) (*row, error) {
	p, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM served_policies WHERE domain_id = $1 AND team_id = $2`,
		db.ID(domainID), db.OrNoID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the served policy of domain %s: %w", domainID, err)
	}
	return p, nil
}

// findServed is like find, but returns nil if the domain was deleted or does not receive any more.
func findServed(ctx context.Context, r db.Reader, teamID, domainID string) (*row, error) {
	p, err := find(ctx, r, teamID, domainID)
	if err != nil || p == nil {
		return nil, err
	}
	var receives bool
	err = r.QueryRow(ctx, `SELECT COUNT(*) > 0 FROM domains WHERE id = $1 AND team_id = $2 AND receiving`,
		db.ID(domainID), db.ID(teamID)).Scan(&receives)
	if err != nil {
		return nil, fmt.Errorf("read whether domain %s receives: %w", domainID, err)
	}
	if !receives {
		return nil, nil
	}
	return p, nil
}

// findWithdrawn returns the policy of a domain that was deleted or no longer receives, or nil if there is none that senders
// could find. If there are several, it is the one whose copies expire last. No team is named, because the domain may
// belong to none.
func findWithdrawn(ctx context.Context, r db.Reader, name string) (*row, error) {
	p, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM served_policies p WHERE p.name = $1 AND p.leads_here AND NOT EXISTS
		(SELECT 1 FROM domains d WHERE d.id = p.domain_id AND d.receiving AND NOT d.placeholder)
		ORDER BY obsolete_at DESC LIMIT 1`, name))
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the withdrawn policy of %s: %w", name, err)
	}
	return p, nil
}

// withdrawnAfter returns policies of deleted domains that senders could find, in the order of the ids of the domains.
// No team is named, because the domains may belong to none.
func withdrawnAfter(ctx context.Context, r db.Reader, after string, limit int) ([]*row, error) {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM served_policies p WHERE p.domain_id > $1 AND p.leads_here
		AND NOT EXISTS (SELECT 1 FROM domains d WHERE d.id = p.domain_id) ORDER BY p.domain_id LIMIT $2`,
		db.OrNoID(after), limit)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list the withdrawn policies of deleted domains: %w", err)
	}
	return all, nil
}

// findAll returns the rows of domains, which may belong to several teams, by the id of the domain.
func findAll(ctx context.Context, r db.Reader, of []*domains.Domain) (map[string]*row, error) {
	ids, teams := make([]string, len(of)), make([]string, len(of))
	for i, d := range of {
		ids[i], teams[i] = d.ID, d.TeamID
	}
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM served_policies WHERE domain_id = ANY($1) AND team_id = ANY($2)`,
		db.IDs(ids), db.IDs(teams))
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("read the served policies of domains: %w", err)
	}
	all := make(map[string]*row, len(list))
	for _, p := range list {
		all[p.DomainID] = p
	}
	return all, nil
}

// lock serializes the transactions that change a domain's policy, because each of them writes the whole row.
func lock(ctx context.Context, tx *db.Tx, domainID string) error {
	if err := tx.Serialize(ctx, "served policy "+domainID); err != nil {
		return fmt.Errorf("wait for others that change the policy of domain %s: %w", domainID, err)
	}
	return nil
}

// save inserts or replaces a row.
func save(ctx context.Context, tx *db.Tx, p *row) error {
	hosts, err := json.Marshal(p.Hosts)
	if err != nil {
		return fmt.Errorf("encode the hosts of a served policy: %w", err)
	}
	found, err := json.Marshal(p.Watch)
	if err != nil {
		return fmt.Errorf("encode the state of a served policy: %w", err)
	}
	tx.Queue(ctx, `INSERT INTO served_policies (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
		ON CONFLICT (domain_id) DO UPDATE SET mode = excluded.mode, max_age = excluded.max_age, hosts = excluded.hosts,
		body = excluded.body, policy_id = excluded.policy_id, former_id = excluded.former_id,
		announce_at = excluded.announce_at, obsolete_at = excluded.obsolete_at, testing_since = excluded.testing_since,
		leads_here = excluded.leads_here, check_at = excluded.check_at, checked_at = excluded.checked_at,
		changed_at = excluded.changed_at, watch = excluded.watch WHERE served_policies.team_id = excluded.team_id`,
		db.ID(p.DomainID), db.OrNoID(p.TeamID), string(p.Mode), int64(p.MaxAge/time.Second), string(hosts), p.Body, p.ID,
		p.FormerID, db.Micros(p.AnnounceAt), db.Micros(p.ObsoleteAt), db.Micros(p.TestingSince), p.LeadsHere,
		db.Micros(p.CheckAt), db.Micros(p.CheckedAt), db.Micros(p.ChangedAt), string(found), p.Name)
	return nil
}

// releaseSome deletes or releases a batch of a team's rows, and returns how many.
func releaseSome(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	const some = ` domain_id IN (SELECT domain_id FROM served_policies WHERE team_id = $1 ORDER BY domain_id LIMIT $2)`
	deleted, err := tx.Exec(ctx, `DELETE FROM served_policies WHERE team_id = $1 AND NOT leads_here AND`+some,
		db.ID(teamID), checkBatch)
	if err != nil {
		return 0, err
	}
	released, err := tx.Exec(ctx, `UPDATE served_policies SET team_id = $3 WHERE team_id = $1 AND`+some, db.ID(teamID),
		checkBatch, db.OrNoID(""))
	return deleted + released, err
}

// remove deletes a row.
func remove(ctx context.Context, tx *db.Tx, p *row) {
	tx.Queue(ctx, `DELETE FROM served_policies WHERE domain_id = $1 AND team_id = $2`, db.ID(p.DomainID),
		db.OrNoID(p.TeamID))
}

// noteHost stores that mta-sts.DOMAIN leads to this installation, so that the host may have a certificate.
func (s *Service) noteHost(ctx context.Context, p *row) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE served_policies SET leads_here = $3 WHERE domain_id = $1 AND team_id = $2`,
			db.ID(p.DomainID), db.OrNoID(p.TeamID), true)
		return nil
	})
}

// due returns policies whose check is due, of all teams, the longest waiting first.
func (s *Service) due(ctx context.Context, now time.Time, limit int) ([]*row, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT `+columns+` FROM served_policies WHERE check_at <= $1
		ORDER BY check_at LIMIT $2`, db.Micros(now), limit)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list served policies to check: %w", err)
	}
	return all, nil
}

// postpone sets the time of a policy's next check, and returns false if it is not the given one any more.
func (s *Service) postpone(ctx context.Context, p *row, to time.Time) (ok bool, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE served_policies SET check_at = $4 WHERE domain_id = $1 AND team_id = $2
			AND check_at = $3`, db.ID(p.DomainID), db.OrNoID(p.TeamID), db.Micros(p.CheckAt), db.Micros(to))
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postpone the check of the policy of domain %s: %w", p.DomainID, err)
	}
	return ok, nil
}

// CheckSoon makes the check of the policy of a team's domain due now, in the transaction tx.
func (s *Service) CheckSoon(ctx context.Context, tx *db.Tx, teamID, domainID string) error {
	now := db.Micros(s.c.Now())
	_, err := tx.Exec(ctx, `UPDATE served_policies SET check_at = $3 WHERE domain_id = $1 AND team_id = $2
		AND check_at > $3`, db.ID(domainID), db.ID(teamID), now)
	if err != nil {
		return fmt.Errorf("make the check of the policy of domain %s due: %w", domainID, err)
	}
	return nil
}
