// Package delivery delivers emails to the mail hosts of their recipients, to a relay, or to a local outbox.
//
// A job delivers one email to all recipients at one destination domain that have no final outcome yet. Each job runs
// three functions. The function plan finds the IP addresses to try. The function talk runs the SMTP conversation and
// returns an answer for each recipient. The function judge, which has no side effects, classifies each answer. One
// transaction then finishes or reschedules the job, stores the conversation, and records the events.
//
// # Invariants
//
// Every accepted email is delivered at least once or ends with an event that says why it was not delivered. After about
// fifty hours of errors on our side, the job is parked until an operator acts.
//
// A second copy of an email is sent only in two cases. In the first case, the node crashes or is declared dead after a
// host's final 250 reply but before our commit. In the second case, a host may have accepted the message, but its
// answer never arrived. An attempt that gets no answer to the final dot has the outcome "unknown". After two unknown
// outcomes, the next try comes only hours later. The Message-ID and all other bytes except the signatures stay the
// same, so that receivers can recognize copies.
//
// No database transaction is open during network I/O. A mail host's answer is represented as data, never as a Go error.
//
// No team's mail waits for the mail hosts of another team's recipients. Package fairshare divides memory and
// connections among the teams. Teams take turns to compose, to sign, and to use a destination. A job acquires memory,
// then its turn to compose and its turn to sign, then a connection permit, and finally a slot at the destination. A job
// that waits for its own team's share holds nothing that another team may need. Bulk mail has its own lanes and takes
// its own turns (emails.Lane, jobs.Kind.Bulk). Bulk mail never uses all of its team's share, so the team's other mail
// does not wait behind it.
//
// # Failures
//
// After a temporary refusal or a failed connection, the email is retried according to the schedule. After the last
// retry, the email bounces with the type transient, and the address is not suppressed. Only a permanent refusal that
// concerns the recipient suppresses the address; a refusal of our address, reputation, content or size does not.
//
// If a destination asks for less mail, the node pauses it and opens fewer connections to it; the number then rises
// slowly (shaper). If an IP address does not answer, the node does not use it for any destination until a backoff ends.
// The backoff grows with each failure of the address (hosts). If our own DNS servers fail, the job waits for their
// return, and no try is recorded. After a database failure, the job is retried according to
// a separate schedule. A database failure never counts as a bounce.
//
// At first a team has one connection to a destination. Each answer from a destination allows more connections, however
// long it took (window). The operator's relays have no such windows; see relay.go. Each IP address also has a
// connection window, which is shared by all destinations that use the address. A stalled conversation keeps its
// connection, because closing it after the final dot could cause a second copy. During a stall, no more connections are
// allowed. Some connections are reserved for destinations that answer (jobs.Share).
//
// # Out of scope
//
// The package does not decide who may send. Before each try, the package checks the suppressions again, unless they
// were read in the last few seconds. The package does not process bounces that arrive by mail. The nodes share the
// connection and rate limits (package nodelimits). Each node tracks separately which hosts are slow or have asked for
// less mail. The package neither fetches MTA-STS policies (package tlspolicies) nor validates DNSSEC.
package delivery

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/nodelimits"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// The transports.
const (
	Direct  = "direct"  // delivery to the mail hosts of the recipients
	Relay   = "relay"   // through the operator's relays
	Capture = "capture" // stored in an outbox, never sent
)

// Config is the part of the configuration that concerns delivery.
type Config struct {
	Transport string
	Hostname  string // name in EHLO; also used in return paths for domains without a return-path host

	// Relays are tried in order. Those with rules get only the mail that matches. The others get all other mail if the
	// transport is Relay.
	Relays       []routing.Relay
	Destinations []routing.Destination // what the operator has set for some destinations

	SMTPPort       int      // port for direct delivery; 0 means 25
	OwnHosts       []string // names of MX hosts that lead back to this server; nil means Hostname
	SandboxDomains []string // of test addresses
	AllowPrivate   bool     // allows direct delivery to non-public IP addresses; for tests

	Schedule           []time.Duration // waits between tries; nil means twelve waits over 48 hours
	Workers            int             // messages composed concurrently
	Signers            int             // messages signed concurrently; less than Workers, to leave CPU for accepting mail
	ComplaintAddress   string          // receives complaints, in lower case; "" means that no message names an address
	Unsigned           bool            // skip DKIM signing; for measurements only
	LaneConnections    int             // to one destination
	LaneRate           float64         // messages per second to one destination; 0 means no limit
	MaxConnections     int             // connections to all destinations, including idle ones; 0 means 500
	ConnectionMessages int             // maximum number of messages sent over one connection; 0 means 1,000

	// DANE says that DNS may authenticate answers by DNSSEC, so that TLSA records are looked up (RFC 7672). DNS is then
	// a resolve.Secure.
	DANE bool

	RootCAs  *x509.CertPool // CA certificates used to verify hosts; nil means the system's CAs
	Timeouts smtpclient.Timeouts
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil means the method of a net.Dialer
}

