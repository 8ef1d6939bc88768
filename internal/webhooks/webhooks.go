// Package webhooks tells teams' own servers what happens: it keeps their endpoints, and delivers each event to those
// that asked for it, signed by the Standard Webhooks scheme.
//
// # Life of a message
//
//	event ──Recorded──► message, a delivery and a job for each endpoint ──prepare, post, judge──► success
//	                                                     ▲                                │
//	                                                     └────── the schedule ◄── failure ┴► failed, after the last try
//
// [Service.Recorded] hears of events in the transaction that records them, makes the payload, and enters it once with
// one delivery for each endpoint; for many endpoints, a job enters the deliveries (fanout.go). So an event that
// happened is told, whatever dies in between, and nothing is told that did not happen. A message has one id at all
// endpoints, and one text: the bytes that were stored are signed and sent at every attempt.
//
// # Invariants
//
// Delivery is at least once: a crash between a receiver's answer and our commit sends a message again, with the same
// id. Messages of one email (or domain, contact, suppressed address) reach an endpoint in the order in which they
// were recorded: a later one waits until those before it have succeeded or failed for good. Other messages of the
// endpoint go on meanwhile, and endpoints never wait for each other: each is a lane of its own, and one that fails or
// is slow is given few workers (health.go). Teams share the workers, as package fair says, and each has a bound on
// its connections to one address (client.go) and on what waits (backlog.go).
//
// No transaction is open while the network is used. What a receiver answers is data, and [judge] alone decides what
// follows from it. Addresses are judged by netguard when they are dialled; redirects are not followed; an answer is
// read for 15 seconds and up to 64 KB, whatever it sends, and its first KB is kept.
//
// # What can go wrong
//
// An endpoint that answers 410, or that only fails for long (Config.DisableAfter), is disabled, and the team is told.
// What waits for a disabled endpoint fails when it comes due, and what is new for one that is full fails at once;
// [Service.Recover] brings back what failed. A change that another node made to an endpoint is noticed here by a
// hint, or within seconds when the hint is lost; on the node that made it, it counts before the change is answered.
//
// The package records no events itself and sends no email: notices go to Parts.Notify.
package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/netguard"
)

// Limits of webhooks.
const (
	timeout      = 15 * time.Second // of an attempt, from the look-up of the name to the last byte of the answer
	failureMax   = 1 << 10          // octets kept of the answer to an attempt that failed
	successMax   = 256              // and to one that did not
	readMax      = 64 << 10         // octets read after those
	attemptsMax  = 100              // attempts at a message that are kept, when replays make them many
	rotationTime = 24 * time.Hour   // for which the secret before signs too
	secretSize   = 32               // octets
	maxPerTeam   = 1000             // endpoints
	maxEvents    = 100              // entries in a request's list, before repetitions are dropped
)

// Status says whether an endpoint is told anything.
type Status string

const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
	deleted  Status = "deleted" // until the sweep has removed what belongs to it
)

// Types returns the events that an endpoint may ask for (API reference section 19.1).
func Types() []events.Type {
	return []events.Type{events.EmailSent, events.EmailScheduled, events.EmailDelivered, events.EmailDelayed, events.EmailComplained,
		events.EmailBounced, events.EmailOpened, events.EmailClicked, events.EmailReceived, events.EmailFailed, events.EmailSuppressed,
		events.ContactCreated, events.ContactUpdated, events.ContactDeleted, events.DomainCreated, events.DomainUpdated,
		events.DomainDeleted, events.SuppressionAdded, events.SuppressionRemoved}
}

// Endpoint is a URL that a team is told at.
type Endpoint struct {
	ID             string
	TeamID         string
	URL            string
	Events         []events.Type // nil for all
	Status         Status
	Secret         string // whsec_ and base64; only where one endpoint is asked for
	DisabledReason string // empty unless it was disabled for failing
	DisabledAt     time.Time
	FailingSince   time.Time // zero while it works; a success clears it
	FullSince      time.Time // zero while new messages are taken; see backlog.go
	CreatedAt      time.Time

	sealed, sealedOld []byte
	oldUntil          time.Time
	warned            bool
	fullTold          time.Time // when the team was told last that it is full
}

// wants reports whether the endpoint is to be told of events of a type.
func (e *Endpoint) wants(t events.Type) bool {
	types := e.Events
	if types == nil {
		types = Types()
	}
	return e.Status == Enabled && slices.Contains(types, t)
}

// Config is what of the configuration concerns webhooks.
type Config struct {
	Schedule     []time.Duration // waits after failures; after the last the message has failed
	DisableAfter time.Duration   // of nothing but failures
	Retention    time.Duration   // of messages and attempts
	AllowHTTP    bool            // for development: endpoints need no TLS
	UserAgent    string
	Workers      int           // attempts at the same time; 0 means 1,024
	EndpointMax  int           // jobs that wait for one endpoint, roughly; 0 means 100,000
	TeamMax      int           // and for all of a team; 0 means 500,000
	Timeout      time.Duration // of an attempt, from the look-up of the name to the last byte of the answer; 0 means 15 seconds
}

// Parts are what the service is made of.
type Parts struct {
	DB      *db.DB
	Queue   *jobs.Queue
	Keys    *keyring.Keyring
	Guard   *netguard.Guard
	Domains *domains.Service
	Log     *slog.Logger

	// Notify tells a team that an endpoint of its fails or was disabled. It runs in the transaction that says so, and
	// must only write rows. Nil logs it.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
}

// checkURL returns an endpoint's URL as it is kept.
func (s *Service) checkURL(text string) (string, error) {
	u, err := s.p.Guard.CheckURL(text)
	if err != nil {
		what := strings.TrimSuffix(err.Error(), ": "+netguard.ErrRefused.Error())
		return "", fault.Invalidf("endpoint", "The `endpoint` field %s.", what).Because(err)
	}
	if u.Scheme != "https" && !s.c.AllowHTTP {
		return "", fault.Invalidf("endpoint", "The `endpoint` field must begin with https://.")
	}
	return u.String(), nil
}

// checkEvents returns the types that names stand for, each once.
func checkEvents(names []string) ([]events.Type, error) {
	if len(names) == 0 || len(names) > maxEvents {
		return nil, fault.Invalidf("events", "The `events` field must have 1 to %d event types.", maxEvents)
	}
	known := Types()
	var all []events.Type
	var unknown []string
	for _, name := range names {
		t := events.Type(name)
		switch {
		case !slices.Contains(known, t):
			unknown = append(unknown, fmt.Sprintf("%.50q", name))
		case !slices.Contains(all, t):
			all = append(all, t)
		}
	}
	if unknown != nil {
		return nil, fault.Invalidf("events", "The `events` field has unknown event types: %s. Known are %s.",
			strings.Join(unknown[:min(len(unknown), 10)], ", "), join(known, ", "))
	}
	return all, nil
}

func join(all []events.Type, separator string) string {
	var b strings.Builder
	for i, t := range all {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(string(t))
	}
	return b.String()
}
