// Package tlspolicies finds the MTA-STS policy (RFC 8461) of a recipient domain. It looks up the record that announces
// the policy, fetches the policy over HTTPS, and caches it in the database, which all nodes share.
//
// # Invariants
//
// A valid policy in the cache applies until it expires or another policy was fetched completely. A record or policy
// that cannot be had never removes it (RFC 8461 section 3.3).
//
// Only one node fetches a domain's policy at a time; the others wait for the result. A claim in the domain's row
// ensures this, and ends by itself if the node was killed. After a failed fetch, no node tries again for the same
// record within five minutes. While the domain has no valid policy, this time doubles with each failure, up to four
// hours. No transaction is open during a fetch. A fetch takes at most 20 seconds, of which the connection takes at most
// five. It follows no redirects, and connects only to public addresses.
//
// Strangers decide how many domains have policies. [Limits] bounds the rows, their size, and the fetches of a node, in
// total and for a domain with all its subdomains. A fetch that exceeds them waits for at most two seconds. Look-ups of
// a record take at most 5 seconds, and one that failed is not repeated for two minutes.
//
// A domain without a record costs no row. If the record and the policy are unchanged, [Service.For] needs no database:
// the resolver has the record in memory, and this package the row. A node forgets a row when another node changes it,
// and reads each row again after ten minutes.
//
// # Failures
//
// [State] says which policy applies and why, and what a TLS report mentions. If the record cannot be found or the
// policy cannot be had, and the cache has no valid policy, then no policy applies and mail is delivered as to a domain
// without MTA-STS. That includes a policy that the limits do not allow to fetch now: a later email fetches it. An
// attacker who exhausts the limits can therefore keep a node from learning a policy, but cannot remove one from the
// cache. RFC 8461 accepts this, because it trusts on first use. If mail waited instead, such an attacker could stop the
// mail to all domains whose policies are not cached.
//
// If the database fails, a valid policy in memory applies. Without one, For returns an error and mail waits,
// because the database may have a policy that forbids a connection in clear. Nothing is fetched without the database. A
// row that cannot be parsed counts as a row without a policy, which is due for a fetch.
//
// # Out of scope
//
// The package does not compare mail hosts with a policy (see package mtasts), does not connect to mail hosts, and sends
// no reports.
package tlspolicies

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/netguard"
)

const (
	fetchTime = 20 * time.Second // for the whole fetch; a delivery waits for it
	// connectTime limits the connection of a fetch, with TLS, so that a firewall that drops packets delays mail less.
	connectTime = 5 * time.Second
	claimTime   = 30 * time.Second // longer than a fetch with its transactions
	// flightTime limits the wait for another node's claim and the fetch that may follow.
	flightTime = time.Minute

	// recordTime limits the look-up of a record, which each delivery waits for. The resolver's own limit is longer, and
	// its look-up continues.
	recordTime = 5 * time.Second
	// recordRetry is the time in which a look-up that failed is not repeated. It is longer than the resolver's look-up.
	recordRetry = 2 * time.Minute
	recordsMax  = 10_000 // domains whose look-up failed, in memory

	retryAfter = 5 * time.Minute // RFC 8461 section 3.3
	// retryMax is the longest time between two fetches for a domain without a valid policy.
	retryMax = 4 * time.Hour
	// minLifetime is how long a policy applies whose max_age is shorter. It limits how often such a policy is fetched.
	minLifetime = 5 * time.Minute
	// staleFor is how long a cached DNS answer may name the id before the current one. It is the longest time for which
	// package resolve caches an answer.
	staleFor = time.Hour

	usedEvery    = 24 * time.Hour // how exactly the last use is recorded
	unusedFor    = 180 * 24 * time.Hour
	refreshAfter = 24 * time.Hour // RFC 8461 section 3.3
	refreshWidth = 3 * time.Hour  // refreshes of policies that were fetched at the same time are spread over this time
	refreshRetry = 4 * time.Hour
)

// Config configures a Service. The zero Config is for production.
type Config struct {
	RootCAs *x509.CertPool // verify the web servers' certificates; nil means the system's
	Port    int            // of the web servers; 0 means 443
	Timeout time.Duration  // for a fetch; 0 means 20 s
	// ConnectTimeout limits the connection of a fetch, with TLS; 0 means 5 s.
	ConnectTimeout time.Duration
	// RecordTimeout limits the look-up of a record; 0 means 5 s.
	RecordTimeout time.Duration
	Limits        Limits
	// Wait is how long a delivery waits for a fetch that would exceed the limits; 0 means 2 s.
	Wait time.Duration
	Now  func() time.Time // nil means the database's clock
}

// Deps holds what a Service uses.
type Deps struct {
	DB    *db.DB
	DNS   resolve.Resolver // with a cache, because For asks it each time
	Fresh resolve.Resolver // without a cache
	Guard *netguard.Guard
	Log   *slog.Logger
}

// Service finds policies. It is safe for concurrent use.
type Service struct {
	c       Config
	p       Deps
	client  *http.Client
	gate    *gate
	memory  *memory
	flights singleflight.Group // fetches, by domain

	failures failures
	lookUps  singleflight.Group // look-ups without the DNS cache, by domain

	warnBusy rate.Sometimes // warns that the limits prevent fetches
}

