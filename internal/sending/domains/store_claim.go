package domains

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

const claimColumns = `id, team_id, domain_id, name, token, request, status, blocked_reason, failure_reason,
	proven_at, warned_at, reminded_at, created_at, expires_at`

func scanClaim(r db.Row) (c Claim, err error) {
	var status string
	var proven, warned, reminded, created, expires int64
	err = r.Scan((*db.ID)(&c.ID), (*db.ID)(&c.TeamID), (*db.ID)(&c.DomainID), &c.Name, &c.Token, &c.request, &status,
		&c.BlockedReason, &c.FailureReason, &proven, &warned, &reminded, &created, &expires)
	if errors.Is(err, db.ErrNoRows) {
		return c, fault.NotFoundf("Domain claim not found")
	}
	if err != nil {
		return c, fmt.Errorf("read a claim: %w", err)
	}
	c.Status, c.ProvenAt, c.WarnedAt, c.RemindedAt = ClaimStatus(status), db.Time(proven), db.Time(warned),
		db.Time(reminded)
	c.CreatedAt, c.ExpiresAt = db.Time(created), db.Time(expires)
	var asked NewDomain
	if err := json.Unmarshal([]byte(c.request), &asked); err != nil {
		return c, fmt.Errorf("read what claim %s asks for: %w", c.ID, err)
	}
	if c.Region = asked.Region; c.Region == "" {
		c.Region = regions[0]
	}
	return c, nil
}

func claimOf(ctx context.Context, r db.Reader, teamID, domainID string) (Claim, error) {
	return scanClaim(r.QueryRow(ctx, `SELECT `+claimColumns+` FROM domain_claims
		WHERE domain_id = $1 AND team_id = $2 ORDER BY id DESC LIMIT 1`, db.ID(domainID), db.ID(teamID)))
}

func openClaims(ctx context.Context, r db.Reader, teamID, name string) ([]Claim, error) {
	rows, err := r.Query(ctx, `SELECT `+claimColumns+` FROM domain_claims
		WHERE team_id = $1 AND name = $2 AND status IN ('pending', 'verified', 'blocked')`, db.ID(teamID), name)
	return db.Collect(rows, err, scanClaim)
}

const selectClaimedSince = `SELECT EXISTS (SELECT 1 FROM domain_claims WHERE name = $1 AND created_at > $2)`

// claimedSince reports whether any team has claimed the name since the given time. If claimedSince returns true, the
// owner is not notified of a new claim.
func claimedSince(ctx context.Context, r db.Reader, name string, since time.Time) (found bool, err error) {
	if err = r.QueryRow(ctx, selectClaimedSince, name, since.UnixMicro()).Scan(&found); err != nil {
		err = fmt.Errorf("look for claims of %s: %w", name, err)
	}
	return found, err
}

func insertClaim(ctx context.Context, tx *db.Tx, c *Claim) {
	tx.Queue(ctx, `INSERT INTO domain_claims (`+claimColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
		$14)`, db.ID(c.ID), db.ID(c.TeamID), db.ID(c.DomainID), c.Name, c.Token, c.request,
		string(c.Status), c.BlockedReason, c.FailureReason, db.Micros(c.ProvenAt), db.Micros(c.WarnedAt),
		db.Micros(c.RemindedAt),
		c.CreatedAt.UnixMicro(), c.ExpiresAt.UnixMicro())
}

func saveClaim(ctx context.Context, tx *db.Tx, c *Claim) {
	tx.Queue(ctx, `UPDATE domain_claims SET status = $3, blocked_reason = $4, failure_reason = $5, proven_at = $6,
		warned_at = $7,
		reminded_at = $8 WHERE id = $1 AND team_id = $2`, db.ID(c.ID), db.ID(c.TeamID), string(c.Status), c.BlockedReason,
		c.FailureReason,
		db.Micros(c.ProvenAt), db.Micros(c.WarnedAt), db.Micros(c.RemindedAt))
}

// endClaims ends a team's open claims for a placeholder.
func endClaims(ctx context.Context, tx *db.Tx, teamID, domainID string, status ClaimStatus) {
	tx.Queue(ctx, `UPDATE domain_claims SET status = $2, blocked_reason = '' WHERE domain_id = $1
		AND team_id = $3 AND status IN ('pending', 'verified', 'blocked')`, db.ID(domainID), string(status), db.ID(teamID))
}

// ownerOf returns the domain with the given name, no matter which team has it. If no team has the name, ownerOf returns
// the zero Domain.
func ownerOf(ctx context.Context, r db.Reader, name string) (Domain, error) {
	d, err := domainOwned(ctx, r, name)
	if fault.KindOf(err) == fault.NotFound {
		return Domain{}, nil
	}
	return d, err
}
