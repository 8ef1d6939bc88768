package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	sealPurpose = "dkim"
	nameIndex   = "domains_name"
	hintTopic   = "domains"
	cacheFor    = time.Second // maximum age of cached data if the hint about a change is lost
	cacheMax    = 10_000
	keyDelay    = 5 * time.Second // wait before an RSA key is generated in advance

	// policyLabel is the label of the host that serves a domain's MTA-STS policy (RFC 8461 section 3.2). Tracked links or
	// return paths there would take the host from the policy.
	policyLabel = "mta-sts"

	unprovedMax = 1000
	trackedMax  = 50 // maximum number of tracking subdomains per domain, including former ones
)

// Sealed lists the columns with encrypted secrets.
var Sealed = []keyring.Column{{Table: "domains", Name: "rsa_key", Purpose: sealPurpose},
	{Table: "domains", Name: "ed25519_key", Purpose: sealPurpose},
	{Table: "domain_keys", Name: "private_key", Purpose: sealPurpose}}

// Deps are the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Queue    *jobs.Queue
	Recorder *events.Recorder
	Keys     *keyring.Keyring
	DNS      resolve.Resolver // must not use a cache, because users verify records that they have just published
	Log      *slog.Logger
	// HasScheduled reports whether a domain has scheduled emails. A claim waits until no more emails are scheduled.
	HasScheduled func(ctx context.Context, teamID, domainID string) (bool, error)
	// SentSince reports whether a team has sent emails from a domain since the given time. While the owner
	// is still sending emails from the domain, a claim to the domain waits.
	SentSince func(ctx context.Context, teamID, domainID string, since time.Time) (bool, error)
	// Notify enqueues an email to the owner of a team, in the transaction that records a claim to the team's domain, or
	// begins a rotation for which the owner has to add records.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
	// OnSendingLost is called in the transaction after which a team may no longer send from a domain.
	OnSendingLost func(ctx context.Context, tx *db.Tx, teamID, name string) error
	// OnSendingBack is called in the transaction after which a team may send from a domain, because the domain is verified
	// or its sending capability was enabled.
	OnSendingBack func(ctx context.Context, tx *db.Tx, teamID, name string) error
	// GenerateRSA generates a DKIM key. If GenerateRSA is nil, dkim.GenerateRSA is used, which takes about a tenth of a
	// second.
	GenerateRSA func() (*dkim.Key, error) `deps:"optional"`
	// Delegation returns the names of the servers to which the parent zone's servers delegate a name, or
	// resolve.ErrNotFound if they do not. Without it, no domain can be delegated.
	Delegation func(ctx context.Context, name string) ([]string, error) `deps:"optional"`
	// AskServers asks this installation's name servers for the NS records of a domain. A delegated domain is not
	// verified before they have its zone. If AskServers is nil, they are not asked.
	AskServers func(ctx context.Context, domain string) []NameServerAnswer `deps:"optional"`
	// Authoritative asks all authoritative servers of a name for its TXT records. It follows aliases. If it is nil, DNS is
	// asked.
	Authoritative func(ctx context.Context, name string) ([]ServerAnswer, error) `deps:"optional"`
	// LookUpAdvised looks up what the functions in Advised need to know from the DNS, and stores it. The parameter ours
	// says that this installation's name servers answer for the domain.
	LookUpAdvised func(ctx context.Context, d *Domain, ours bool) error `deps:"optional"`
	// Advised are the sources of advised records.
	Advised []AdvisedSource `deps:"optional"`
	// Withdrawn returns the records that must outlive their deleted domains. It makes no look-ups in the DNS.
	Withdrawn func(ctx context.Context) ([]WithdrawnRecords, error) `deps:"optional"`
	// OnVerify is called in the transaction of a request to look up the records of a team's domain. It makes the checks of
	// other packages due.
	OnVerify func(ctx context.Context, tx *db.Tx, teamID, domainID string) error `deps:"optional"`
	// Advice judges the DNS of a domain for its owner.
	Advice func(ctx context.Context, d *Domain, wanted []Record) Advice `deps:"optional"`
}

// Service implements the operations on domains.
type Service struct {
	Deps
	c     Config
	ready chan *dkim.Key

	mu        sync.Mutex
	changes   int // number of calls of clearCaches; see look
	senders   map[string]cached[Sender]
	signing   map[string]cached[Signing]
	receivers map[string]cached[Receiver]
	tracked   map[string]cached[bool] // by host

	advices *advices

	zonesMax int // the constant, except in tests
}