// topic is the topic of hints about changed rows. Their payload is the domain.
const topic = "tls_policies"

// New returns a service. Call New before the database's Run, because the service listens for hints.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, fmt.Errorf("new service for TLS policies: %w", err)
	}
	c.Port, c.Timeout = cmp.Or(c.Port, 443), cmp.Or(c.Timeout, fetchTime)
	if c.Now == nil {
		c.Now = p.DB.Now
	}
	c.RecordTimeout, c.ConnectTimeout = cmp.Or(c.RecordTimeout, recordTime), cmp.Or(c.ConnectTimeout, connectTime)
	c.Wait = cmp.Or(c.Wait, waitTime)
	c.Limits = c.Limits.complete()
	s := &Service{c: c, p: p, gate: newGate(c.Limits), memory: newMemory(), failures: newFailures(),
		warnBusy: rate.Sometimes{Interval: time.Minute}}
	s.client = s.newClient()
	p.DB.OnHint(topic, s.memory.forget)
	p.DB.OnListening(s.memory.clear)
	return s, nil
}

// Origin says where a policy comes from.
type Origin string

// These are the origins of a policy.
const (
	NoPolicy Origin = "none"   // no policy applies
	Live     Origin = "live"   // the domain's record names this policy
	Cached   Origin = "cached" // the record is missing, or its policy cannot be had, so that the cached policy applies
)

// State explains the result of [Service.For].
type State struct {
	Domain string // the policy domain in A-labels; "" if there is none
	Origin Origin
	// ID, FetchedAt and ExpiresAt describe the policy that applies.
	ID                   string
	FetchedAt, ExpiresAt time.Time
	Result               mtasts.Result // for TLS reports; "" if nothing failed
	Reason               string        // says why the policy applies or why none does, for people
}

// Entry is a domain's row in the cache.
type Entry struct {
	Domain  string
	ID      string // of the record with which the policy was fetched; "" without a policy
	PriorID string // the id before
	Policy  mtasts.Policy
	// Unreadable is whether the row has a policy that cannot be parsed. The entry then has no policy and no id, and its
	// policy is due for a fetch.
	Unreadable bool

	FetchedAt, ExpiresAt time.Time
	UsedAt               time.Time // with an error of up to a day
	RefreshAt            time.Time

	// The following fields describe the last fetch, if it failed.
	FailedID          string
	Failure           mtasts.Result
	Reason            string
	FailedAt, RetryAt time.Time

	claimedUntil time.Time
}

// Valid reports whether the entry has a policy that has not expired. A nil Entry has none.
func (e *Entry) Valid(now time.Time) bool {
	return e != nil && e.Policy.Mode != "" && now.Before(e.ExpiresAt)
}

// record is the answer to the look-up of a domain's record.
type record struct {
	id     string // "" if there is no usable record
	reason string // says why there is none
	fresh  bool   // whether the answer did not come from a cache
}

// isNamed reports whether the entry's policy is the one that the record names. A cached answer may name the id before:
// other nodes have cached the record at other times, and would otherwise fetch the policy in turns.
func (e *Entry) isNamed(r record, now time.Time) bool {
	if r.id == "" {
		return false
	}
	return e.ID == r.id || !r.fresh && e.PriorID == r.id && now.Before(e.FetchedAt.Add(staleFor))
}

// settles reports whether the record requires no fetch. After a failed fetch, another id is tried at once only if a
// valid policy applies meanwhile. Otherwise, a domain whose id changes all the time would cause a fetch for each email.
func (e *Entry) settles(r record, now time.Time) bool {
	switch {
	case r.id == "", e.Valid(now) && e.isNamed(r, now):
		return true
	case e == nil || e.FailedID == "":
		return false
	case e.FailedID == r.id:
		return now.Before(e.RetryAt)
	}
	return !e.Valid(now) && now.Before(e.FailedAt.Add(retryAfter))
}

// judge returns the policy that applies, according to the domain's entry, which may be nil, and its record.
func judge(domain string, e *Entry, r record, now time.Time) (mtasts.Policy, State) {
	st := State{Domain: domain, Origin: NoPolicy}
	var why string
	switch {
	case r.id == "":
		why = r.reason
	case e != nil && e.FailedID != "" && (e.FailedID == r.id || !e.Valid(now)):
		st.Result, why = e.Failure, e.Reason
	default:
		why = "the policy was not fetched in time"
	}
	if !e.Valid(now) {
		st.Reason = why
		return mtasts.Policy{}, st
	}
	st.ID, st.FetchedAt, st.ExpiresAt = e.ID, e.FetchedAt, e.ExpiresAt
	if e.isNamed(r, now) {
		st.Origin, st.Result = Live, ""
		st.Reason = fmt.Sprintf("the record names the policy with the id %s, whose mode is %s", e.ID, e.Policy.Mode)
		return e.Policy, st
	}
	st.Origin, st.Result = Cached, cmp.Or(st.Result, mtasts.FetchError)
	st.Reason = fmt.Sprintf("%s; the policy of %s, whose mode is %s, applies until %s", why,
		e.FetchedAt.Format(time.RFC3339), e.Policy.Mode, e.ExpiresAt.Format(time.RFC3339))
	return e.Policy, st
}