// defaultSchedule spreads the tries over 48 hours.
var defaultSchedule = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
	2 * time.Hour,
	4 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour}

const (
	// memory is the maximum total size, in bytes, of the messages held in memory. A message that is larger than the
	// constant memory is sent while no other message is in memory. Each team must leave as much memory free as it uses,
	// which leaves enough for another team's largest email.
	memory      = 256 << 20
	memoryGreed = 1
	// lease is long enough for the waits before an SMTP conversation and for the conversation itself. A job must not
	// lose its lease during a conversation.
	lease = 30 * time.Minute
	// talkMax is the lease time that must remain when an SMTP conversation starts. The answer to the final dot alone
	// may take ten minutes.
	talkMax = 13 * time.Minute
	// planMax is the time limit for the DNS look-ups of one try, and for the fetch of an MTA-STS policy.
	planMax = 2 * time.Minute
	// prefetch is the number of jobs claimed per connection to a fast destination. While one message is being sent, the
	// node composes and signs other messages and records outcomes. For other destinations, one job per connection is
	// claimed, so that waiting messages use little memory.
	prefetch = 4
)

// Deps are the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Queue    *jobs.Queue
	Recorder *events.Recorder
	Emails   *emails.Service
	Domains  *domains.Service
	Keys     *keyring.Keyring
	DNS      resolve.Resolver
	// TLSPolicies finds the MTA-STS policies of recipient domains; nil if they are not obeyed.
	TLSPolicies *tlspolicies.Service `deps:"optional"`
	Blobs       *blob.Store          `deps:"optional"` // probed after a file could not be read
	Outbox      *capture.Outbox      // used by the capture transport
	Guard       *netguard.Guard      // for releases of captured emails to an address that a user gives
	Shares      *nodelimits.Shares   `deps:"optional"` // this node's shares of the limits; nil means the full limits

	Broadcasts Broadcasts // decides whether emails from a broadcast may still be sent

	// OnLimitRaised is called after this node's share of the limit for a job group has grown. The caller may then claim
	// more jobs in the group.
	OnLimitRaised func(group string)

	Observe func(Report) `deps:"optional"` // called after the outcome of each attempt was stored

	// Sessions is called for each new connection to a mail host that tried TLS, and for each attempt that a policy of
	// the recipient domain prevented. It must not block; nil if sessions are not counted.
	Sessions func(Session) `deps:"optional"`

	Log *slog.Logger
}

// Service delivers emails.
type Service struct {
	c                  Config
	p                  Deps
	dnssec             resolve.Secure // nil if DANE does not apply
	pool               *pool
	hosts              *hosts
	shape              *shaper
	guard              *netguard.Guard
	routes             atomic.Pointer[routing.Table]
	pauses             pauses
	schedule           atomic.Pointer[[]time.Duration] // waits between tries
	memory             *fairshare.Pool                 // bytes
	preparing          *fairshare.Turns
	signing            *fairshare.Turns
	signed             atomic.Uint64 // number of signatures; see yieldEvery
	shortGreeting      time.Duration
	suppressionsMaxAge time.Duration
	blobs              blobProbe
	reverse            *reverse
	answers            *answerCounts
	ipv6               atomic.Int64 // Unix time of the last IPv6 check, in seconds; negative if there was no IPv6 route
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	if _, ok := p.DNS.(resolve.Secure); c.DANE && !ok {
		return nil, fmt.Errorf("%T does not say whether answers were authenticated, so DANE cannot be obeyed", p.DNS)
	}
	return newService(c, p), nil
}

