// Package delivery brings emails to the hosts of their recipients.
//
// # One job
//
// A job is one email to one destination domain, with all its recipients there who are not settled. It goes plan ->
// talk -> judge: plan finds the addresses to try, talk speaks SMTP and comes back with an answer for each recipient,
// judge, which is pure, says what each answer means. Then one transaction ends or reschedules the job, keeps the
// conversation, and records the events. No transaction is open while the network is used, and what a host answers is
// data, not an error.
//
// # Guarantees
//
// At least once, never zero. A second copy comes only from a crash between a host's final 250 and our commit, or from a
// host that may have taken the message and whose answer did not arrive: that attempt's outcome is "unknown", and it is
// tried again, after the second time only hours later. The Message-ID and every other byte but the signatures stay the
// same, so a receiver can tell.
//
// # Failure
//
// Temporary refusals, and hosts that cannot be reached, are tried again by the schedule; after its last wait the
// email bounces as transient, which suppresses nobody. Only refusals that are the recipient's own and will last
// suppress; those for our address, reputation, content or size never do. A host that asks for less gets less: its
// lane is paused and narrowed (shaper), and widens again slowly. An address that does not answer is remembered for
// all destinations that lead to it, and left alone for longer each time (hosts). A failure of the database is an
// error of the job and comes back by the job's own schedule; it is never a bounce.
//
// A destination, and an address however many destinations lead to it, is given one connection of a team at first, and
// earns more by answering promptly (flow). What hangs keeps what it holds, as giving up after the final dot would
// send a copy, and gets no more; places are kept for destinations that answer (jobs.Share).
//
// # Teams
//
// No team's mail waits for what another team's hosts do. Teams share memory and seats, which are connections, as
// package fair says, and have turns at composing, signing, and at a destination. A job takes them in that order and
// holds nothing that another team may wait for while it waits for its own team's share: a destination's place comes
// last. Bulk mail has lanes and turns of its own (emails.Lane, jobs.Kind.Bulk): it never takes all of what its team may
// have, so that the team's other mail does not wait behind it.
//
// # What it does not do
//
// It does not decide who may send, but for the suppressions, at which it looks again before each try that does not
// follow acceptance within seconds. It does not read what comes back by mail. Several nodes keep the limits of
// connections and of the rate together, by shares (package quota); what a host asked one of them to do less of, or how
// it answers, each finds out for itself. MTA-STS and DANE are not looked up.
package delivery

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fair"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/quota"
)

// Transports, by which mail leaves.
const (
	Direct  = "direct"  // to the recipients' hosts
	Relay   = "relay"   // through one smarthost
	Capture = "capture" // kept and shown, never sent
)

// Config is what of the configuration concerns delivery.
type Config struct {
	Transport     string
	Hostname      string // in EHLO, and of return paths where the domain has none
	RelayAddr     string // host:port
	RelayUsername string
	RelayPassword string
	RelayTLS      smtpclient.TLSMode

	SMTPPort       int      // of direct delivery; 0 is 25
	OwnHosts       []string // names of MX hosts that lead back here; nil is Hostname
	SandboxDomains []string // of the test addresses
	AllowPrivate   bool     // direct delivery may reach addresses that are not public; for tests

	Schedule           []time.Duration // waits between tries; nil is twelve over 48 hours
	Workers            int             // messages composed and signed at once
	Signers            int             // of these, signed at once: a signature must not starve what accepts mail
	Unsigned           bool            // for measurements alone: what all but the signature costs
	LaneConnections    int             // to one destination
	LaneRate           float64         // messages a second to one destination; 0 is no limit
	MaxConnections     int             // to all destinations, idle ones included; 0 is 500
	ConnectionMessages int             // over one connection; 0 is 1,000

	RootCAs  *x509.CertPool // that verify hosts; nil is the system's
	Timeouts smtpclient.Timeouts
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil is a net.Dialer
}

// defaultSchedule spreads the tries over 48 hours.
var defaultSchedule = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	4 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour}

