// Package submission accepts mail from customers' programs over SMTP (RFC 6409) and turns each message into an email.
//
// # Invariants
//
// A client authenticates with an API key as its password; the user name may be anything but empty. One message is one
// email, as if it had been sent over the API: the same rules, rate limit, suppressions, events and answers. The
// recipients of the envelope decide who receives it. From, and every other field that names a sender, is parsed
// strictly and must be at one verified domain, so that all readers see the sender that the signature is for. The
// message is sent octet by octet as it came, except for the fields that must be removed (Bcc, Return-Path,
// Authentication-Results, the fields that are options of this service) and added (Received, and Date and Message-ID
// if they are missing; DKIM, the proof for complaints and the return path at delivery). It is answered 250 only when
// the email is on disk.
//
// # When it fails
//
// A message that breaks a rule is refused with the sentence of the API and a code that says whether trying again may
// help: 4xx for failures of this service and temporary conditions, 5xx for what the client must change. A deleted key
// or a suspended team takes effect with the next message, also on an open connection.
//
// # What it does not do
//
// It relays for nobody without a key, ignores the sender of the envelope (bounces come back to us), and has no
// schedules, templates and batches.
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
	guessesPerSecond = 30 // requests with a wrong password from one address, as over the API
	// MaxRecipients is for one message: each kind has its own limit, and over SMTP the kinds come together.
	MaxRecipients = 3 * emails.MaxRecipients
	smallMessage  = 256 << 10 // octets that any connection may keep in memory
	bigMessages   = 8         // larger messages in memory at once; others wait
)

// Config configures a Service.
type Config struct {
	Hostname  string // of this node, for trace fields
	RateLimit int    // messages and requests a second of a team without a limit of its own; 0 is no limit
	MaxSize   int64  // octets of a message
	Spool     string // folder for large messages while they come in; the nodes of a machine may share it
}

// Parts are the services that submission uses.
type Parts struct {
	Teams  *teams.Service
	Emails *emails.Service
	Limits *teams.Limiter // shared with the API
}

// Service is the [smtpserver.Handler] of submission.
type Service struct {
	c     Config
	p     Parts
	guess teams.Limiter   // counts wrong passwords, by address
	big   *fairshare.Pool // places for large messages, shared among teams
	spool spool
}

// New returns the service. It makes the spool folder, and removes the files that a killed process left there.
func New(c Config, p Parts) (*Service, error) {
	spool, err := openSpool(c.Spool)
	if err != nil {
		return nil, err
	}
	return &Service{c: c, p: p, big: fairshare.New(bigMessages, fairshare.Greed), spool: spool}, nil
}

// Open begins a session.
func (s *Service) Open(_ context.Context, p smtpserver.Peer) (smtpserver.Session, error) {
	return &session{s: s, peer: p}, nil
}

// session is the conversation with one client.
type session struct {
	s    *Service
	peer smtpserver.Peer

	token   string // the API key; empty before AUTH
	who     teams.Actor
	options smtpserver.MailOptions
	to      []message.Address
}

// Auth checks an API key, which is the password.
func (c *session) Auth(ctx context.Context, username, password string) error {
	if username == "" || password == "" {
		return smtpserver.Refuse(535, "5.7.8", "Use the user name postrider and an API key as the password")
	}
	from := c.address()
	if c.s.guess.Over(from, guessesPerSecond) && !c.s.p.Teams.IsCached(password) {
		return smtpserver.Refuse(454, "4.7.0", "Too many unknown API keys, try again in a second")
	}
	who, err := c.s.p.Teams.Authenticate(ctx, password)
	if fault.KindOf(err) == fault.BadCredential {
		c.s.guess.Count(from, guessesPerSecond)
	}
	if err == nil {
		err = who.At(teams.APIResource)
	}
	if err != nil {
		return refusal(err)
	}
	c.token, c.who = password, who
	return nil
}

// authenticated checks the key again: it may have been deleted since, or its team suspended.
func (c *session) authenticated(ctx context.Context) (err error) {
	if c.who, err = c.s.p.Teams.Authenticate(ctx, c.token); err != nil {
		return refusal(err)
	}
	if c.who.Suspended {
		return refusal(fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why."))
	}
	if err = c.who.Require(teams.EmailsSend); err != nil {
		return refusal(err)
	}
	return nil
}

// address returns the address by which guesses are counted: an IPv6 network of 64 bits belongs to one customer.
func (c *session) address() string {
	a := c.peer.Addr.Addr()
	if a.Is6() {
		return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
	}
	return a.String()
}

// Mail begins a message if the rate limit of the team allows it.
func (c *session) Mail(ctx context.Context, _ string, o smtpserver.MailOptions) (err error) {
	if c.token == "" {
		return smtpserver.Refuse(530, "5.7.0", "Authentication required: the user name is postrider, the password an API key")
	}
	if err := c.authenticated(ctx); err != nil {
		return err
	}
	limit := cmp.Or(c.who.RateLimit, c.s.c.RateLimit)
	if limit > 0 {
		if _, ok := c.s.p.Limits.Count(c.who.TeamID, limit); !ok {
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
func (c *session) Close() { c.token, c.who = "", teams.Actor{} }
