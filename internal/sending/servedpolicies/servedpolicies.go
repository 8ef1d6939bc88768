// Package servedpolicies publishes MTA-STS policies (RFC 8461) for the receiving domains of teams, and checks regularly
// that senders can obtain them.
//
// A policy lists the hosts to which the domain's MX records lead. The installation serves it at
// https://mta-sts.DOMAIN/.well-known/mta-sts.txt. The domain's owner publishes two records: a CNAME at mta-sts.DOMAIN,
// and a TXT record at _mta-sts.DOMAIN with the id of the policy. Package mtasts has the formats.
//
// # Invariants
//
// The text of a policy changes before its id: all nodes serve the new text for [announceAfter] before the record should
// have the new id (RFC 8461 section 8.1). A policy whose record was never found keeps its id when its text changes. A
// policy that is removed is first replaced by one of mode none. That one is served until no sender can have a copy of
// an earlier policy (section 8.3). A host that leaves the MX records stays in the policy for [keepHost], so that
// senders with older DNS answers can deliver. A new host is added at the next check. The inbound host of the
// installation is always in the policy.
//
// Only a domain that may receive mail, and whose team is not suspended, has a policy for strangers. The policy of a
// domain that is deleted or stops receiving is removed in the way above, too: at once, senders get a policy of mode none.
// If another team adds the domain, the policy of that team takes its place. The name servers keep the two records of a
// deleted domain meanwhile (see [Service.Withdrawn]).
//
// # Failures
//
// A look-up without an answer changes nothing. A problem that two checks have found, at least [failAfter] apart, is a
// breakage: the team gets a notice and the event domain.transport_failed. The breakage ends when checks have found no
// problem for [recoverAfter]. A domain whose policy has never worked has no breakage, because its records are not
// published yet. After a change that the team requested, a former id in the record is no problem for [publishTime], so
// that the owner can publish the new one. If the domain is delegated, that applies to every change, because caches of
// the DNS have the former id for a while.
//
// # Out of scope
//
// The package does not obtain policies of other domains (see package tlspolicies), answer HTTP requests, or request
// certificates: it says which hosts may have one.
package servedpolicies

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Mode is the mode that a team chooses for a domain.
type Mode string

// These are the modes. A new policy should begin with Testing.
const (
	Off     Mode = "off"
	Testing Mode = "testing"
	Enforce Mode = "enforce"
)

const (
	testingAge = 24 * time.Hour      // default lifetime of a policy of mode testing
	enforceAge = 7 * 24 * time.Hour  // default lifetime of a policy of mode enforce, and the shortest one
	noneAge    = 24 * time.Hour      // lifetime of a policy of mode none
	keepHost   = 7 * 24 * time.Hour  // time for which a policy lists a host that is no longer in the MX records
	cleanFor   = 14 * 24 * time.Hour // time without failures after which enforce is recommended

	// announceAfter is the time between the change of a policy's text and that of its id.
	announceAfter = 5 * time.Minute
	// servedFor is how long a node may serve the former text after a change, if the hint about a domain is lost.
	servedFor = time.Minute

	hostsMax = 50 // hosts in a policy
)

// MaxNamed is the maximum number of hosts that a team names.
const MaxNamed = 10

// Config is the part of the configuration that concerns served policies.
type Config struct {
	// PublicHost is the host name of the HTTPS listener that serves the policies. It is "" if other servers cannot look
	// it up.
	PublicHost string
	// TrustRecords says that domains count as published without a look-up, as in development.
	TrustRecords bool
	Now          func() time.Time // nil means the database's clock
}

// Deps holds what a Service uses.
type Deps struct {
	DB       *db.DB
	Recorder *events.Recorder
	Domains  *domains.Service
	DNS      resolve.Resolver // without a cache
	// Suspended reports whether a team is suspended or deleted.
	Suspended func(ctx context.Context, teamID string) (bool, error)
	// Notify enqueues an email to the owner of a team in the transaction tx.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
	// Fetch fetches the policy of a domain as a sender does. A failed fetch has a result type of RFC 8460 and a reason.
	Fetch func(ctx context.Context, domain string) (p mtasts.Policy, r mtasts.Result, reason string)
	// Certificate returns the certificate that SMTP clients get for a host of this installation, or an error that says
	// why no sender would accept it.
	Certificate func(ctx context.Context, host string) (*x509.Certificate, error)
	// Reports returns the numbers of TLS sessions and of failures in the TLS reports about a domain since a time. If it
	// is nil, the numbers are unknown.
	Reports func(ctx context.Context, teamID, domain string, since time.Time) (sessions, failures int64, err error) `deps:"optional"`
}

