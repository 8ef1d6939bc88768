// Package delivery delivers emails to the mail hosts of their recipients, to a relay, or to a local outbox.
//
// A job is one email to one destination domain, with all its recipients there that are not settled. A job goes through
// plan, talk and judge. plan finds the addresses to try. talk speaks SMTP and returns an answer for each recipient.
// judge, a pure function, decides what each answer means. One transaction then finishes or reschedules the job, stores
// the conversation, and records the events.
//
// # Invariants
//
// Every accepted email is delivered at least once, or ends with an event that says why not. After some fifty hours of
// errors on our side its job is parked and waits for an operator.
//
// A second copy is sent only in two cases. In the first, the node crashes or is declared dead between a host's final
// 250 and our commit. In the second, a host may have accepted the message, but its answer did not arrive. The outcome
// of such an attempt is "unknown". After the second unknown outcome, the next try waits for hours. The Message-ID and
// all other bytes except the signatures stay the same, so that receivers can recognize copies.
//
// No transaction is open while the network is used. The answer of a host is data, never an error.
//
// No team's mail waits for the hosts of another team. Teams share memory and connections, as package fairshare
// describes. Teams take turns at composing, at signing, and at a destination. A job acquires memory, then a turn to
// compose and to sign, then a connection permit, and last a slot at the destination. While a job waits for its own
// team's share, it holds nothing that another team may need. Bulk mail has lanes and turns of its own (emails.Lane,
// jobs.Kind.Bulk). It never uses its team's whole share, so that the team's other mail does not wait behind it.
//
// # When it fails
//
// Temporary refusals, and hosts that cannot be reached, are retried by the schedule. After the last wait the email
// bounces as transient, which suppresses no address. Only a permanent refusal that concerns the recipient suppresses
// the address; a refusal of our address, reputation, content or size does not.
//
// A destination that asks for less mail is paused and gets fewer connections, which are restored slowly (shaper). An
// address that does not answer is remembered for all destinations that lead to it, and is not tried for a time that
// grows with each failure (hosts). A database failure is an error of the job, which is retried by the job's own
// schedule. A database failure is never a bounce.
//
// At first a team has one connection to a destination. Prompt answers allow more connections (window). An address has
// such a window too, even if many destinations lead to it. A conversation that hangs keeps its connection, because
// giving up after the final dot would send a copy, but it allows no further connections. Some connections are reserved
// for destinations that answer (jobs.Share).
//
// # What it does not do
//
// The package does not decide who may send. Before each try, the package checks the suppressions again, unless they
// were read within the last seconds. It does not read bounces that arrive by mail. Nodes divide the limits of
// connections and of the rate (package nodelimits), but each node learns separately which hosts asked for less mail,
// and how they answer. MTA-STS and DANE are not supported.
package delivery

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
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
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The transports.
const (
	Direct  = "direct"  // delivery to the mail hosts of the recipients
	Relay   = "relay"   // through one smarthost
	Capture = "capture" // stored in an outbox, never sent
)

// Config is the part of the configuration that concerns delivery.
type Config struct {
	Transport     string
	Hostname      string // name in EHLO, and in return paths if the domain has no host for them
	RelayAddr     string // host:port
	RelayUsername string
	RelayPassword string
	RelayTLS      smtpclient.TLSMode

	SMTPPort       int      // port of direct delivery; 0 is 25
	OwnHosts       []string // names of MX hosts that lead back to this server; nil means Hostname
	SandboxDomains []string // of test addresses
	AllowPrivate   bool     // direct delivery may reach addresses that are not public; for tests

	Schedule           []time.Duration // waits between tries; nil is twelve over 48 hours
	Workers            int             // messages composed and signed at once
	Signers            int             // messages signed at once; fewer than Workers, to leave time for accepting mail
	Unsigned           bool            // for measurements only: skips the signatures
	LaneConnections    int             // to one destination
	LaneRate           float64         // messages a second to one destination; 0 is no limit
	MaxConnections     int             // connections to all destinations, idle ones included; 0 is 500
	ConnectionMessages int             // messages over one connection; 0 is 1,000

	RootCAs  *x509.CertPool // certificates to verify hosts; nil means the system's
	Timeouts smtpclient.Timeouts
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil means a net.Dialer
}

// defaultSchedule spreads the tries over 48 hours.
var defaultSchedule = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
	2 * time.Hour,
	4 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour}

