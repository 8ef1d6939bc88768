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

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dnstext"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// ClaimStatus is the state of a claim (API reference section 10.4):
//
//	pending ──proof──► verified ──► completed
//	   │                  └──► blocked ──► completed, or failed
//	   └─ expired         (pending again when the proof is gone)
//
// A claim ends immediately if its team replaces it with another claim (state superseded) or deletes the placeholder
// domain (state canceled).
type ClaimStatus string

const (
	ClaimPending    ClaimStatus = "pending"
	ClaimVerified   ClaimStatus = "verified" // the proof was found, and the domain is about to be transferred
	ClaimCompleted  ClaimStatus = "completed"
	ClaimBlocked    ClaimStatus = "blocked" // the proof was found; BlockedReason says why the transfer is delayed
	ClaimExpired    ClaimStatus = "expired"
	ClaimSuperseded ClaimStatus = "superseded"
	ClaimCanceled   ClaimStatus = "canceled"
	ClaimFailed     ClaimStatus = "failed" // see FailureReason
)

// These are the reasons for which a claim may be blocked.
const (
	blockedGrace     = "grace_period"             // the owner has been notified and has time to object
	blockedActivity  = "recent_owner_activity"    // the owner still sends from the domain
	blockedScheduled = "pending_scheduled_emails" // the owner has scheduled emails
)

const (
	claimLife     = 7 * 24 * time.Hour
	claimGrace    = 72 * time.Hour      // time from the proof to the transfer if the owner uses the domain
	claimReminder = 24 * time.Hour      // time from the reminder to the end of the grace period
	claimMax      = 30 * 24 * time.Hour // time after the proof at which a blocked claim fails
	claimQuiet    = 24 * time.Hour      // an owner who has sent no email for this long counts as inactive
	claimNews     = 7 * 24 * time.Hour  // minimum time between two notices to an owner about unproven claims
	claimPrefix   = "postrider-domain-verification="
	legacyPrefix  = "resend-domain-verification=" // prefix for domain owners who followed other documentation
	claimBlocked  = 10 * time.Minute              // time between two checks of a blocked claim
	claimAtOnce   = time.Second                   // time from the proof to the transfer
)

// Claim is a request by a team to take over another team's domain by proving control of the domain's DNS.
type Claim struct {
	ID            string
	TeamID        string
	DomainID      string // the placeholder, which becomes the domain at the transfer
	Name          string
	Region        string
	Token         string
	Status        ClaimStatus
	BlockedReason string // empty if the claim is not blocked
	FailureReason string // empty if the claim has not failed
	ProvenAt      time.Time
	WarnedAt      time.Time // when the owner was notified of the proof; the grace period starts then
	RemindedAt    time.Time // when the owner was reminded of the transfer, one day in advance
	CreatedAt     time.Time
	ExpiresAt     time.Time // when the claim expires if it is not proven
	request       string
	askedAt       time.Time // when verification was last requested; stored with the placeholder
}

// RecordValue returns the TXT value that proves the claim.
func (c *Claim) RecordValue() string { return claimPrefix + c.Token }

// provenBy reports whether one of the TXT records proves the claim.
func (c *Claim) provenBy(texts []string, legacy bool) bool {
	return slices.ContainsFunc(texts, func(t string) bool {
		t = dnstext.Unquote(t)
		return t == c.RecordValue() || legacy && t == legacyPrefix+c.Token
	})
}

// open reports whether the claim may still succeed.
func (c *Claim) open() bool {
	return c.Status == ClaimPending || c.Status == ClaimVerified || c.Status == ClaimBlocked
}

// ownerUsage describes how the current owner uses a claimed domain.
type ownerUsage struct {
	inUse     bool // the domain may send or receive
	scheduled bool // the domain has scheduled emails
	active    bool // an email was sent from the domain recently
}