type cached[T any] struct {
	value T
	until time.Time
}

// look returns the value for a key from one of the service's caches, or looks the value up and caches it for the given
// time. If a domain may have changed during the look-up, the value is not cached, because it may be outdated. The same
// applies if keep returns false for the value.
func look[T any](s *Service, cache map[string]cached[T], key string, ttl time.Duration,
	lookUp func() (T, error), keep func(T) bool) (T, error) {
	now := time.Now()
	s.mu.Lock()
	c, ok := cache[key]
	before := s.changes
	s.mu.Unlock()
	if ok && now.Before(c.until) {
		return c.value, nil
	}
	value, err := lookUp()
	if err != nil || !keep(value) {
		return value, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == before {
		if len(cache) >= cacheMax {
			clear(cache)
		}
		cache[key] = cached[T]{value, now.Add(ttl)}
	}
	return value, nil
}

func always[T any](T) bool { return true }

// New returns the service. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d), nil
}

// newService is like New but does not check for missing dependencies. Tests use it.
func newService(c Config, d Deps) *Service {
	c.UnprovedMax = cmp.Or(c.UnprovedMax, unprovedMax)
	if d.GenerateRSA == nil {
		d.GenerateRSA = dkim.GenerateRSA
	}
	c.liveSpan = new(atomic.Int64)
	c.liveSpan.Store(int64(c.RetrySpan))
	s := &Service{Deps: d, c: c, ready: make(chan *dkim.Key), senders: map[string]cached[Sender]{},
		signing: map[string]cached[Signing]{}, receivers: map[string]cached[Receiver]{}, tracked: map[string]cached[bool]{},
		advices: newAdvices(), zonesMax: zonesMax}
	d.DB.OnHint(hintTopic, s.clearCaches)
	d.DB.OnListening(func() { s.clearCaches("") }) // hints may have been lost
	return s
}

func (s *Service) clearCaches(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	clear(s.senders)
	clear(s.signing)
	clear(s.receivers)
	clear(s.tracked)
}

// invalidate clears the domain caches of all nodes when the transaction commits.
func (s *Service) invalidate(tx *db.Tx, domainID string) {
	tx.AfterCommit(func() { s.DB.Hint(hintTopic, domainID) })
}

// Run keeps one generated RSA key ready until ctx ends. When a new domain uses the key, Run generates the next one.
// Generating a key takes 0.1 s or more. Run waits for keyDelay before each key, so that nodes start faster. Before Run
// returns, it ends the look-ups for advice. Requests get only known advice afterwards.
func (s *Service) Run(ctx context.Context) error {
	defer s.advices.stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(keyDelay):
		}
		k, err := s.GenerateRSA()
		if err != nil {
			return fmt.Errorf("make a DKIM key: %w", err)
		}
		select {
		case s.ready <- k:
		case <-ctx.Done():
			return nil
		}
	}
}

// TrustsRecords reports whether every DNS record counts as found without a look-up, as in development.
func (s *Service) TrustsRecords() bool { return s.c.TrustDomains }

// Capabilities says whether a domain can send and receive. A nil value leaves a capability unchanged.
type Capabilities struct{ Sending, Receiving *bool }

// NewDomain is a request to add a domain. An empty string selects the default value of a field.
type NewDomain struct {
	Name              string
	Region            string
	ReturnPath        string
	TrackingSubdomain string
	TLS               string
	OpenTracking      bool
	ClickTracking     bool
	Capabilities      Capabilities
}

// Check validates a request to add a domain in the same way as Create, except for the rules that depend on the
// installation and on other domains. It returns the name in the form in which it is stored.
func (n *NewDomain) Check() (name string, err error) {
	d, err := n.domain(&Config{})
	return d.Name, err
}

// plan checks a request to add a domain and returns the domain without keys.
func (s *Service) plan(teamID string, n NewDomain) (Domain, error) {
	d, err := n.domain(&s.c)
	if err != nil {
		return d, err
	}
	d.ID, d.TeamID, d.CreatedAt = id.New(), teamID, s.DB.Now()
	if err := s.c.checkHosts(&d, Domain{}); err != nil {
		return d, err
	}
	if err := s.c.checkLengths(&d); err != nil {
		return d, err
	}
	return d, s.c.checkReserved(d.names())
}

