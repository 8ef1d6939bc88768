package tlspolicies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/platform/db"
)

const columns = `domain, id, prior_id, policy, fetched_at, expires_at, used_at, refresh_at, claimed_until, failed_id,
	failure, reason, failed_at, retry_at`

// scan reads a row. If its policy cannot be parsed, the entry has no policy and is marked as Unreadable, so that one
// row never stops the work on the others.
func scan(r db.Row) (*Entry, error) {
	var e Entry
	var text, failure string
	var times [7]int64
	err := r.Scan(&e.Domain, &e.ID, &e.PriorID, &text, &times[0], &times[1], &times[2], &times[3], &times[4], &e.FailedID,
		&failure, &e.Reason, &times[5], &times[6])
	if err != nil {
		return nil, err
	}
	e.Failure = mtasts.Result(failure)
	for i, to := range []*time.Time{&e.FetchedAt, &e.ExpiresAt, &e.UsedAt, &e.RefreshAt, &e.claimedUntil, &e.FailedAt,
		&e.RetryAt} {
		*to = db.Time(times[i])
	}
	if text != "" {
		if e.Policy, err = mtasts.ParsePolicy(text); err != nil {
			e.Policy, e.ID, e.PriorID, e.Unreadable = mtasts.Policy{}, "", "", true
		}
	}
	return &e, nil
}

// find returns a domain's entry, or nil if there is none.
func find(ctx context.Context, r db.Reader, domain string) (*Entry, error) {
	e, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM mta_sts_policies WHERE domain = $1`, domain))
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the TLS policy of %s: %w", domain, err)
	}
	return e, nil
}

// due returns entries whose refresh is due, the longest waiting first.
func (s *Service) due(ctx context.Context, now time.Time, limit int) ([]*Entry, error) {
	rows, err := s.p.DB.Query(ctx, `SELECT `+columns+` FROM mta_sts_policies WHERE refresh_at <= $1
		ORDER BY refresh_at LIMIT $2`, db.Micros(now), limit)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list TLS policies to refresh: %w", err)
	}
	return all, nil
}

// tryClaim gives this node the right to fetch a domain's policy, unless the domain's entry needs no fetch or another
// node has the right. The returned entry has the claim.
func (s *Service) tryClaim(ctx context.Context, domain string, settled func(*Entry) bool) (e *Entry, claimed bool,
	err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		claimed = false
		now := s.c.Now()
		if e, err = find(ctx, tx.Reader, domain); err != nil || settled(e) || e != nil && e.claimedUntil.After(now) {
			return err
		}
		if e == nil {
			e = &Entry{Domain: domain, UsedAt: now, RefreshAt: now.Add(refreshAfter)}
		}
		e.claimedUntil = now.Add(claimTime)
		n, err := tx.Exec(ctx, `INSERT INTO mta_sts_policies (`+columns+`)
			VALUES ($1, '', '', '', 0, 0, $2, $3, $4, '', '', '', 0, 0)
			ON CONFLICT (domain) DO UPDATE SET claimed_until = excluded.claimed_until
			WHERE mta_sts_policies.claimed_until <= $2`, domain, db.Micros(now), db.Micros(e.RefreshAt),
			db.Micros(e.claimedUntil))
		claimed = n > 0
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("claim the TLS policy of %s: %w", domain, err)
	}
	return e, claimed, nil
}

// store stores the outcome of a fetch and ends the claim. It stores nothing if the claim has ended or the operator has
// deleted the entry meanwhile. One statement writes all columns, so that an entry is never half of an old and half of
// a new one.
func (s *Service) store(ctx context.Context, e *Entry) error {
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE mta_sts_policies SET id = $2, prior_id = $3, policy = $4, fetched_at = $5,
			expires_at = $6, refresh_at = $7, claimed_until = 0, failed_id = $8, failure = $9, reason = $10, failed_at = $11,
			retry_at = $12 WHERE domain = $1 AND claimed_until = $13`, e.Domain, e.ID, e.PriorID, e.Policy.Text(),
			db.Micros(e.FetchedAt), db.Micros(e.ExpiresAt), db.Micros(e.RefreshAt), e.FailedID, string(e.Failure), e.Reason,
			db.Micros(e.FailedAt), db.Micros(e.RetryAt), db.Micros(e.claimedUntil))
		tx.AfterCommit(func() { s.p.DB.Hint(topic, e.Domain) })
		return err
	})
	if err != nil {
		return fmt.Errorf("store the TLS policy of %s: %w", e.Domain, err)
	}
	return nil
}

