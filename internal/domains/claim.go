package domains

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// ClaimStatus is the state of a claim (API reference section 10.4).
type ClaimStatus string

const (
	ClaimPending    ClaimStatus = "pending"
	ClaimVerified   ClaimStatus = "verified"
	ClaimCompleted  ClaimStatus = "completed"
	ClaimBlocked    ClaimStatus = "blocked"
	ClaimExpired    ClaimStatus = "expired"
	ClaimSuperseded ClaimStatus = "superseded"
	ClaimCanceled   ClaimStatus = "canceled"
	ClaimFailed     ClaimStatus = "failed"
)

const (
	claimLife    = 7 * 24 * time.Hour
	claimGrace   = 72 * time.Hour // from the proof until a verified owner loses the domain
	claimPrefix  = "postrider-domain-verification="
	legacyPrefix = "resend-domain-verification=" // which owners who followed other documents may have installed
	claimBlocked = 10 * time.Minute              // between looks at a claim that is blocked
)

// Claim takes over a domain that another team has registered, by proof of who rules its DNS.
type Claim struct {
	ID            string
	TeamID        string
	DomainID      string // the placeholder, which becomes the domain
	Name          string
	Region        string
	Token         string
	Status        ClaimStatus
	BlockedReason string // grace_period or pending_scheduled_emails; empty when not blocked
	FailureReason string
	WarnedAt      time.Time
	CreatedAt     time.Time
	ExpiresAt     time.Time
	request       string
}

// RecordValue is the TXT value that proves the claim.
func (c *Claim) RecordValue() string { return claimPrefix + c.Token }

// provenBy reports whether one of the TXT records proves the claim.
func (c *Claim) provenBy(texts []string, legacy bool) bool {
	return slices.ContainsFunc(texts, func(t string) bool {
		t = unquoted(t)
		return t == c.RecordValue() || legacy && t == legacyPrefix+c.Token
	})
}

// open reports whether the claim may still succeed.
func (c *Claim) open() bool {
	return c.Status == ClaimPending || c.Status == ClaimVerified || c.Status == ClaimBlocked
}

// Claim begins to take over a domain. A repetition of an open claim returns that one and false; another for the same
// name supersedes it.
func (s *Service) Claim(ctx context.Context, teamID string, n NewDomain) (c Claim, created bool, err error) {
	d, err := s.plan(teamID, n)
	if err != nil {
		return c, false, err
	}
	d.Placeholder = true
	request, err := json.Marshal(n)
	if err != nil {
		return c, false, fmt.Errorf("encode claim: %w", err)
	}
	if _, same, err := s.mayClaim(ctx, s.d.Reader, &d, string(request)); err != nil || same != nil {
		return orZero(same), false, err
	}
	if err := s.checkCount(ctx, s.d.Reader, teamID); err != nil {
		return c, false, err
	}
	if err := s.newKeys(&d); err != nil {
		return c, false, err
	}
	token := make([]byte, 16)
	rand.Read(token)
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		old, same, err := s.mayClaim(ctx, tx.Reader, &d, string(request))
		if err != nil || same != nil {
			c, created = orZero(same), false
			return err
		}
		for _, o := range old {
			endClaims(ctx, tx, o.DomainID, ClaimSuperseded)
			deleteDomain(ctx, tx, teamID, o.DomainID)
		}
		c = Claim{ID: id.New(), TeamID: teamID, DomainID: d.ID, Name: d.Name, Region: d.Region, Token: hex.EncodeToString(token),
			Status: ClaimPending, CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(claimLife), request: string(request)}
		created = true
		if err := insertDomain(ctx, tx, &d); err != nil {
			return err
		}
		insertClaim(ctx, tx, &c)
		return nil
	})
	return c, created, err
}