const (
	// memory is how many octets of messages may be in hand at once. One that is larger by itself goes alone. A team may
	// have as much as stays free, which is room enough for another's largest email.
	memory      = 256 << 20
	memoryGreed = 1
	// lease is for the waits before a conversation and the conversation: a job that has begun to talk should never
	// lose it.
	lease = 30 * time.Minute
	// talkMax is longer than the longest wait in a conversation, the ten minutes for the answer to a message.
	talkMax = 13 * time.Minute
	// planMax bounds the look-ups for one try.
	planMax = 2 * time.Minute
	// ahead is how many jobs of a fast destination are in hand for each connection: while one message is on its way,
	// others are composed and signed, and outcomes are written. A destination that is not fast gets one each, so that
	// what waits for it holds little memory.
	ahead = 4
)

// Parts are the rooms that delivery stands on.
type Parts struct {
	DB       *db.DB
	Queue    *jobs.Queue
	Recorder *events.Recorder
	Emails   *emails.Service
	Domains  *domains.Service
	Keys     *keyring.Keyring
	DNS      resolve.Resolver
	Blobs    *blob.Store   // of the capture transport
	Shares   *quota.Shares // of the limits that nodes keep together; nil is all of them

	// Grown is called when more jobs of a group may be in hand than before, because this node's share of a limit grew.
	Grown func(group string)

	Log *slog.Logger
}

// Service delivers.
type Service struct {
	c         Config
	p         Parts
	pool      *pool
	hosts     *hosts
	shape     *shaper
	outbox    *outbox
	guard     *netguard.Guard
	memory    *fair.Pool // octets
	preparing *fair.Turns
	signing   *fair.Turns
	hurried   time.Duration
	trusted   time.Duration
	ipv6      atomic.Int64 // when IPv6 was last looked for, in seconds, negative when there was none
}

// New returns the service.
func New(c Config, p Parts) *Service {
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
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Grown == nil {
		p.Grown = func(string) {}
	}
	o := netguard.Options{}
	if c.AllowPrivate {
		o.AllowPrefixes = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	connections, known, shape := newPool(c.MaxConnections, c.ConnectionMessages), newHosts(c.LaneConnections),
		newShaper(c.LaneConnections, c.LaneRate)
	known.keepTo(p.Shares, connections)
	shape.keepTo(p.Shares, p.Grown)
	if c.Transport == Relay {
		known.silentMax = silentFor // All mail waits for the relay, and no other host is any better.
	}
	return &Service{c: c, p: p, pool: connections, hosts: known,
		shape: shape, outbox: &outbox{blobs: p.Blobs}, guard: netguard.New(o),
		memory: fair.New(memory, memoryGreed), preparing: fair.NewTurns(c.Workers, c.Workers/8),
		signing: fair.NewTurns(c.Signers, 0), hurried: hurried, trusted: trusted}
}

// Kind is how delivery jobs are worked. All lanes to one destination share its limits; through a relay there is only
// one destination, the relay.
func (s *Service) Kind() jobs.Kind {
	// Jobs in hand mostly wait for a host, which costs next to nothing: were they few, a handful of hosts that stall
	// would hold up all others.
	return jobs.Kind{Name: emails.DeliveryKind, Handle: s.deliver, Workers: max(s.c.MaxConnections, s.c.Workers, ahead*s.c.LaneConnections),
		PerLane: ahead * s.c.LaneConnections, Group: s.group, Owner: emails.LaneTeam, Bulk: emails.IsBulk, Limit: s.limit,
		Share: s.share, Lease: lease, Schedule: errorSchedule()}
}

// errorSchedule is for failures of ours in a row, such as those of the database: some fifty hours, as long as any
// delivery, until an operator has to look.
func errorSchedule() []time.Duration {
	all := []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute}
	for len(all) < 200 {
		all = append(all, 15*time.Minute)
	}
	return all
}

// group is the destination whose limits a lane shares.
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
	if s.asksNobody(group) {
		return s.c.LaneConnections, time.Time{}
	}
	return s.shape.limit(group, time.Now())
}

// asksNobody reports whether mail for a group comes to its end without any host.
func (s *Service) asksNobody(group string) bool {
	return s.c.Transport == Capture || s.isSandbox(group)
}

// share says how much of a destination's mail a team may have in hand. Where no host is asked nothing can stall.
func (s *Service) share(group, team string) jobs.Share {
	if s.asksNobody(group) {
		return jobs.Share{Most: ahead * s.c.LaneConnections}
	}
	return s.shape.share(group, team, time.Now())
}

// Run closes idle connections until ctx ends, and then all that are idle.
func (s *Service) Run(ctx context.Context) error {
	s.pool.run(ctx)
	return nil
}