// recordUse stores that a domain's policy was used, unless that was stored within usedEvery.
func (s *Service) recordUse(ctx context.Context, domain string, now time.Time) error {
	return s.p.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE mta_sts_policies SET used_at = $2 WHERE domain = $1 AND used_at <= $3`, domain, db.Micros(now),
			db.Micros(now.Add(-usedEvery)))
		return nil
	})
}

// postpone sets the time of the next refresh, and returns false if it is not the given one any more.
func (s *Service) postpone(ctx context.Context, domain string, from, to time.Time) (ok bool, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE mta_sts_policies SET refresh_at = $3 WHERE domain = $1 AND refresh_at = $2`, domain,
			db.Micros(from), db.Micros(to))
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postpone the refresh of the TLS policy of %s: %w", domain, err)
	}
	return ok, nil
}

// remove deletes a domain's entry, even if a node is fetching its policy.
func (s *Service) remove(ctx context.Context, domain string) (found bool, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM mta_sts_policies WHERE domain = $1`, domain)
		found = n > 0
		tx.AfterCommit(func() { s.p.DB.Hint(topic, domain) })
		return err
	})
	if err != nil {
		return false, fmt.Errorf("delete the TLS policy of %s: %w", domain, err)
	}
	return found, nil
}

// removeUnchanged deletes an entry, unless a node has changed it or is fetching its policy.
func (s *Service) removeUnchanged(ctx context.Context, e *Entry) error {
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `DELETE FROM mta_sts_policies WHERE domain = $1 AND refresh_at = $2 AND fetched_at = $3
			AND claimed_until <= $4`, e.Domain, db.Micros(e.RefreshAt), db.Micros(e.FetchedAt), db.Micros(s.c.Now()))
		tx.AfterCommit(func() { s.p.DB.Hint(topic, e.Domain) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete the TLS policy of %s: %w", e.Domain, err)
	}
	return nil
}

// sizes returns rows in the order of their domains, after a domain.
func (s *Service) sizes(ctx context.Context, after string, limit int) ([]size, error) {
	now := s.c.Now()
	rows, err := s.p.DB.Query(ctx, `SELECT domain, LENGTH(policy), SUBSTR(policy, 1, 32), used_at, expires_at
		FROM mta_sts_policies WHERE domain > $1 ORDER BY domain LIMIT $2`, after, limit)
	all, err := db.Collect(rows, err, func(r db.Row) (z size, err error) {
		var head string
		var used, expires int64
		err = r.Scan(&z.domain, &z.text, &head, &used, &expires)
		z.usedAt, z.enforced = db.Time(used), strings.HasPrefix(head, enforceHead) && now.Before(db.Time(expires))
		return z, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the sizes of TLS policies: %w", err)
	}
	return all, nil
}

// removeUnused deletes rows, except those that were used since they were read and those whose policies are fetched.
func (s *Service) removeUnused(ctx context.Context, all []size) error {
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		for _, z := range all {
			tx.Queue(ctx, `DELETE FROM mta_sts_policies WHERE domain = $1 AND used_at = $2 AND claimed_until <= $3`, z.domain,
				db.Micros(z.usedAt), db.Micros(s.c.Now()))
			tx.AfterCommit(func() { s.p.DB.Hint(topic, z.domain) })
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete unused TLS policies: %w", err)
	}
	return nil
}