// judgeClaim returns the new state of a claim after a look-up of its proof, and the delay until the next look-up. A
// delay of 0 means that the proof is not looked up again. It has no side effects.
func judgeClaim(c Claim, proof finding, owner ownerUsage, now time.Time) (Claim, time.Duration) {
	reason := c.BlockedReason
	c.BlockedReason = ""
	late := !now.Before(c.ExpiresAt)
	switch {
	case late && (c.ProvenAt.IsZero() || proof == absent):
		c.Status = ClaimExpired
		return c, 0
	case !c.ProvenAt.IsZero() && now.Sub(c.ProvenAt) > claimMax:
		c.Status, c.FailureReason = ClaimFailed, failure(reason)
		return c, 0
	case proof == unknown: // a DNS failure does not change the claim's state
		c.BlockedReason = reason
		return c, proofLookUpAfter(c, now)
	case proof == absent:
		c.Status = ClaimPending
		if !c.RemindedAt.IsZero() && !now.Before(c.transferAt()) {
			c.RemindedAt = time.Time{} // the announced transfer did not happen, so the owner is reminded again
		}
		return c, proofLookUpAfter(c, now)
	case c.ProvenAt.IsZero():
		c.Status, c.ProvenAt = ClaimVerified, now
		return c, claimAtOnce
	}
	if !owner.inUse {
		c.Status = ClaimCompleted
		return c, 0
	}
	if c.WarnedAt.IsZero() {
		c.WarnedAt = now
	}
	if c.RemindedAt.IsZero() && now.Sub(c.WarnedAt) >= claimGrace-claimReminder {
		c.RemindedAt = now
	}
	switch {
	case c.RemindedAt.IsZero(), now.Before(c.transferAt()):
		c.BlockedReason = blockedGrace
	case owner.scheduled:
		c.BlockedReason = blockedScheduled
	case owner.active:
		c.BlockedReason = blockedActivity
	default:
		c.Status = ClaimCompleted
		return c, 0
	}
	c.Status = ClaimBlocked
	return c, claimBlocked
}

// transferAt returns the time of the transfer if the owner was notified: at least a day after the reminder.
func (c *Claim) transferAt() time.Time {
	at := c.WarnedAt.Add(claimGrace)
	if again := c.RemindedAt.Add(claimReminder); again.After(at) {
		return again
	}
	return at
}

// failure returns the reason for which a proven claim failed. The parameter blocked is the last reason for which the
// claim was blocked.
func failure(blocked string) string {
	switch blocked {
	case blockedActivity:
		return "The team that has the domain went on sending from it for 30 days. Delete that team's DNS records, which " +
			"ends its use of the domain within 72 hours, and claim it again."
	case blockedScheduled:
		return "For 30 days the team that has the domain had emails scheduled from it. Delete that team's DNS records, " +
			"which ends its use of the domain within 72 hours, and claim it again."
	}
	return "The proof could not be confirmed within 30 days. See to it that the TXT record is found, and claim the " +
		"domain again."
}

// proofLookUpAfter returns the delay until the next look-up of the proof.
func proofLookUpAfter(c Claim, now time.Time) time.Duration {
	if now.Sub(c.CreatedAt) < time.Hour || now.Sub(c.askedAt) < time.Hour {
		return 30 * time.Second
	}
	return 15 * time.Minute
}

// Claim starts the transfer of a domain that another team has registered. If the team already has an open claim from an
// identical request, Claim returns that claim and false. A different request for the same name supersedes the team's
// older claim.
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
	if _, _, same, err := s.mayClaim(ctx, s.DB.Reader, &d, string(request)); err != nil || same != nil {
		return orZero(same), false, err
	}
	if err := s.checkCount(ctx, s.DB.Reader, teamID); err != nil {
		return c, false, err
	}
	if err := s.newKeys(&d); err != nil {
		return c, false, err
	}
	token := make([]byte, 16)
	rand.Read(token)
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		owner, old, same, err := s.mayClaim(ctx, tx.Reader, &d, string(request))
		if err != nil || same != nil {
			c, created = orZero(same), false
			return err
		}
		for _, o := range old {
			endClaims(ctx, tx, teamID, o.DomainID, ClaimSuperseded)
			deleteDomain(ctx, tx, teamID, o.DomainID)
		}
		c = Claim{ID: id.New(), TeamID: teamID, DomainID: d.ID, Name: d.Name, Region: d.Region,
			Token:  hex.EncodeToString(token),
			Status: ClaimPending, CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(claimLife), request: string(request)}
		created = true
		// Teams may claim a domain any number of times, so its owner is notified of unproven claims at most once a week.
		lately, err := claimedSince(ctx, tx.Reader, d.Name, tx.Now().Add(-claimNews))
		if err != nil {
			return err
		}
		insertDomain(ctx, tx, &d)
		insertClaim(ctx, tx, &c)
		audit.Target(ctx, d.ID)
		// If the team never requests verification, this job ends the claim when it expires.
		j := lookUpJob(teamID, d.ID)
		j.RunAt = c.ExpiresAt
		s.Queue.Insert(ctx, tx, j)
		if lately {
			return nil
		}
		return s.Notify(ctx, tx, owner.TeamID, "A team claims your domain "+c.Name, fmt.Sprintf(claimNotice, c.Name,
			day(c.ExpiresAt)))
	})
	return c, created, err
}

