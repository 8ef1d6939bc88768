package forwards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// ruleIndex is the unique index on domain, match and target.
const ruleIndex = "forwards_rule"

const selectRules = `SELECT f.id, f.team_id, f.domain_id, f.local, f.address, f.target, f.enabled, f.created_at,
	f.forwarded, f.failed, f.stopped, f.reason, f.reason_at, f.failing_since, f.hour, f.hour_count,
	f.secret, f.old_secret, f.old_until, COALESCE(t.state, 0), COALESCE(t.asked_at, 0), COALESCE(t.changed_at, 0)
	FROM forwards f LEFT JOIN forward_targets t ON t.team_id = f.team_id AND t.target = f.target`

func scanRule(row db.Row) (r Rule, err error) {
	var created, reasonAt, failing, oldUntil, askedAt, agreed int64
	err = row.Scan((*db.ID)(&r.ID), (*db.ID)(&r.TeamID), (*db.ID)(&r.DomainID), &r.Local, &r.Address, &r.target,
		&r.Enabled, &created, &r.Forwarded, &r.Failed, &r.Stopped, &r.Reason, &reasonAt, &failing, &r.hour, &r.hourCount,
		&r.secret.Sealed, &r.secret.Old, &oldUntil, &r.consent, &askedAt, &agreed)
	if errors.Is(err, db.ErrNoRows) {
		return r, fault.NotFoundf("Forwarding rule not found")
	}
	if err != nil {
		return r, fmt.Errorf("read a forwarding rule: %w", err)
	}
	if r.Address == "" {
		r.URL = r.target
	}
	r.CreatedAt, r.ReasonAt, r.FailingSince, r.agreed = db.Time(created), db.Time(reasonAt), db.Time(failing),
		db.Time(agreed)
	r.secret.OldUntil = db.Time(oldUntil)
	r.setAsked(db.Time(askedAt))
	return r, nil
}

func getRule(ctx context.Context, r db.Reader, teamID, domainID, ruleID string) (Rule, error) {
	rule, err := ruleByID(ctx, r, teamID, ruleID)
	if err == nil && rule.DomainID != domainID {
		return Rule{}, fault.NotFoundf("Forwarding rule not found")
	}
	return rule, err
}

func ruleByID(ctx context.Context, r db.Reader, teamID, ruleID string) (Rule, error) {
	return scanRule(r.QueryRow(ctx, selectRules+` WHERE f.id = $1 AND f.team_id = $2`, db.ID(ruleID), db.ID(teamID)))
}

// rulesOf returns all rules of a domain.
func rulesOf(ctx context.Context, r db.Reader, teamID, domainID string) ([]Rule, error) {
	rows, err := r.Query(ctx, selectRules+` WHERE f.domain_id = $1 AND f.team_id = $2 ORDER BY f.local, f.target LIMIT $3`,
		db.ID(domainID), db.ID(teamID), MaxPerDomain)
	return db.Collect(rows, err, scanRule)
}

func listRules(ctx context.Context, r db.Reader, teamID, domainID string, p page.Page) ([]Rule, bool, error) {
	return page.Query(ctx, r, page.Select{Text: selectRules + ` WHERE f.domain_id = $1 AND f.team_id = $2`, ID: "f.id",
		Args: []any{db.ID(domainID), db.ID(teamID)}}, p, scanRule)
}