// domain returns the domain that n describes, without id, team and keys.
func (n *NewDomain) domain(c *Config) (Domain, error) {
	name, err := c.checkName(n.Name)
	if err != nil {
		return Domain{}, err
	}
	d := Domain{Name: name, Region: n.Region, ReturnPath: strings.ToLower(n.ReturnPath),
		TrackingSubdomain: strings.ToLower(n.TrackingSubdomain), TLS: n.TLS, OpenTracking: n.OpenTracking,
		ClickTracking: n.ClickTracking, Sending: true, Status: NotStarted}
	if d.Region == "" {
		d.Region = regions[0]
	}
	if !slices.Contains(regions, d.Region) {
		return d, fault.Invalidf("region", "The `region` field must be one of %s.", strings.Join(regions, ", "))
	}
	if d.ReturnPath == "" {
		d.ReturnPath = "send"
	}
	if !isLabel(d.ReturnPath, 63) || d.ReturnPath[0] >= '0' && d.ReturnPath[0] <= '9' {
		return d, fault.Invalidf("custom_return_path",
			"The `custom_return_path` field must be a label of at most 63 letters, digits "+
				"and dashes that starts with a letter and ends with a letter or digit.")
	}
	if d.ReturnPath == policyLabel {
		return d, policyHost("custom_return_path")
	}
	if d.TLS == "" {
		d.TLS = Opportunistic
	}
	return d, d.set(n.Capabilities, &n.TLS, &n.TrackingSubdomain)
}

// policyHost returns the fault for a field that must not be policyLabel.
func policyHost(field string) error {
	return fault.Invalidf(field, "The `%s` field must not be `%s`: that host serves the domain's MTA-STS policy.", field,
		policyLabel)
}

// set checks and applies changes to a domain's settings. A new domain has no id yet.
func (d *Domain) set(c Capabilities, tls, tracking *string) error {
	if c.Sending != nil {
		d.Sending = *c.Sending
	}
	if c.Receiving != nil {
		d.Receiving = *c.Receiving
	}
	if !d.Sending && !d.Receiving {
		return fault.Invalidf("capabilities", "The `capabilities` field must enable sending, receiving or both.")
	}
	if tls != nil && *tls != "" {
		if *tls != Opportunistic && *tls != Enforced {
			return fault.Invalidf("tls", "The `tls` field must be `opportunistic` or `enforced`.")
		}
		d.TLS = *tls
	}
	if tracking != nil {
		label := strings.ToLower(*tracking)
		if label != "" && !isLabel(label, 63) {
			return fault.Invalidf("tracking_subdomain", "The `tracking_subdomain` field must be a label such as `links`.")
		}
		if label == policyLabel && (d.ID == "" || label != d.TrackingSubdomain) {
			return policyHost("tracking_subdomain")
		}
		if label != d.TrackingSubdomain {
			return d.track(label)
		}
	}
	return nil
}

// track changes the tracking subdomain. If the domain has reached trackedMax, track accepts only one of the domain's
// former tracking subdomains.
func (d *Domain) track(label string) error {
	d.rememberTracking() // in rows from older releases, Tracked may lack the current subdomain
	if label != "" && len(d.Tracked) >= trackedMax && !slices.Contains(d.Tracked, label) {
		return fault.Invalidf("tracking_subdomain", "The domain has had %d tracking subdomains, whose links go on "+
			"working, and can have no more. Set the `tracking_subdomain` field to one of them.", len(d.Tracked))
	}
	delete(d.checks, "tracking")
	delete(d.checks, "caa")
	d.TrackingSubdomain = label
	return nil
}

// rememberTracking adds the tracking subdomain to Tracked if its record is verified or went missing recently. Links in
// sent emails may point to the subdomain, so it is never removed from Tracked.
func (d *Domain) rememberTracking() {
	s := d.trackingFound()
	if (s == Verified || s == TemporaryFailure) && !slices.Contains(d.Tracked, d.TrackingSubdomain) {
		d.Tracked = append(slices.Clip(d.Tracked), d.TrackingSubdomain)
	}
}

