// Package webhooks delivers events to the HTTP endpoints of teams. It stores the endpoints, and sends each event to
// those that want it, signed as Standard Webhooks specifies.
//
//	event ──Recorded──► message, a delivery and a job for each endpoint ──prepare, post, judge──► success
//	                                                     ▲                                │
//	                                                     └────── the schedule ◄── failure ┴► failed, after the last try
//
// [Service.Recorded] is called in the transaction that records events. It makes the payload and enters it once, with
// one delivery for each endpoint; for many endpoints, a job enters the deliveries (fanout.go). So a message exists if
// and only if its event was recorded and an endpoint wanted it, whatever crashes in between. A message has the same id
// and payload at all endpoints: the stored octets are signed and sent in every attempt.
//
// # Invariants
//
// Every delivery succeeds or fails: after its schedule, or at once if the endpoint is full, is disabled or answers 410.
// Deleting an endpoint drops its deliveries. A crash between a receiver's answer and our commit sends it again with the
// same id. Messages of one email (or domain, contact, suppressed address) reach an endpoint in the order in which they
// were recorded: a later one waits until those before it have succeeded or failed permanently; messages that are
// replayed or recovered come again, out of order. Other messages of the endpoint do not wait for them. Endpoints wait
// for each other only at the limits of their team: each is a lane of its own, and one that fails or is slow gets few
// workers (health.go). Teams share the workers, as package fair describes, and each team has limits for its connections
// to one address (client.go) and for its backlog (backlog.go).
//
// No transaction is open while the network is used. The answer of a receiver is data, and [judge] alone decides what
// follows from it. netguard checks addresses when they are dialed, and redirects are not followed. An attempt takes at
// most 15 seconds and reads about 64 KB of the answer; the first KB of it is stored, or 256 octets after a success.
//
// # When it fails
//
// An endpoint that answers 410, or that fails at every attempt for a long time (Config.DisableAfter), is disabled, and
// the team is notified. Messages that wait for a disabled endpoint fail when they are due, and new messages for a full
// one fail at once; [Service.Recover] delivers failed messages again. Another node notices a change of an endpoint by a
// hint, or within seconds if the hint is lost; on the node that made it, the change takes effect before the request is
// answered. Errors of our own, such as a database that does not answer, do not use up a message's schedule.
//
// # What it does not do
//
// It records no events itself and sends no email: notices go to Deps.Notify.
package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Limits of webhooks.
const (
	timeout      = 15 * time.Second // of an attempt, from the look-up of the name to the last octet of the answer
	failureMax   = 1 << 10          // octets that are stored of the answer to a failed attempt
	successMax   = 256              // and to a successful one
	readMax      = 64 << 10         // octets that are read after those
	attemptsMax  = 100              // attempts at a message that are stored; replays can make many
	rotationTime = 24 * time.Hour   // during which the previous secret signs too
	secretSize   = 32               // octets
	maxPerTeam   = 1000             // endpoints
	maxEvents    = 100              // entries in a request's list, before repetitions are dropped
)

// Status is whether an endpoint receives messages.
type Status string

const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
	deleted  Status = "deleted" // until the sweep has deleted its rows
)

// Types returns the events that an endpoint may select (API reference section 19.1).
func Types() []events.Type {
	return []events.Type{events.EmailSent, events.EmailScheduled, events.EmailDelivered, events.EmailDelayed,
		events.EmailComplained,
		events.EmailBounced, events.EmailOpened, events.EmailClicked, events.EmailReceived, events.EmailFailed,
		events.EmailSuppressed,
		events.ContactCreated, events.ContactUpdated, events.ContactDeleted, events.DomainCreated, events.DomainUpdated,
		events.DomainDeleted, events.SuppressionAdded, events.SuppressionRemoved, events.BroadcastPaused}
}

// OptInTypes returns the events that an endpoint gets only if it selects them by name: they are no part of the reference, and
// strict receivers know a closed set.
func OptInTypes() []events.Type {
	return []events.Type{events.ApprovalRequested, events.ApprovalDecided}
}

// Endpoint is a URL to which a team's events are sent.
type Endpoint struct {
	ID             string
	TeamID         string
	URL            string
	Events         []events.Type // nil means all but those of OptInTypes
	Status         Status
	Secret         string // whsec_ and base64; only set when a single endpoint is read
	DisabledReason string // empty unless it was disabled for failing
	DisabledAt     time.Time
	FailingSince   time.Time // zero while it works; cleared lazily, see judged
	FullSince      time.Time // zero if new messages are accepted; see backlog.go
	CreatedAt      time.Time

	sealed, sealedOld []byte
	oldUntil          time.Time
	warned            bool
	fullNotified      time.Time // when the team was last notified that it is full
}

// wants reports whether the endpoint wants events of a type.
func (e *Endpoint) wants(t events.Type) bool {
	types := e.Events
	if types == nil {
		types = Types()
	}
	return e.Status == Enabled && slices.Contains(types, t)
}

// Config is the part of the configuration that concerns webhooks.
type Config struct {
	Schedule     []time.Duration // waits after failures; a message has failed after the last
	DisableAfter time.Duration   // duration of nothing but failures
	Retention    time.Duration   // of messages and attempts
	AllowHTTP    bool            // for development: endpoints do not need TLS
	UserAgent    string
	Workers      int           // attempts at once; 0 means 1,024
	EndpointMax  int           // jobs that wait for one endpoint, roughly; 0 means 100,000
	TeamMax      int           // and for all endpoints of a team; 0 means 500,000
	Timeout      time.Duration // of an attempt; 0 means 15 seconds
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB      *db.DB
	Queue   *jobs.Queue
	Keys    *keyring.Keyring
	Guard   *netguard.Guard
	Domains *domains.Service
	Log     *slog.Logger

	// Notify notifies a team that an endpoint fails or was disabled. It runs in the transaction that records that, and
	// must only write rows.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
}

// checkEvents returns the types of the names, without duplicates.
func checkEvents(names []string) ([]events.Type, error) {
	if len(names) == 0 || len(names) > maxEvents {
		return nil, fault.Invalidf("events", "The `events` field must have 1 to %d event types.", maxEvents)
	}
	known := append(Types(), OptInTypes()...)
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