// mayClaim refuses a claim that cannot be made. It returns the team's open claims for the name, and which of them asks
// for the same.
func (s *Service) mayClaim(ctx context.Context, r db.Reader, d *Domain, request string) (open []Claim, same *Claim,
	err error) {
	owner, err := domainOwned(ctx, r, d.Name)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, nil, err
	}
	// What the owner's domain has is given up with it.
	if err := s.checkFree(ctx, r, d, d.names(), owner.ID); err != nil {
		return nil, nil, err
	}
	switch {
	case err != nil:
		return nil, nil, fault.NotFoundf("No team has registered the domain `%s`; add it with POST /domains.", d.Name)
	case owner.TeamID == d.TeamID:
		return nil, nil, fault.Forbiddenf("name", "The domain `%s` is this team's already.", d.Name)
	}
	open, err = openClaims(ctx, r, d.TeamID, d.Name)
	if i := slices.IndexFunc(open, func(c Claim) bool { return c.request == request }); i >= 0 {
		same = &open[i]
	}
	return open, same, err
}

func orZero(c *Claim) Claim {
	if c == nil {
		return Claim{}
	}
	return *c
}

// GetClaim returns the latest claim that the domain stands for.
func (s *Service) GetClaim(ctx context.Context, teamID, domainID string) (Claim, error) {
	return claimOf(ctx, s.d.Reader, teamID, domainID)
}

// VerifyClaim starts to look for the proof and returns at once.
func (s *Service) VerifyClaim(ctx context.Context, teamID, domainID string) (c Claim, err error) {
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		if c, err = claimOf(ctx, tx.Reader, teamID, domainID); err != nil {
			return err
		}
		if !c.open() {
			return fault.Invalidf("", "This claim is %s and cannot be verified. Begin a new one.", c.Status)
		}
		return s.checkNow(ctx, tx, &Domain{ID: domainID, TeamID: teamID})
	})
	return c, err
}

// verifyClaim looks for the proof. With it the domain changes hands, unless its owner is to be given time or has mail
// waiting.
func (s *Service) verifyClaim(ctx context.Context, j jobs.Job, d Domain) error {
	var texts []string
	var err error
	if !s.c.TrustDomains {
		asked, cancel := context.WithTimeout(ctx, lookUpMax)
		texts, err = s.dns.TXT(asked, d.Name)
		cancel()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answered := err == nil || errors.Is(err, resolve.ErrNotFound)
	owner, err := domainOwned(ctx, s.d.Reader, d.Name)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	waiting, err := s.PendingScheduled(ctx, owner.ID)
	if err != nil {
		return err
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		c, err := claimOf(ctx, tx.Reader, d.TeamID, d.ID)
		if fault.KindOf(err) == fault.NotFound && err != nil || err == nil && !c.open() {
			return s.q.Finish(ctx, tx, j)
		}
		if err != nil {
			return err
		}
		proven := s.c.TrustDomains || c.provenBy(texts, s.c.LegacyAliases)
		if !answered && tx.Now().Before(c.ExpiresAt) { // As unknown as before: name servers that fail do not end a claim.
			return s.q.Retry(ctx, tx, j, tx.Now().Add(claimAgain(c, tx.Now())), "")
		}
		next, again := judgeClaim(c, proven, owner.ID != "" && owner.MaySend(), waiting, tx.Now())
		if next.Status == ClaimCompleted {
			if err := s.handOver(ctx, tx, owner, d); err != nil {
				return err
			}
		}
		saveClaim(ctx, tx, &next)
		if again == 0 {
			return s.q.Finish(ctx, tx, j)
		}
		return s.q.Retry(ctx, tx, j, tx.Now().Add(again), "")
	})
}

// judgeClaim is the claim after a look at DNS, and when to look again; 0 is never.
func judgeClaim(c Claim, proven, active, waiting bool, now time.Time) (Claim, time.Duration) {
	c.BlockedReason = ""
	switch {
	case now.After(c.ExpiresAt):
		c.Status = ClaimExpired
		return c, 0
	case !proven:
		c.Status = ClaimPending
		return c, claimAgain(c, now)
	case waiting:
		c.Status, c.BlockedReason = ClaimBlocked, "pending_scheduled_emails"
		return c, claimBlocked
	case active && c.WarnedAt.IsZero():
		c.Status, c.BlockedReason, c.WarnedAt = ClaimBlocked, "grace_period", now
		return c, claimBlocked
	case active && now.Sub(c.WarnedAt) < claimGrace:
		c.Status, c.BlockedReason = ClaimBlocked, "grace_period"
		return c, claimBlocked
	}
	c.Status = ClaimCompleted
	return c, 0
}