const (
	// memory is how many bytes of messages may be in memory at once. A larger message is sent alone. A team may use as
	// much as stays free, which leaves enough for another team's largest email.
	memory      = 256 << 20
	memoryGreed = 1
	// lease covers the waits before a conversation and the conversation itself: a job that talks to a host must not
	// lose its lease.
	lease = 30 * time.Minute
	// talkMax is longer than the longest wait in a conversation: the answer to a message may take ten minutes.
	talkMax = 13 * time.Minute
	// planMax bounds the DNS look-ups of one try.
	planMax = 2 * time.Minute
	// prefetch is how many jobs of a fast destination are claimed for each connection. While one message is sent, the
	// node composes and signs others and records outcomes. A destination that is not fast gets one job for each
	// connection, so that its waiting messages use little memory.
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
	Blobs    *blob.Store        `deps:"optional"` // store of the capture transport
	Shares   *nodelimits.Shares `deps:"optional"` // this node's shares of limits; nil means that it has all of each limit

	Broadcasts Broadcasts // decides whether emails of broadcasts are still sent

	// OnLimitRaised is called with a group of jobs when this node's share of the group's limit has grown, so that more
	// of its jobs may be claimed.
	OnLimitRaised func(group string)

	Log *slog.Logger
}

// Service delivers emails.
type Service struct {
	c                  Config
	p                  Deps
	pool               *pool
	hosts              *hosts
	shape              *shaper
	outbox             *outbox
	guard              *netguard.Guard
	memory             *fairshare.Pool // bytes
	preparing          *fairshare.Turns
	signing            *fairshare.Turns
	shortGreeting      time.Duration
	suppressionsMaxAge time.Duration
	ipv6               atomic.Int64 // time of the last check for IPv6, in Unix seconds; negative if there was no route
}

// New returns the service. It fails if a dependency is missing.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	return newService(c, p), nil
}

// newService is New without the check, for tests that need few dependencies.
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
	if len(c.Schedule) == 0 {
		c.Schedule = defaultSchedule
	}
	if c.OwnHosts == nil {
		c.OwnHosts = []string{c.Hostname}
	}
	o := netguard.Options{}
	if c.AllowPrivate {
		o.AllowPrefixes = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	connections, known, shape := newPool(c.MaxConnections, c.ConnectionMessages), newHosts(c.LaneConnections),
		newShaper(c.LaneConnections, c.LaneRate)
	known.useShares(p.Shares, connections)
	shape.useShares(p.Shares, p.OnLimitRaised)
	if c.Transport == Relay {
		known.backoffMax = backoffFirst // all mail waits for the relay, as it has no other host
	}
	return &Service{c: c, p: p, pool: connections, hosts: known,
		shape: shape, outbox: &outbox{blobs: p.Blobs}, guard: netguard.New(o),
		memory: fairshare.New(memory, memoryGreed), preparing: fairshare.NewTurns(c.Workers, c.Workers/8),
		signing: fairshare.NewTurns(c.Signers, 0), shortGreeting: shortGreeting, suppressionsMaxAge: suppressionsMaxAge}
}

// Kind returns the kind of delivery jobs. All lanes to one destination share its limits. With a relay, the relay is
// the only destination.
func (s *Service) Kind() jobs.Kind {
	// Jobs in progress mostly wait for a host, which costs next to nothing. With few workers, some stalling hosts would
	// block all other mail.
	return jobs.Kind{Name: emails.DeliveryKind, Handle: s.deliver, Workers: max(s.c.MaxConnections, s.c.Workers,
		prefetch*s.c.LaneConnections),
		PerLane: prefetch * s.c.LaneConnections, Group: s.group, Owner: emails.LaneTeam, Bulk: emails.IsBulk, Limit: s.limit,
		Share: s.share, Lease: lease, Schedule: errorSchedule()}
}

// errorSchedule returns the waits after consecutive failures on our side, such as those of the database. The waits last
// some fifty hours, as long as any delivery. After the last wait an operator must act.
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
	case s.c.Transport == Relay:
		return s.c.RelayAddr
	case s.c.Transport == Capture:
		return Capture
	}
	return domain
}

func (s *Service) limit(group string) (int, time.Time) {
	if s.contactsNoHost(group) {
		return s.c.LaneConnections, time.Time{}
	}
	return s.shape.limit(group, time.Now())
}

// contactsNoHost reports whether mail for a group is settled without contacting a host.
func (s *Service) contactsNoHost(group string) bool {
	return s.c.Transport == Capture || s.isSandbox(group)
}

// share returns how many of a team's jobs for a destination may be in progress. If no host is contacted, nothing can
// stall, so only the number of connections limits them.
func (s *Service) share(group, team string) jobs.Share {
	if s.contactsNoHost(group) {
		return jobs.Share{Most: prefetch * s.c.LaneConnections}
	}
	return s.shape.share(group, team, time.Now())
}

// Run closes connections that are idle for too long. When ctx ends, it closes all idle connections and returns.
func (s *Service) Run(ctx context.Context) error {
	s.pool.run(ctx)
	return nil
}