// newService is like New but does not check for missing dependencies. Tests use it.
func newService(c Config, p Deps) *Service {
	orDefault := func(n *int, fallback int) {
		if *n <= 0 {
			*n = fallback
		}
	}
	orDefault(&c.SMTPPort, 25)
	orDefault(&c.MaxConnections, 500)
	orDefault(&c.ConnectionMessages, 1000)
	orDefault(&c.Signers, 1)
	orDefault(&c.LaneConnections, 1)
	orDefault(&c.Workers, 16)
	if c.OwnHosts == nil {
		c.OwnHosts = []string{c.Hostname}
	}
	o := netguard.Options{}
	if c.AllowPrivate {
		o.AllowPrefixes = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	connections, known, shape := newPool(c.MaxConnections, c.ConnectionMessages), newHosts(c.LaneConnections),
		newShaper(c.LaneConnections, c.LaneRate)
	known.relayFull = c.MaxConnections
	known.useShares(p.Shares, connections)
	shape.useShares(p.Shares, p.OnLimitRaised)
	s := &Service{c: c, p: p, reverse: newReverse(), answers: newAnswerCounts(), pool: connections, hosts: known,
		shape: shape, guard: netguard.New(o),
		memory: fairshare.New(memory, memoryGreed), preparing: fairshare.NewTurns(c.Workers, c.Workers/8),
		signing: fairshare.NewTurns(c.Signers, 0), shortGreeting: shortGreeting, suppressionsMaxAge: suppressionsMaxAge}
	if c.DANE {
		s.dnssec, _ = p.DNS.(resolve.Secure)
	}
	s.Apply(c)
	shape.limitsOf = func(group string) routing.Limits { return s.routes.Load().Limits(group) }
	return s
}

// Kind returns the job kind for deliveries. All lanes to one destination share the destination's limits. Mail through
// the same relays has one destination, and so has mail for which the operator has set limits together.
func (s *Service) Kind() jobs.Kind {
	// Running jobs spend most of their time waiting for a host and use few resources. With few workers, a few stalled
	// hosts would block all other mail.
	k := jobs.Kind{Name: emails.DeliveryKind, Handle: s.deliver, Workers: max(s.c.MaxConnections, s.c.Workers,
		prefetch*s.c.LaneConnections),
		PerLane: max(prefetch*s.c.LaneConnections, s.c.MaxConnections), Group: s.group, Owner: emails.LaneTeam,
		Bulk: emails.IsBulk, Limit: s.limit, Share: s.share, Lease: lease, Schedule: errorSchedule()}
	if s.c.Transport == Relay { // Relays are the only destinations, so no workers are kept free for others.
		k.Share = nil
	}
	return k
}

// errorSchedule returns the waits after consecutive failures on our side, such as database failures. The waits add up
// to about fifty hours, as long as the longest possible delivery. After the last wait, an operator must act.
func errorSchedule() []time.Duration {
	all := []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute}
	for len(all) < 200 {
		all = append(all, 15*time.Minute)
	}
	return all
}

// group returns the destination whose limits a lane shares.
func (s *Service) group(lane string) string {
	domain := emails.Destination(lane)
	switch {
	case s.isSandbox(domain):
		return domain
	case s.c.Transport == Capture:
		return Capture
	}
	return s.routes.Load().Group(domain)
}

func (s *Service) limit(group string) (int, time.Time) {
	if s.contactsNoHost(group) {
		return s.c.LaneConnections, time.Time{}
	}
	return s.shape.limit(group, s.shape.now())
}

// contactsNoHost reports whether mail for a group gets its outcome without any contact with a host.
func (s *Service) contactsNoHost(group string) bool {
	return s.c.Transport == Capture || s.isSandbox(group)
}

// share returns how many of a team's jobs for a destination may be in progress at the same time. If no host is
// contacted, jobs cannot stall, so the only limit on jobs is the number of connections.
func (s *Service) share(group, team string) jobs.Share {
	if s.contactsNoHost(group) {
		return jobs.Share{Most: prefetch * s.c.LaneConnections}
	}
	return s.shape.share(group, team, s.shape.now())
}

// Run closes connections that are idle for too long, and looks up the PTR records of this node's addresses. When ctx
// ends, Run closes all idle connections and returns.
func (s *Service) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.runReverse(ctx) })
	s.pool.run(ctx)
	all.Wait()
	return nil
}