// mayClaim returns an error if the claim is not allowed. If the claim is allowed, mayClaim returns the owner's domain
// and the team's open claims for the name. The result same is the open claim from an identical request, or nil.
func (s *Service) mayClaim(ctx context.Context, r db.Reader, d *Domain,
	request string) (owner Domain, open []Claim, same *Claim,
	err error) {
	owner, err = domainOwned(ctx, r, d.Name)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return owner, nil, nil, err
	}
	// Names reserved by the owner's domain are ignored, because the transfer releases them.
	if err := s.checkFree(ctx, r, d, d.names(), owner.ID); err != nil {
		return owner, nil, nil, err
	}
	switch {
	case err != nil:
		return owner, nil, nil, fault.NotFoundf("No team has registered the domain `%s`. Add it, and do not claim it.", d.Name)
	case owner.TeamID == d.TeamID:
		return owner, nil, nil, fault.Forbiddenf("name", "The domain `%s` is this team's already.", d.Name)
	}
	open, err = openClaims(ctx, r, d.TeamID, d.Name)
	if i := slices.IndexFunc(open, func(c Claim) bool { return c.request == request }); i >= 0 {
		same = &open[i]
	}
	return owner, open, same, err
}

func orZero(c *Claim) Claim {
	if c == nil {
		return Claim{}
	}
	return *c
}

// GetClaim returns the latest claim for a placeholder, even if that claim was canceled or superseded.
func (s *Service) GetClaim(ctx context.Context, teamID, domainID string) (Claim, error) {
	return claimOf(ctx, s.DB.Reader, teamID, domainID)
}

// VerifyClaim schedules a look-up of the proof and returns without waiting for the look-up.
func (s *Service) VerifyClaim(ctx context.Context, teamID, domainID string) (c Claim, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if c, err = claimOf(ctx, tx.Reader, teamID, domainID); err != nil {
			return err
		}
		if !c.open() {
			return fault.Invalidf("", "This claim is %s and cannot be verified. Begin a new one.", c.Status)
		}
		d, err := domainToChange(ctx, tx, teamID, domainID)
		if err != nil {
			return err
		}
		return s.scheduleProofLookUps(ctx, tx, &d)
	})
	return c, err
}

// scheduleProofLookUps schedules an immediate look-up of the proof, followed by frequent look-ups for one hour. An
// immediate look-up is needed even if another look-up is in progress, because that look-up may have missed the record.
func (s *Service) scheduleProofLookUps(ctx context.Context, tx *db.Tx, d *Domain) error {
	d.VerifySince = tx.Now()
	saveDomain(ctx, tx, d)
	return s.checkNow(ctx, tx, d)
}

// lookUpProof looks up the proof of a claim in DNS.
func (s *Service) lookUpProof(ctx context.Context, c *Claim) finding {
	if s.c.TrustDomains {
		return present
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpMax)
	defer cancel()
	texts, err := s.DNS.TXT(ctx, c.Name)
	return judged(err, func() bool { return c.provenBy(texts, s.c.LegacyAliases) })
}

// ownerUsage returns how the owner uses the domain.
func (s *Service) ownerUsage(ctx context.Context, owner *Domain) (u ownerUsage, err error) {
	if u.inUse = owner.MaySend() || owner.MayReceive(); !u.inUse {
		return u, nil // Scheduled emails from an unverified domain do not count, because they could not be sent.
	}
	if u.scheduled, err = s.HasScheduled(ctx, owner.TeamID, owner.ID); err != nil {
		return u, fmt.Errorf("look whether emails from %s are scheduled: %w", owner.Name, err)
	}
	if u.active, err = s.SentSince(ctx, owner.TeamID, owner.ID, s.DB.Now().Add(-claimQuiet)); err != nil {
		return u, fmt.Errorf("look whether emails were sent from %s: %w", owner.Name, err)
	}
	return u, nil
}