// claimAgain is when the proof of a claim is looked for again.
func claimAgain(c Claim, now time.Time) time.Duration {
	if now.Sub(c.CreatedAt) < time.Hour {
		return 30 * time.Second
	}
	return 15 * time.Minute
}

// handOver gives the placeholder the name. It has keys of its own, so the records must be installed anew.
func (s *Service) handOver(ctx context.Context, tx *db.Tx, owner, d Domain) error {
	var all []events.Event
	if owner.ID != "" {
		deleteDomain(ctx, tx, owner.TeamID, owner.ID)
		s.changed(tx, owner.ID)
		all = append(all, events.Event{TeamID: owner.TeamID, Type: events.DomainDeleted, DomainID: owner.ID, Data: owner})
	}
	d.Placeholder = false
	if err := saveDomain(ctx, tx, &d); err != nil {
		return err
	}
	s.changed(tx, d.ID)
	return s.hall.Record(ctx, tx, append(all, events.Event{TeamID: d.TeamID, Type: events.DomainCreated, DomainID: d.ID, Data: d})...)
}

const claimColumns = `c.id, c.team_id, c.domain_id, c.name, d.region, c.token, c.request, c.status, c.blocked_reason, c.failure_reason,
	c.warned_at, c.created_at, c.expires_at`

func scanClaim(r db.Row) (c Claim, err error) {
	var status string
	var warned, created, expires int64
	err = r.Scan(&c.ID, &c.TeamID, &c.DomainID, &c.Name, &c.Region, &c.Token, &c.request, &status, &c.BlockedReason, &c.FailureReason,
		&warned, &created, &expires)
	c.Status, c.WarnedAt, c.CreatedAt, c.ExpiresAt = ClaimStatus(status), db.Time(warned), db.Time(created), db.Time(expires)
	if errors.Is(err, db.ErrNoRows) {
		return c, fault.NotFoundf("Domain claim not found")
	}
	return c, err
}

func claimOf(ctx context.Context, r db.Reader, teamID, domainID string) (Claim, error) {
	return scanClaim(r.QueryRow(ctx, `SELECT `+claimColumns+` FROM domain_claims c JOIN domains d ON d.id = c.domain_id
		WHERE c.domain_id = $1 AND c.team_id = $2 ORDER BY c.id DESC LIMIT 1`, domainID, teamID))
}

func openClaims(ctx context.Context, r db.Reader, teamID, name string) ([]Claim, error) {
	rows, err := r.Query(ctx, `SELECT `+claimColumns+` FROM domain_claims c JOIN domains d ON d.id = c.domain_id
		WHERE c.team_id = $1 AND c.name = $2 AND c.status IN ('pending', 'verified', 'blocked')`, teamID, name)
	return db.Collect(rows, err, scanClaim)
}

func insertClaim(ctx context.Context, tx *db.Tx, c *Claim) {
	tx.Queue(ctx, `INSERT INTO domain_claims (id, team_id, domain_id, name, token, request, status, blocked_reason, failure_reason,
		warned_at, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, '', '', 0, $8, $9)`, c.ID, c.TeamID, c.DomainID, c.Name,
		c.Token, c.request, string(c.Status), c.CreatedAt.UnixMicro(), c.ExpiresAt.UnixMicro())
}

func saveClaim(ctx context.Context, tx *db.Tx, c *Claim) {
	tx.Queue(ctx, `UPDATE domain_claims SET status = $3, blocked_reason = $4, warned_at = $5 WHERE id = $1 AND team_id = $2`,
		c.ID, c.TeamID, string(c.Status), c.BlockedReason, db.Micros(c.WarnedAt))
}

// endClaims ends the open claims of a placeholder, which its caller names as its team's own.
func endClaims(ctx context.Context, tx *db.Tx, domainID string, status ClaimStatus) {
	tx.Queue(ctx, `UPDATE domain_claims SET status = $2 WHERE domain_id = $1 AND status IN ('pending', 'verified', 'blocked')`,
		domainID, string(status))
}
