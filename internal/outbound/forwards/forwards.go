// Package forwards forwards the mail of receiving domains to other addresses and to webhooks, by rules of the domains'
// teams.
//
// # Life of a forwarded message
//
// [Service.Arrived] inserts a job for each matching rule, in the transaction that stores a received message. The job
// checks the message and the rule, seals the message (ARC), and accepts it as an email of the team, in the transaction
// that ends the job ([emails.Service.Forward]). From then on the message is delivered like any other email. A rule with
// a URL posts the payload of email.received instead.
//
// # Invariants
//
// A message is forwarded at least once or stopped with a reason that its rule shows. A second copy, after a crash
// between two transactions, has the same Message-ID. The message itself is not changed: fields are only written above
// it, so that the signatures of its author stay valid. Its return path is ours, so that bounces come back to the rule.
//
// An address gets mail only after its owner confirmed it for this team. The answer covers the rules that existed when
// the confirmation mail was written; the match of a rule with an address can therefore only become narrower, and a later
// rule waits for another answer. The owner can refuse at any time. An address
// gets at most one confirmation mail per day from all teams together, and a refused address gets none from that team.
//
// Nothing goes in a circle: messages that carry the mark of their rule, that passed through [maxHops] rules, and
// bounces and automatic replies are stopped (see stopReason).
//
// A forwarded email is deleted with the received email that it copies ([Service.RemoveBefore]).
//
// What happens to a forwarded message suppresses no address. A rule that only fails for [failingFor] is switched off,
// and its team gets a notice.
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
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Limits of rules and of what they forward.
const (
	MaxPerDomain = 100
	MaxPerTeam   = 500
	maxHops      = 5    // of our own, counted by loopField
	perHour      = 1000 // messages of a rule
	asksPerDay   = 20   // confirmation mails of a team
	targetsMax   = 1000 // addresses of a team, with those that refused

	askEvery   = 24 * time.Hour     // between two confirmation mails to an address
	confirmFor = 7 * 24 * time.Hour // validity of a confirmation link
	waitFor    = 24 * time.Hour     // of a message whose rule may not forward at present
	failingFor = 3 * 24 * time.Hour // after which a rule that only fails is switched off
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
	Reason                     string // of the last failure or stop, for people; "" if there was none
	ReasonAt                   time.Time
	FailingSince               time.Time // zero if the last message succeeded
	AskedAt                    time.Time // of the last confirmation mail; zero if none was sent yet

	target    string
	consent   consent
	agreed    time.Time // the owner confirmed rules that were created until then
	hour      int64
	hourCount int
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

// Matches reports whether the rule is for a local part.
func (r *Rule) Matches(local string) bool { return r.Local == Any || r.Local == strings.ToLower(local) }

// Message is a received message.
type Message struct {
	From, Subject, MessageID string
	MailFrom                 string // "" for the null return path
	UTF8                     bool   // whether it arrived with SMTPUTF8
	Spam                     string // what the content filter says about spam; "" if it is none
	Authentication           *authres.Results
	Raw                      []byte // without the Return-Path field
	// TraceBytes is the length of the Received field that this installation added at the beginning of Raw.
	TraceBytes int
	Close      func() // releases the memory of Raw
}

// Config holds the settings of the service.
type Config struct {
	Hostname  string // in the fields that are added
	PublicURL string // prefix of the links in confirmation mails
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
	// CheckURL validates the URL of a webhook; Call posts to it, as package webhooks does.
	CheckURL func(field, url string) (string, error)
	Call     func(ctx context.Context, teamID, id, url string, body []byte) (status int, err error)
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
	empty map[string]time.Time // domains that had no rule at a time
}

// topic is the topic of hints that a domain has a new rule. The payload is the domain's id.
const topic = "forwards"

// emptyFor is how long a domain counts as one without rules, if the hint about a new rule was lost.
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
	s := &Service{c: c, p: p, empty: map[string]time.Time{}}
	p.DB.OnHint(topic, func(domainID string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.empty, domainID)
	})
	return s, nil
}

// knownEmpty reports whether a domain had no rule a moment ago, so that most messages need no look-up.
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