func countRules(ctx context.Context, r db.Reader, teamID, domainID string) (inDomain, inTeam int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM forwards WHERE domain_id = $1 AND team_id = $2`, db.ID(domainID),
		db.ID(teamID)).Scan(&inDomain)
	if err == nil {
		err = r.QueryRow(ctx, `SELECT COUNT(*) FROM forwards WHERE team_id = $1`, db.ID(teamID)).Scan(&inTeam)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("count forwarding rules: %w", err)
	}
	return inDomain, inTeam, nil
}

func insertRule(ctx context.Context, tx *db.Tx, r *Rule) {
	tx.Proof(`SELECT 1 FROM forwards WHERE id = $1`, db.ID(r.ID))
	tx.Queue(ctx, `INSERT INTO forwards (id, team_id, domain_id, local, address, target, enabled, created_at, forwarded,
		failed, stopped, reason, reason_at, failing_since, hour, hour_count, secret)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, '', 0, 0, 0, 0, $9)`, db.ID(r.ID), db.ID(r.TeamID),
		db.ID(r.DomainID), r.Local, r.Address, r.target, r.Enabled, r.CreatedAt.UnixMicro(), orEmpty(r.secret.Sealed))
}

// orEmpty returns an empty value for nil, because the columns of secrets are never null.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// lockRule reads a rule whose secret the transaction will change. On PostgreSQL, the UPDATE, which changes no value,
// locks the row, so that concurrent transactions see each other's secrets.
func lockRule(ctx context.Context, tx *db.Tx, teamID, domainID, ruleID string) (Rule, error) {
	_, err := tx.Exec(ctx, `UPDATE forwards SET enabled = enabled WHERE id = $1 AND team_id = $2`, db.ID(ruleID),
		db.ID(teamID))
	if err != nil {
		return Rule{}, fmt.Errorf("lock a forwarding rule: %w", err)
	}
	return getRule(ctx, tx.Reader, teamID, domainID, ruleID)
}

func saveSecret(ctx context.Context, tx *db.Tx, r *Rule) {
	tx.Queue(ctx, `UPDATE forwards SET secret = $3, old_secret = $4, old_until = $5 WHERE id = $1 AND team_id = $2`,
		db.ID(r.ID), db.ID(r.TeamID), r.secret.Sealed, orEmpty(r.secret.Old), db.Micros(r.secret.OldUntil))
}

func updateRule(ctx context.Context, tx *db.Tx, r *Rule) {
	tx.Queue(ctx, `UPDATE forwards SET local = $3, enabled = $4, failing_since = $5 WHERE id = $1 AND team_id = $2`,
		db.ID(r.ID), db.ID(r.TeamID), r.Local, r.Enabled, db.Micros(r.FailingSince))
}

func deleteRule(ctx context.Context, tx *db.Tx, teamID, ruleID string) {
	tx.Queue(ctx, `DELETE FROM forwards WHERE id = $1 AND team_id = $2`, db.ID(ruleID), db.ID(teamID))
}

// reasonMax is the maximum length of a stored reason, in bytes.
const reasonMax = 500

// countForwarded counts a message that a rule forwarded in an hour.
func countForwarded(ctx context.Context, tx *db.Tx, teamID, ruleID string, hour int64) {
	tx.Queue(ctx, `UPDATE forwards SET forwarded = forwarded + 1,
		hour_count = CASE WHEN hour = $3 THEN hour_count + 1 ELSE 1 END, hour = $3
		WHERE id = $1 AND team_id = $2`, db.ID(ruleID), db.ID(teamID), hour)
}

// countSuccess resets the time since which a rule has been failing.
func countSuccess(ctx context.Context, tx *db.Tx, teamID, ruleID string) {
	tx.Queue(ctx, `UPDATE forwards SET failing_since = 0 WHERE id = $1 AND team_id = $2 AND failing_since <> 0`,
		db.ID(ruleID), db.ID(teamID))
}

// countStopped counts a message that a rule deliberately did not forward.
func countStopped(ctx context.Context, tx *db.Tx, teamID, ruleID, why string, now time.Time) {
	tx.Queue(ctx, `UPDATE forwards SET stopped = stopped + 1, reason = $3, reason_at = $4
		WHERE id = $1 AND team_id = $2`, db.ID(ruleID), db.ID(teamID), db.Text(why, reasonMax), now.UnixMicro())
}

// countFailed counts a failure. The first permanent failure after a success is stored as failing_since. If
// failing_since is not later than since, a permanent failure switches the rule off, and off is true.
func countFailed(ctx context.Context, tx *db.Tx, teamID, ruleID, why string, permanent bool, now, since time.Time) (
	off bool, err error) {
	tx.Queue(ctx, `UPDATE forwards SET failed = failed + 1, reason = $3, reason_at = $4,
		failing_since = CASE WHEN $5 AND failing_since = 0 THEN $4 ELSE failing_since END
		WHERE id = $1 AND team_id = $2`, db.ID(ruleID), db.ID(teamID), db.Text(why, reasonMax), now.UnixMicro(), permanent)
	if !permanent {
		return false, nil
	}
	n, err := tx.Exec(ctx, `UPDATE forwards SET enabled = $3
		WHERE id = $1 AND team_id = $2 AND enabled = $4 AND failing_since <> 0 AND failing_since <= $5`, db.ID(ruleID),
		db.ID(teamID), false, true, since.UnixMicro())
	return n > 0, err
}

const selectTargets = `SELECT id, team_id, target, address, state, asked_at, changed_at FROM forward_targets`

func scanTarget(r db.Row) (t target, err error) {
	var askedAt, changed int64
	err = r.Scan((*db.ID)(&t.id), (*db.ID)(&t.teamID), &t.key, &t.address, &t.state, &askedAt, &changed)
	t.askedAt, t.changedAt = db.Time(askedAt), db.Time(changed)
	return t, err
}

func targetByID(ctx context.Context, r db.Reader, teamID, targetID string) (target, error) {
	return scanTarget(r.QueryRow(ctx, selectTargets+` WHERE id = $1 AND team_id = $2`, db.ID(targetID), db.ID(teamID)))
}

// lockTarget returns the target of a team with the given key. It creates the target if necessary.
func lockTarget(ctx context.Context, tx *db.Tx, teamID, key, address string) (t target, err error) {
	var n int
	err = tx.QueryRow(ctx, `SELECT COUNT(*) FROM forward_targets WHERE team_id = $1`, db.ID(teamID)).Scan(&n)
	if err != nil {
		return t, fmt.Errorf("count forwarding addresses: %w", err)
	}
	if n < targetsMax {
		_, err = tx.Exec(ctx, `INSERT INTO forward_targets (id, team_id, target, address, state, asked_at, changed_at)
			VALUES ($1, $2, $3, $4, $5, 0, $6) ON CONFLICT (team_id, target) DO NOTHING`, db.ID(id.New()), db.ID(teamID), key,
			address, int16(asked), tx.Now().UnixMicro())
		if err != nil {
			return t, fmt.Errorf("store a forwarding address: %w", err)
		}
	}
	t, err = scanTarget(tx.QueryRow(ctx, selectTargets+` WHERE team_id = $1 AND target = $2`, db.ID(teamID), key))
	if errors.Is(err, db.ErrNoRows) {
		return t, fault.Invalidf("address", "The team has asked %d addresses, the maximum number. Addresses without "+
			"rules are deleted after 30 days.", n)
	}
	if err != nil {
		return t, fmt.Errorf("read a forwarding address: %w", err)
	}
	return t, nil
}

// setConsent stores an answer of the owner. For the answer confirmed, at is the time until which rules are covered. An
// answer to an older email does not set that time back.
func setConsent(ctx context.Context, tx *db.Tx, t *target, c consent, at time.Time) {
	tx.Queue(ctx, `UPDATE forward_targets SET state = $3, changed_at = CASE WHEN state = $3 AND changed_at > $4
		THEN changed_at ELSE $4 END WHERE id = $1 AND team_id = $2`, db.ID(t.id), db.ID(t.teamID), int16(c), at.UnixMicro())
}

func setAsked(ctx context.Context, tx *db.Tx, t *target, now time.Time) {
	tx.Queue(ctx, `UPDATE forward_targets SET asked_at = $3 WHERE id = $1 AND team_id = $2`, db.ID(t.id), db.ID(t.teamID),
		now.UnixMicro())
}

// addressesTo returns the addresses, such as *@in.example.com, whose mail a team forwards to a target. It considers the
// rules that were created until the given time, or all rules for the zero time. newest is when the last of them was
// created.
func addressesTo(ctx context.Context, r db.Reader, teamID, key string, until time.Time) (all []string, newest time.Time,
	err error) {
	rows, err := r.Query(ctx, `SELECT f.local, d.name, f.created_at FROM forwards f JOIN domains d ON d.id = f.domain_id
		WHERE f.team_id = $1 AND f.target = $2 ORDER BY d.name, f.local`, db.ID(teamID), key)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var local, name string
		var created int64
		if err := r.Scan(&local, &name, &created); err != nil {
			return none, err
		}
		if at := db.Time(created); until.IsZero() || !at.After(until) {
			all = append(all, local+"@"+name)
			if at.After(newest) {
				newest = at
			}
		}
		return none, nil
	})
	if err != nil {
		return nil, newest, fmt.Errorf("list what is forwarded to an address: %w", err)
	}
	return all, newest, nil
}

// domainsTo returns the ids of the domains whose mail a team wants to forward to a target.
func domainsTo(ctx context.Context, r db.Reader, teamID, key string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT DISTINCT domain_id FROM forwards WHERE team_id = $1 AND target = $2`, db.ID(teamID),
		key)
	all, err := db.Collect(rows, err, func(r db.Row) (id string, err error) { return id, r.Scan((*db.ID)(&id)) })
	if err != nil {
		return nil, fmt.Errorf("list the domains that forward to an address: %w", err)
	}
	return all, nil
}