// verifyClaim handles the job that looks up a claim's proof. If the proof is found, verifyClaim transfers the domain,
// unless the owner may still object or still uses the domain.
func (s *Service) verifyClaim(ctx context.Context, j jobs.Job, d Domain) error {
	c, err := claimOf(ctx, s.DB.Reader, d.TeamID, d.ID)
	if fault.KindOf(err) == fault.NotFound {
		return s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	proof := s.lookUpProof(ctx, &c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	asked, err := ownerOf(ctx, s.DB.Reader, c.Name)
	if err != nil {
		return err
	}
	used, err := s.ownerUsage(ctx, &asked)
	if err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		// The claim and both domains may have changed during the look-ups.
		for _, one := range []string{d.ID, asked.ID} {
			if err := lockDomain(ctx, tx, one); err != nil {
				return err
			}
		}
		c, err := claimOf(ctx, tx.Reader, d.TeamID, d.ID)
		if fault.KindOf(err) == fault.NotFound || err == nil && !c.open() {
			s.Queue.Finish(ctx, tx, j)
			return nil
		}
		if err != nil {
			return err
		}
		holder, err := getDomain(ctx, tx.Reader, c.TeamID, c.DomainID)
		if fault.KindOf(err) == fault.NotFound {
			s.Queue.Finish(ctx, tx, j)
			return nil
		}
		if err != nil {
			return err
		}
		c.askedAt = holder.VerifySince
		owner, err := ownerOf(ctx, tx.Reader, c.Name)
		if err != nil {
			return err
		}
		if owner.ID != asked.ID || (owner.MaySend() || owner.MayReceive()) != used.inUse {
			s.Queue.Retry(ctx, tx, j, tx.Now().Add(claimAtOnce), "the owner's domain has changed")
			return nil
		}
		next, again := judgeClaim(c, proof, used, tx.Now())
		if next.Status == ClaimCompleted {
			if next.FailureReason, err = s.transfer(ctx, tx, &owner, &c); err != nil {
				return err
			}
			if next.FailureReason != "" {
				next.Status = ClaimFailed
			}
		}
		if err := s.notifyOwner(ctx, tx, owner.TeamID, &c, &next); err != nil {
			return err
		}
		saveClaim(ctx, tx, &next)
		if again == 0 {
			s.Queue.Finish(ctx, tx, j)
			return nil
		}
		s.Queue.Retry(ctx, tx, j, tx.Now().Add(again), "")
		return nil
	})
}

// transfer deletes the owner's domain and makes the placeholder a regular domain with the same name. The placeholder
// has different keys, so its DNS records must be installed. If the domain cannot be transferred, transfer changes
// nothing and returns the reason.
func (s *Service) transfer(ctx context.Context, tx *db.Tx, owner *Domain, c *Claim) (failed string, err error) {
	d, err := getDomain(ctx, tx.Reader, c.TeamID, c.DomainID)
	if err != nil {
		return "", err
	}
	err = s.checkFree(ctx, tx.Reader, &d, d.names(), owner.ID)
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Kind == fault.Forbidden {
		return f.Message, nil
	}
	if err != nil {
		return "", err
	}
	var all []events.Event
	if owner.ID != "" {
		deleteDomain(ctx, tx, owner.TeamID, owner.ID)
		s.invalidate(tx, owner.ID)
		if err := s.sendingChanged(ctx, tx, owner, &Domain{}); err != nil {
			return "", err
		}
		all = append(all, events.Event{TeamID: owner.TeamID, Type: events.DomainDeleted, DomainID: owner.ID, Data: *owner})
	}
	d.Placeholder, d.VerifySince = false, time.Time{}
	saveDomain(ctx, tx, &d)
	s.invalidate(tx, d.ID)
	return "", s.Recorder.Record(ctx, tx, append(all, events.Event{TeamID: d.TeamID, Type: events.DomainCreated,
		DomainID: d.ID, Data: d})...)
}

// These are templates for the notices to owners. Each template is filled in with the domain and a time. In notices sent
// after the proof is found, the value of the TXT record is also filled in.
const (
	claimNotice = "Another team has claimed the domain %s, which your team has added here.\n\nThe other team gets the " +
		"domain only if it proves control of the domain's DNS with a record there until %s. If your team uses the " +
		"domain, you are notified of the proof and then have three days to object. Until then nothing changes. If you " +
		"expected this claim, you need not do anything.\n"
	proofNotice = "The team that claims the domain %s has proved control of the domain's DNS.\n\nIt gets the domain on " +
		"%s, or when your team no longer sends from it. Then your team can no longer send from it or receive at it. To " +
		"keep the domain, delete this TXT record of the domain:\n\n  %s\n"
	transferNotice = "The team that claims the domain %s gets it on %s, or when your team no longer sends from " +
		"it.\n\nTo keep the domain, delete this TXT record of the domain before that time:\n\n  %s\n"
)

// notifyOwner notifies the owner once when the proof is found and again a day before the transfer.
func (s *Service) notifyOwner(ctx context.Context, tx *db.Tx, teamID string, before, after *Claim) error {
	subject, text := "", ""
	switch {
	case after.RemindedAt.After(before.RemindedAt):
		subject, text = "Your domain %s goes to another team tomorrow", transferNotice
	case after.WarnedAt.After(before.WarnedAt):
		subject, text = "Your domain %s is about to go to another team", proofNotice
	default:
		return nil
	}
	return s.Notify(ctx, tx, teamID, fmt.Sprintf(subject, after.Name),
		fmt.Sprintf(text, after.Name, day(after.transferAt()), after.RecordValue()))
}

// day formats a time for a notice.
func day(t time.Time) string { return t.UTC().Format("Monday, 2 January 2006, 15:04 UTC") }
