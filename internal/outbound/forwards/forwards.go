// Package forwards forwards the mail of receiving domains to other addresses and to webhooks, by rules of the domains'
// teams.
//
// # Life of a forwarded message
//
// [Service.Arrived] inserts a job for each matching rule, in the transaction that stores a received message. The job
// checks the message and the rule, seals the message (ARC), and accepts it as an email of the team, in the transaction
// that ends the job ([emails.Service.Forward]). From then on the message is delivered like any other email. A rule with
// a URL posts the payload of email.received instead, signed with the secret of the rule.
//
// # Invariants
//
// A message is forwarded at least once, or stopped with a reason that its rule shows, with two exceptions. A rule that
// is switched off or deleted meanwhile drops the messages that wait. A job that fails by a fault of this installation
// for about ten hours is parked, and the operator can repeat it. After a crash, a second copy with the same Message-ID
// may be sent. The message itself is not changed: fields are only written above it, so that the signatures of its
// author stay valid. Its return path belongs to this installation, so that bounces reach the rule.
//
// An address gets mail only after its owner confirmed it for this team. The answer covers the rules that existed when
// the confirmation email was written. A later rule waits for another answer. The match of a rule with an address can
// only become narrower. The owner can refuse at any time. An address gets at most one confirmation email per day from
// all teams together. After a refusal, it gets none from that team.
//
// Mail loops are prevented: stopReason stops messages with the mark of their rule, messages that [maxHops] rules have
// forwarded, bounces, and automatic replies.
//
// A forwarded email is deleted with the received email that it copies ([Service.RemoveBefore]).
//
// Bounces and complaints of forwarded messages suppress no address. A rule that has only failed for [failingFor] is
// switched off, and its team gets a notice.
//
// # Failures
//
// While a team is suspended or its quota is used up, and after more than [perHour] messages in an hour, the jobs of its
// rules wait for up to [waitFor]. While DNS does not answer, a message waits up to an hour for the check of its ARC
// chain; then it is forwarded without a seal.
//
// # Out of scope
//
// The package does not receive mail, and does not connect to mail hosts.
package forwards

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/signing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Limits of rules and of what they forward.
const (
	MaxPerDomain = 100
	MaxPerTeam   = 500
	maxHops      = 5    // rules that may forward a message, counted by loopField
	perHour      = 1000 // messages of a rule
	asksPerDay   = 20   // confirmation mails of a team
	targetsMax   = 1000 // addresses of a team, including those whose owners refused

	askEvery   = 24 * time.Hour     // between two confirmation mails to an address
	lookFirst  = 5 * time.Minute    // between looks whether the domains of the rules may receive, at first
	lookLatest = time.Hour          // between later looks
	confirmFor = 7 * 24 * time.Hour // validity of a confirmation link
	waitFor    = 24 * time.Hour     // maximum wait of a message whose rule may not forward at present
	failingFor = 3 * 24 * time.Hour // time after which a rule that only fails is switched off
)

// Any is the local part of rules that match every address at their domain.
const Any = "*"

// State is the state of a rule.
type State string

// The states of rules.
const (
	Waiting  State = "waiting_for_confirmation"
	Refused  State = "refused" // by the owner of the address
	Active   State = "active"
	Failing  State = "failing" // permanent failures since the last success
	Disabled State = "disabled"
)

// Rule forwards mail for an address at a domain.
type Rule struct {
	ID, TeamID, DomainID string
	Local                string // in lower case, or [Any]
	Address              string // "" if the rule has a URL
	URL                  string // "" if the rule has an address
	Enabled              bool
	CreatedAt            time.Time

	Forwarded, Failed, Stopped int64
	Reason                     string // why the last message failed or was stopped, as text for users; "" if none was
	ReasonAt                   time.Time
	FailingSince               time.Time // zero if the last message succeeded
	// AskedAt is the time of the last confirmation mail that covers the rule; zero if none was sent yet. If the address
	// got one, also because of an earlier rule, the next one is not sent before AskAfter.
	AskedAt, AskAfter time.Time
	// Secret is the signing secret of a rule with a URL: whsec_ followed by base64. Only Create and GetSecret set it.
	Secret string

	target    string
	consent   consent
	agreed    time.Time // the consent covers rules created until then
	hour      int64
	hourCount int
	secret    signing.Secret
}

// setAsked sets AskedAt and AskAfter from the time of the last confirmation mail to the rule's address.
func (r *Rule) setAsked(last time.Time) {
	if last.IsZero() {
		return
	}
	if !last.Before(r.CreatedAt) {
		r.AskedAt = last
	}
	r.AskAfter = last.Add(askEvery)
}

