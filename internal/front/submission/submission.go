// Package submission accepts mail from customers' programs over SMTP (RFC 6409) and turns each message into an email.
//
// # Invariants
//
// A client authenticates with an API key as its password. The user name can be anything except empty.
//
// Each message becomes one email, with the same rules, rate limit, suppressions, events and errors as over the API. The
// recipients of the envelope receive it. From and all other fields that name a sender are parsed strictly and must
// belong to one verified domain. Strict parsing ensures that all readers see the sender that the signature covers.
//
// The message is sent byte for byte as it was submitted, except for a few fields. Bcc, Return-Path,
// Authentication-Results and the fields that are options of this service are removed. Received is added, and so are
// Date and Message-ID if they are missing; delivery adds DKIM, the proof for complaints and the return path. The client
// gets 250 only after the email is on disk.
//
// # When it fails
//
// If a message breaks a rule, the reply contains the message of the API's error. The code of the reply says whether a
// retry may help: 4xx for temporary conditions and failures of this service, 5xx for what the client must change. A
// deleted key or a suspended team takes effect with the next message, even on an open connection.
//
// # What it does not do
//
// The package does not relay without a key. It ignores the sender of the envelope, because all bounces go to
// Postrider's own return path. It has no schedules, templates or batches.
package submission

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	wrongKeysPerSecond = 30 // attempts with a wrong key from one address, as over the API
	// MaxRecipients is the maximum number of recipients of a message. The API limits to, cc and bcc separately; over
	// SMTP, all count together.
	MaxRecipients = 3 * emails.MaxRecipients
	smallMessage  = 256 << 10 // bytes of a message that may stay in memory while it arrives
	largeMessages = 8         // larger messages in memory at the same time; others wait
)

// Config configures a Service.
type Config struct {
	Hostname  string // name of this node, for trace fields
	RateLimit int    // messages and requests a second for teams without a limit of their own; 0 means no limit
	MaxSize   int64  // bytes of a message
	Spool     string // folder for large messages while they arrive; nodes on one machine may share it
}

// Deps are the dependencies of a Service.
type Deps struct {
	Teams  *teams.Service
	Emails *emails.Service
	Limits *teams.Limiter // shared with the API
}

// Service is the [smtpserver.Handler] of submission.
type Service struct {
	c          Config
	p          Deps
	wrongKeys  teams.Limiter   // counts wrong keys by address
	largeSlots *fairshare.Pool // slots for large messages, shared among teams
	spool      spool
}

// New returns the service. It creates the spool folder, and removes files that an earlier process left in it.
// It fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d)
}

// newService is New without the check, for tests that need few dependencies.
func newService(c Config, d Deps) (*Service, error) {
	spool, err := newSpool(c.Spool)
	if err != nil {
		return nil, err
	}
	return &Service{c: c, p: d, largeSlots: fairshare.New(largeMessages, fairshare.Greed), spool: spool}, nil
}

// Open begins a session.
func (s *Service) Open(_ context.Context, p smtpserver.Peer) (smtpserver.Session, error) {
	return &session{s: s, peer: p}, nil
}

// session is a session with one client.
type session struct {
	s    *Service
	peer smtpserver.Peer

	token   string // the API key; empty before AUTH
	actor   teams.Actor
	options smtpserver.MailOptions
	to      []message.Address
}

// Auth checks the password, which must be an API key.
func (c *session) Auth(ctx context.Context, username, password string) error {
	if username == "" || password == "" {
		return smtpserver.Refuse(535, "5.7.8", "Use the user name postrider and an API key as the password")
	}
	from := c.address()
	if c.s.wrongKeys.Over(from, wrongKeysPerSecond) && !c.s.p.Teams.IsCached(password) {
		return smtpserver.Refuse(454, "4.7.0", "Too many unknown API keys, try again in a second")
	}
	actor, err := c.s.p.Teams.Authenticate(ctx, password)
	if fault.KindOf(err) == fault.BadCredential {
		c.s.wrongKeys.Count(from, wrongKeysPerSecond)
	}
	if err == nil {
		err = actor.At(teams.APIResource)
	}
	if err != nil {
		return refusal(err)
	}
	c.token, c.actor = password, actor
	return nil
}

// checkKey checks the API key again, because the key may have been deleted or its team suspended since.
func (c *session) checkKey(ctx context.Context) (err error) {
	if c.actor, err = c.s.p.Teams.Authenticate(ctx, c.token); err != nil {
		return refusal(err)
	}
	if c.actor.Suspended {
		return refusal(fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why."))
	}
	if err = c.actor.Require(teams.EmailsSend); err != nil {
		return refusal(err)
	}
	return nil
}

// address returns the address or network by which wrong keys are counted. IPv6 addresses are counted per /64, because
// such a network belongs to one customer.
func (c *session) address() string {
	a := c.peer.Addr.Addr()
	if a.Is6() {
		return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
	}
	return a.String()
}

// Mail begins a message if the team's rate limit allows it.
func (c *session) Mail(ctx context.Context, _ string, o smtpserver.MailOptions) (err error) {
	if c.token == "" {
		return smtpserver.Refuse(530, "5.7.0", "Authentication required: the user name is postrider, the password an API key")
	}
	if err := c.checkKey(ctx); err != nil {
		return err
	}
	limit := cmp.Or(c.actor.RateLimit, c.s.c.RateLimit)
	if limit > 0 {
		if _, ok := c.s.p.Limits.Count(c.actor.TeamID, limit); !ok {
			return refusal(fault.New(fault.TooFast, "",
				"Too many requests: this team may make %d a second. Wait a second and try again.",
				limit))
		}
	}
	c.options = o
	return nil
}

// Rcpt adds a recipient.
func (c *session) Rcpt(_ context.Context, to string) error {
	a, err := message.ParseAddress(to)
	if err != nil {
		return smtpserver.Refuse(553, "5.1.3", "%s", err)
	}
	c.to = append(c.to, a)
	return nil
}

// Reset discards the current message.
func (c *session) Reset() { c.options, c.to = smtpserver.MailOptions{}, nil }

// Close ends the conversation.
func (c *session) Close() { c.token, c.actor = "", teams.Actor{} }