func domainName(ctx context.Context, r db.Reader, teamID, domainID string) (name string, err error) {
	err = r.QueryRow(ctx, `SELECT name FROM domains WHERE id = $1 AND team_id = $2`, db.ID(domainID), db.ID(teamID)).
		Scan(&name)
	if err != nil {
		return "", fmt.Errorf("read the name of a domain: %w", err)
	}
	return name, nil
}

// asksSince returns the number of addresses to which a team has sent a confirmation email since the given time.
func asksSince(ctx context.Context, r db.Reader, teamID string, since time.Time) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM forward_targets WHERE team_id = $1 AND asked_at > $2`, db.ID(teamID),
		since.UnixMicro()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count confirmation mails: %w", err)
	}
	return n, nil
}

// claimAsk records that a confirmation email is sent to an address now. If any team has sent one within askEvery,
// claimAsk changes nothing and returns when the next one may be sent. The row belongs to no team.
func claimAsk(ctx context.Context, tx *db.Tx, key string, now time.Time) (again time.Time, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO forward_asks (address, asked_at) VALUES ($1, $2)
		ON CONFLICT (address) DO UPDATE SET asked_at = excluded.asked_at WHERE forward_asks.asked_at <= $3`, key,
		now.UnixMicro(), now.Add(-askEvery).UnixMicro())
	if err != nil {
		return again, fmt.Errorf("record a confirmation mail: %w", err)
	}
	if n > 0 {
		return again, nil
	}
	var at int64
	if err := tx.QueryRow(ctx, `SELECT asked_at FROM forward_asks WHERE address = $1`, key).Scan(&at); err != nil {
		return again, fmt.Errorf("read when an address was asked: %w", err)
	}
	return db.Time(at).Add(askEvery + time.Second), nil
}
