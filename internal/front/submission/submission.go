// Package submission accepts mail from customers' programs over SMTP (RFC 6409) and converts each message to an email.
//
// # Invariants
//
// A client uses an API key as its password. Any non-empty user name is accepted.
//
// Each message becomes one email to the envelope's recipients, with the same rules, rate limit, suppressions, events
// and errors as in the API. From and all other sender fields are parsed strictly and must belong to one verified
// domain. Strict parsing ensures that all mail programs show the sender that the DKIM signature covers.
//
// The message is sent byte for byte as it was submitted, except for a few fields. Bcc, Return-Path,
// Authentication-Results and the fields that set options for the service are removed. Received is added, as are missing
// Date and Message-ID fields. Delivery adds the DKIM signature, the proof used for complaints, and the return path. The
// client gets the reply 250 only after the email is on disk.
//
// # Failures
//
// If a message is refused, the SMTP reply contains the error message that the API would return. The reply code is 4xx
// for temporary conditions and internal failures, and 5xx for errors that the client must correct. When a key is
// deleted or a team is suspended, the change takes effect with the next message, even on an open connection.
//
// # Out of scope
//
// Package submission does not relay mail without an API key. The envelope sender is ignored, because all bounces go to
// Postrider's own return path. Scheduled emails, templates and batches are not available over SMTP.
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
	wrongKeysPerSecond = 30 // limit on attempts with a wrong key per client address, as in the API
	// MaxRecipients is the maximum number of recipients of a message. The API has separate limits for to, cc and bcc. Over
	// SMTP, a single limit applies to all recipients of a message.
	MaxRecipients = 3 * emails.MaxRecipients
	smallMessage  = 256 << 10 // messages up to this size in bytes stay in memory while they arrive
	largeMessages = 8         // maximum number of larger messages in memory at a time
)

// Config configures a Service.
type Config struct {
	Hostname  string // this node's name in trace fields
	RateLimit int    // default limit on a team's messages and API requests per second; 0 means no limit
	MaxSize   int64  // maximum size of a message in bytes
	Spool     string // folder for large messages while they arrive; nodes on one machine may share it
}

// Deps holds the dependencies of a Service.
type Deps struct {
	Teams  *teams.Service
	Emails *emails.Service
	Limits *teams.Limiter // shared with the API
}

// Service is the [smtpserver.Handler] for submission.
type Service struct {
	c          Config
	p          Deps
	wrongKeys  teams.Limiter   // counts attempts with wrong keys per address
	largeSlots *fairshare.Pool // slots for large messages, shared among teams
	spool      spool
}

// New returns the submission service. The spool folder is created, and files that an earlier process left there are
// removed. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d)
}

// newService is like New, but does not check for missing dependencies, because some tests need only a few of them.
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

// session is an SMTP session with one client.
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

// checkKey checks the API key again, because it may have been deleted after authentication, and checks that the team is
// not suspended.
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

// address returns the IP address or network by which attempts with wrong keys are counted. IPv6 addresses are counted
// per /64, because a /64 network usually belongs to one customer.
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
	limit := cmp.Or(c.actor.RateLimit, c.s.p.Limits.Default(c.s.c.RateLimit))
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

// Close ends the session.
func (c *session) Close() { c.token, c.actor = "", teams.Actor{} }