// State returns the state of the rule.
func (r Rule) State() State {
	switch {
	case !r.Enabled:
		return Disabled
	case r.Address != "" && r.consent == refused:
		return Refused
	case r.Address != "" && (r.consent != confirmed || r.CreatedAt.After(r.agreed)):
		return Waiting
	case !r.FailingSince.IsZero():
		return Failing
	}
	return Active
}

// HideURL returns the rule with a mask in place of the query of its URL, which may contain credentials.
func (r Rule) HideURL() Rule {
	r.URL = requestlog.HideURL(r.URL)
	return r
}

// Matches reports whether the rule is for a local part.
func (r *Rule) Matches(local string) bool { return r.Local == Any || r.Local == strings.ToLower(local) }

// Message is a received message.
type Message struct {
	From, Subject, MessageID string
	MailFrom                 string // "" for the null return path
	UTF8                     bool   // whether it arrived with SMTPUTF8
	Spam                     string // why the content filter marked the message as spam; "" if it did not
	Authentication           *authres.Results
	Raw                      []byte // without the Return-Path field
	// TraceBytes is the length of the Received field that this installation added at the beginning of Raw.
	TraceBytes int
	Close      func() // releases the memory of Raw
}

// Config holds the settings of the service.
type Config struct {
	Hostname  string        // in the fields that are added
	SealTime  time.Duration // time limit for the verification of an ARC chain; 0 means ten seconds
	PublicURL string        // prefix of the links in confirmation mails
	Now       func() time.Time
}

// Deps holds what the service uses.
type Deps struct {
	DB      *db.DB
	Queue   *jobs.Queue
	Keys    *keyring.Keyring
	Domains *domains.Service
	Emails  *emails.Service
	Teams   *teams.Service
	Log     *slog.Logger

	// LookupTXT looks up the keys of earlier ARC seals.
	LookupTXT arc.LookupTXT
	// Received returns a received email of a team, or a NotFound fault.
	Received func(ctx context.Context, teamID, emailID string) (Message, error)
	// Payload returns the payload of email.received for a received email.
	Payload func(ctx context.Context, teamID, emailID string) (string, error)
	// CheckURL validates the URL of a webhook; Call posts to it, as package webhooks does, and signs with the keys.
	CheckURL func(field, url string) (string, error)
	Call     func(ctx context.Context, teamID, id, url string, body []byte, keys [][]byte) (status int, err error)
	// Notify enqueues a notice to a team.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
	// Mail enqueues an email to one person; nil if the operator has set no sender for notices.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error `deps:"optional"`
}

// Service owns the rules and forwards messages. It is safe for concurrent use.
type Service struct {
	c Config
	p Deps

	mu    sync.Mutex
	empty map[string]time.Time // domains without rules, with the time of the look-up
}

// topic is the topic of hints that the rules of a domain have changed. The payload is the domain's id.
const topic = "forwards"

// emptyFor is how long a node remembers that a domain has no rules. It bounds the delay if a hint is lost.
const emptyFor = 15 * time.Second

// New returns the service.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = p.DB.Now
	}
	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	c.Hostname = cmp.Or(c.Hostname, "localhost")
	c.SealTime = cmp.Or(c.SealTime, sealTime)
	s := &Service{c: c, p: p, empty: map[string]time.Time{}}
	p.DB.OnHint(topic, func(domainID string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.empty, domainID)
	})
	return s, nil
}

// knownEmpty reports whether a look-up within emptyFor found no rule of a domain. It saves most messages a query.
func (s *Service) knownEmpty(domainID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.empty[domainID]
	return ok && time.Since(at) < emptyFor
}

// setEmpty remembers that a domain had no rule at a time.
func (s *Service) setEmpty(domainID string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.empty) >= 100_000 {
		clear(s.empty)
	}
	s.empty[domainID] = at
}

// Kinds returns the kinds of the service's jobs.
func (s *Service) Kinds() []jobs.Kind {
	waits := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour}
	return []jobs.Kind{
		{Name: forwardKind, Handle: s.forward, Workers: 8, PerLane: 4, Lease: 5 * time.Minute, Schedule: waits},
		{Name: callKind, Handle: s.call, Workers: 16, PerLane: 4, Owner: callTeam, Lease: callLease, Schedule: waits},
		{Name: askKind, Handle: s.ask, Workers: 2, PerLane: 1, Lease: time.Minute, Schedule: waits},
	}
}