// foundAll returns findings that mark every record for a domain as present.
func (s *Service) foundAll(d *Domain) map[string]finding {
	found := map[string]finding{}
	for _, r := range s.c.recordsInUse(d) {
		found[r.Key] = present
	}
	if d.setup() != SetupDelegation {
		found[delegationSeen] = absent // the owner counts as having removed the NS records
	}
	return found
}

// Create adds a domain. Create generates the keys only after all checks have passed. Unique indexes reject names that
// another team adds concurrently.
func (s *Service) Create(ctx context.Context, teamID string, n NewDomain) (Domain, error) {
	return s.create(ctx, teamID, n, false)
}

// Check returns the fault that Create would return, without adding the domain.
func (s *Service) Check(ctx context.Context, teamID string, n NewDomain) error {
	d, err := s.plan(teamID, n)
	if err != nil {
		return err
	}
	return s.mayAdd(ctx, s.DB.Reader, &d)
}

// AddVerified adds a domain, or finds the team's existing domain with that name, and verifies the domain without
// querying DNS. If an existing domain has no tracking subdomain, AddVerified sets the requested tracking subdomain.
// AddVerified is for development and fails unless Config.TrustDomains is set.
func (s *Service) AddVerified(ctx context.Context, teamID string, n NewDomain) (Domain, error) {
	if !s.c.TrustDomains {
		return Domain{}, errors.New("domains are verified by DNS: trust_domains is off")
	}
	name, err := s.c.checkName(n.Name)
	if err != nil {
		return Domain{}, err
	}
	d, err := domainByName(ctx, s.DB.Reader, teamID, name)
	if fault.KindOf(err) == fault.NotFound {
		return s.create(ctx, teamID, n, true)
	}
	if err != nil || d.Status == Verified && (n.TrackingSubdomain == "" || d.TrackingHost() != "") {
		return d, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if d, err = domainToChange(ctx, tx, teamID, d.ID); err != nil {
			return err
		}
		if d.TrackingSubdomain == "" {
			if err := d.set(Capabilities{}, nil, &n.TrackingSubdomain); err != nil {
				return err
			}
		}
		return s.verifyUnasked(ctx, tx, &d)
	})
	return d, err
}

// verifyUnasked marks every record for a domain as found, without querying DNS.
func (s *Service) verifyUnasked(ctx context.Context, tx *db.Tx, d *Domain) error {
	before := *d
	found := s.foundAll(d)
	*d = judge(*d, found, tx.Now())
	d.noteLookUp(&before, found, nil, tx.Now())
	saveDomain(ctx, tx, d)
	if lost, err := s.registerNames(ctx, tx, d); err != nil || len(lost) > 0 {
		return errorOrNameTaken(err, lost)
	}
	s.invalidate(tx, d.ID)
	if err := s.sendingChanged(ctx, tx, &before, d); err != nil {
		return err
	}
	return s.Recorder.Record(ctx, tx, events.Event{TeamID: d.TeamID, Type: events.DomainUpdated, DomainID: d.ID, Data: *d})
}

func (s *Service) create(ctx context.Context, teamID string, n NewDomain, verified bool) (Domain, error) {
	d, err := s.plan(teamID, n)
	if err != nil {
		return d, err
	}
	if err := s.mayAdd(ctx, s.DB.Reader, &d); err != nil {
		return d, err
	}
	if err := s.newKeys(&d); err != nil {
		return d, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		insertDomain(ctx, tx, &d)
		audit.Target(ctx, d.ID)
		s.invalidate(tx, d.ID)
		err := s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.DomainCreated, DomainID: d.ID, Data: d})
		if err != nil || !verified {
			return err
		}
		return s.verifyUnasked(ctx, tx, &d)
	})
	if s.DB.Violates(err, nameIndex) {
		return d, registered(d.Name).Because(errors.Join(ErrRegistered, err))
	}
	return d, err
}

// ErrRegistered is the cause of the fault for a name that belongs to another team, so that callers can offer a claim.
var ErrRegistered = errors.New("the domain belongs to another team")

func registered(name string) *fault.Error {
	return fault.Forbiddenf("name", "The domain `%s` has been registered already. If you own it, claim it: "+
		"POST /domains/claim.", name).Because(ErrRegistered)
}

// Records returns a domain's DNS records with their states.
func (s *Service) Records(d *Domain) []Record { return s.c.Records(d) }