// Service publishes policies. It is safe for concurrent use.
type Service struct {
	c Config
	p Deps
}

// New returns a service.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, fmt.Errorf("new service for served policies: %w", err)
	}
	if c.Now == nil {
		c.Now = p.DB.Now
	}
	return &Service{c: c, p: p}, nil
}

// host is a mail host in a policy.
type host struct {
	Name  string `json:"name"`
	Named bool   `json:"named,omitzero"` // the team named it
	// Seen is when the MX records last led to the host, in Unix microseconds; 0 if they never did.
	Seen int64 `json:"seen,omitzero"`
}

// row is a policy in the database.
type row struct {
	DomainID, TeamID string
	Name             string // of the domain
	Mode             mtasts.Mode
	MaxAge           time.Duration
	Hosts            []host
	Body             string // the text that is served
	ID               string // of the policy, for the record
	FormerID         string // belongs in the record until AnnounceAt; "" if there was none
	AnnounceAt       time.Time
	// ObsoleteAt is when the last copy of an earlier policy expires at a sender.
	ObsoleteAt   time.Time
	TestingSince time.Time // zero if the mode is not testing
	LeadsHere    bool      // mta-sts.DOMAIN leads to this installation, or did when it was last known
	CheckAt      time.Time
	CheckedAt    time.Time // zero before the first check
	ChangedAt    time.Time // when the team last changed the policy
	Watch        watch
}

// recordID returns the id that the domain's record should have now.
func (r *row) recordID(now time.Time) string {
	if r.FormerID != "" && now.Before(r.AnnounceAt) {
		return r.FormerID
	}
	return r.ID
}

// serial returns a number that grows when the record gets another id.
func (r *row) serial(now time.Time) uint32 {
	at := r.CheckedAt
	if r.AnnounceAt.After(at) && !now.Before(r.AnnounceAt) {
		at = r.AnnounceAt
	}
	return uint32(max(at.Unix(), 1))
}

// policy returns the policy that the row describes.
func (r *row) policy() mtasts.Policy {
	p := mtasts.Policy{Mode: r.Mode, MaxAge: r.MaxAge}
	if r.Mode == mtasts.None {
		return p
	}
	for _, h := range r.Hosts {
		p.MX = append(p.MX, h.Name)
	}
	return p
}

// renew writes the policy's text again. If it changes, the policy gets a new id, which is announced later. If known is
// false, no sender has found the policy yet: the id then stays, or is new at once if the policy is withdrawn.
func (r *row) renew(now time.Time, known bool) (changed bool) {
	body := r.policy().Text()
	if body == r.Body {
		return false
	}
	if old, err := mtasts.ParsePolicy(r.Body); err == nil && old.Mode != mtasts.None {
		if until := now.Add(servedFor + old.MaxAge); until.After(r.ObsoleteAt) {
			r.ObsoleteAt = until
		}
	}
	first := r.Body == ""
	r.Body = body
	switch {
	case first || !known && r.Mode == mtasts.None:
		r.ID, r.FormerID = newID(now, r.ID, r.FormerID), ""
	case known:
		announced := r.recordID(now)
		r.ID, r.FormerID, r.AnnounceAt = newID(now, r.ID, r.FormerID), announced, now.Add(announceAfter)
	}
	return true
}

// newID returns an id for a policy that changes now: its time in UTC. The id differs from the given ones.
func newID(now time.Time, others ...string) string {
	for at := now.UTC(); ; at = at.Add(time.Second) {
		id := at.Format("20060102150405")
		used := false
		for _, other := range others {
			used = used || id == other
		}
		if !used {
			return id
		}
	}
}

// mode returns the mode for the team.
func (r *row) mode() Mode {
	switch r.Mode {
	case mtasts.Testing:
		return Testing
	case mtasts.Enforce:
		return Enforce
	}
	return Off
}

// defaultAge returns the chosen lifetime of a policy, or the default of the mode if chosen is 0.
func defaultAge(m Mode, chosen time.Duration) time.Duration {
	if m == Enforce {
		return cmp.Or(chosen, enforceAge)
	}
	return cmp.Or(chosen, testingAge)
}
