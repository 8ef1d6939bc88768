// Package webhooks delivers events to the HTTP endpoints of teams. It stores the endpoints and sends each event to the
// endpoints that select it, signed as Standard Webhooks specifies.
//
//	event ──Recorded──► message, a delivery and a job for each endpoint ──prepare, post, judge──► success
//	                                                     ▲                                │
//	                                                     └────── the schedule ◄── failure ┴► failed, after the last try
//
// [Service.Recorded] is called in the transaction that records events. The listener builds the payload and stores it
// once, with one delivery for each endpoint. For many endpoints, a job inserts the deliveries (fanout.go). So a message
// exists if and only if its event was recorded and an endpoint selects it, regardless of crashes. A message has the
// same id and payload at all endpoints: every attempt signs and sends the stored bytes.
//
// # Invariants
//
// Every delivery succeeds or fails. A delivery fails at the end of its schedule, or at once if the endpoint is full, is
// disabled or answers 410. Deleting an endpoint drops its deliveries. After a crash between a receiver's answer and the
// commit, the message is sent again with the same id.
//
// Messages of one email (or domain, contact, suppressed address) form a chain. The messages of a chain reach an
// endpoint in the order in which they were recorded: a message waits until the earlier ones have succeeded or failed
// permanently. Replayed and recovered messages come again, out of order. Messages of other chains do not wait.
//
// Endpoints delay each other only when their team has reached one of its limits. Each endpoint has its own lane, and
// failing or slow endpoints get few workers (health.go). Teams share the workers as package fairshare describes. Each
// team has limits for its connections to one address (client.go) and for its backlog (backlog.go).
//
// No transaction is open during network calls. The result of an attempt is a value, and [judge] alone decides its
// consequence. Package netguard checks addresses when they are dialed, and redirects are not followed. An attempt takes
// at most 15 seconds and reads about 64 KB of the response. The attempt stores the first KB of the response, or 256
// bytes after a success.
//
// # When it fails
//
// An endpoint is disabled, and its team notified, if it answers 410 or if all attempts fail for a long time
// (Config.DisableAfter). Waiting messages of a disabled endpoint fail when they are due. New messages for a full
// endpoint fail at once. [Service.Recover] delivers failed messages again. The node that changes an endpoint applies
// the change before it answers the request. Other nodes learn of the change by a hint, or within seconds if the hint is
// lost. Internal errors, such as a database that does not answer, do not use up a message's schedule.
//
// # What it does not do
//
// The package records no events and sends no email: Deps.Notify sends the notices.
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
	timeout      = 15 * time.Second // limit of an attempt, from the DNS look-up to the last byte of the response
	failureMax   = 1 << 10          // stored bytes of the response to a failed attempt
	successMax   = 256              // stored bytes of the response to a successful attempt
	readMax      = 64 << 10         // bytes that are read after the stored ones
	attemptsMax  = 100              // stored attempts for a message; replays can make many
	rotationTime = 24 * time.Hour   // how long messages are also signed with the previous secret
	secretSize   = 32               // bytes
	maxPerTeam   = 1000             // endpoints
	maxEvents    = 100              // entries in a request's list, including duplicates
)

// Status says whether an endpoint receives messages.
type Status string

const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
	deleted  Status = "deleted" // status until the sweep deletes the endpoint's rows
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

// OptInTypes returns the events that an endpoint gets only if it selects them by name. The API reference does not list
// them, and strict receivers reject unknown types.
func OptInTypes() []events.Type {
	return []events.Type{events.ApprovalRequested, events.ApprovalDecided}
}

// Endpoint is a URL to which a team's events are sent.
type Endpoint struct {
	ID             string
	TeamID         string
	URL            string
	Events         []events.Type // nil means all types but those of OptInTypes
	Status         Status
	Secret         string // whsec_ and base64; set only when a single endpoint is read
	DisabledReason string // empty unless failures disabled it
	DisabledAt     time.Time
	FailingSince   time.Time // zero while the endpoint works; cleared late, see judged
	FullSince      time.Time // zero if new messages are accepted; see backlog.go
	CreatedAt      time.Time

	sealed, sealedOld []byte
	oldUntil          time.Time
	warned            bool
	fullNotified      time.Time // when the team was last notified that the endpoint is full
}

// wants reports whether the endpoint is enabled and selects events of a type.
func (e *Endpoint) wants(t events.Type) bool {
	types := e.Events
	if types == nil {
		types = Types()
	}
	return e.Status == Enabled && slices.Contains(types, t)
}

// Config is the configuration of webhooks.
type Config struct {
	Schedule     []time.Duration // delays after failures; after the last one a message fails
	DisableAfter time.Duration   // how long all attempts must fail
	Retention    time.Duration   // retention of messages and attempts
	AllowHTTP    bool            // allows endpoints without TLS, for development
	UserAgent    string
	Workers      int           // concurrent attempts; 0 means 1,024
	EndpointMax  int           // waiting jobs for one endpoint, approximately; 0 means 100,000
	TeamMax      int           // waiting jobs for all endpoints of a team; 0 means 500,000
	Timeout      time.Duration // time limit of an attempt; 0 means 15 seconds
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB      *db.DB
	Queue   *jobs.Queue
	Keys    *keyring.Keyring
	Guard   *netguard.Guard
	Domains *domains.Service
	Log     *slog.Logger

	// Notify notifies a team that an endpoint fails or was disabled. Notify runs in the transaction that records the
	// failure, and must only write rows.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
}

// checkEvents parses the names of event types and removes duplicates.
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