// Get returns the team's domain with the given id.
func (s *Service) Get(ctx context.Context, teamID, domainID string) (Domain, error) {
	return getDomain(ctx, s.DB.Reader, teamID, domainID)
}

// Exists reports whether the team has a domain with a given id.
func (s *Service) Exists(ctx context.Context, teamID, domainID string) (bool, error) {
	_, err := getDomain(ctx, s.DB.Reader, teamID, domainID)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}

// Filter selects domains of a team. Empty fields select all.
type Filter struct {
	Statuses []Status
	Name     string // part of the name
}

// Find returns a page of the team's domains that match a filter, newest first.
func (s *Service) Find(ctx context.Context, teamID string, f Filter, p page.Page) ([]Domain, bool, error) {
	return findDomains(ctx, s.DB.Reader, teamID, f, p)
}

// Count returns the number of a team's domains.
func (s *Service) Count(ctx context.Context, teamID string) (int, error) {
	n, err := countDomains(ctx, s.DB.Reader, teamID)
	if err != nil {
		return 0, fmt.Errorf("count domains: %w", err)
	}
	return n, nil
}

// List returns a page of the team's domains, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Domain, bool, error) {
	return listDomains(ctx, s.DB.Reader, teamID, p)
}

// Change is a change to a domain's settings; nil leaves a setting unchanged.
type Change struct {
	OpenTracking, ClickTracking *bool
	TLS, TrackingSubdomain      *string
	Capabilities                Capabilities
}

// Update changes a domain's settings. Newly required records have the state not_started.
func (s *Service) Update(ctx context.Context, teamID, domainID string, c Change) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		d, err := domainToChange(ctx, tx, teamID, domainID)
		if err != nil {
			return err
		}
		was, before := d, d.names()
		if err := d.set(c.Capabilities, c.TLS, c.TrackingSubdomain); err != nil {
			return err
		}
		if err := s.c.checkHosts(&d, was); err != nil {
			return err
		}
		if err := checkTrackingHost(&d, was.TrackingSubdomain); err != nil {
			return err
		}
		d.prune(s.c.recordsInUse(&d))
		added := slices.DeleteFunc(d.names(), func(n dnsName) bool {
			return slices.ContainsFunc(before, func(b dnsName) bool { return b.name == n.name })
		})
		if err := s.c.checkReserved(added); err != nil {
			return err
		}
		if len(added) > 0 {
			if err := s.checkFree(ctx, tx.Reader, &d, added, ""); err != nil {
				return err
			}
		}
		if c.OpenTracking != nil {
			d.OpenTracking = *c.OpenTracking
		}
		if c.ClickTracking != nil {
			d.ClickTracking = *c.ClickTracking
		}
		d.Status = d.overall()
		saveDomain(ctx, tx, &d)
		lost, err := s.registerNames(ctx, tx, &d)
		// Names that were lost before this change are reported by the next look-up.
		lost = slices.DeleteFunc(lost, func(n dnsName) bool {
			return !slices.ContainsFunc(added, func(a dnsName) bool { return a.name == n.name })
		})
		if err != nil || len(lost) > 0 {
			return errorOrNameTaken(err, lost)
		}
		s.invalidate(tx, d.ID)
		if err := s.trustNew(ctx, tx, &d, was.Status); err != nil {
			return err
		}
		if err := s.sendingChanged(ctx, tx, &was, &d); err != nil {
			return err
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.DomainUpdated, DomainID: d.ID, Data: d})
	})
}

// Delete deletes a domain. Waiting emails are withheld for a day from the time when they are due, and broadcasts pause;
// see [Service.LockStanding]. If the domain is a placeholder, its claim is canceled.
func (s *Service) Delete(ctx context.Context, teamID, domainID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		d, err := domainToChange(ctx, tx, teamID, domainID)
		if err != nil {
			return err
		}
		deleteDomain(ctx, tx, teamID, domainID)
		endClaims(ctx, tx, teamID, domainID, ClaimCanceled)
		s.invalidate(tx, d.ID)
		if err := s.sendingChanged(ctx, tx, &d, &Domain{}); err != nil {
			return err
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.DomainDeleted, DomainID: d.ID, Data: d})
	})
}

// IsSandbox reports whether a domain is a sandbox domain.
func (s *Service) IsSandbox(name string) bool { return slices.Contains(s.c.SandboxDomains, name) }
