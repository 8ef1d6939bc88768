// Package webhooks delivers events to teams' HTTP endpoints. The package stores the endpoints and sends each event to
// the endpoints that select it, signed according to Standard Webhooks.
//
//	event ──Recorded──► message, a delivery and a job for each endpoint ──prepare, post, judge──► success
//	                                                     ▲                                │
//	                                                     └────── the schedule ◄── failure ┴► failed, after the last try
//
// The event recorder calls [Service.Recorded] in the transaction that records the events. Recorded builds the payload
// and stores it once, with one delivery per endpoint. If many endpoints select the event, a job inserts the deliveries
// (fanout.go). A message exists if and only if its event was recorded and an endpoint selects it, even after a crash. A
// message has the same id and payload at all endpoints, because every attempt signs and sends the stored bytes.
//
// # Invariants
//
// Every delivery ends in success or failure. A delivery fails at the end of its schedule, or immediately if the
// endpoint is full, is disabled or answers with 410. Deleting an endpoint discards its waiting deliveries. If the node
// crashes between a receiver's response and the commit, the message is sent again with the same id.
//
// All messages about one email (or one domain, contact, or suppressed address) form a chain. The messages in a chain
// reach an endpoint in the order in which they were recorded: each message waits until the earlier messages have
// succeeded or permanently failed. Replayed and recovered messages are sent again, out of order. Messages in different
// chains do not wait for each other.
//
// Endpoints delay each other only if their team has reached one of its limits. Each endpoint has its own lane, and
// failing or slow endpoints get few workers (health.go). Teams share the workers of a node as package fairshare
// describes. Each team has a limit on its connections to one address (client.go) and a limit on its backlog
// (backlog.go).
//
// No transaction is open during network calls. An attempt returns its result as a value, and only [judge] decides what
// follows from it. Package netguard checks each address when the client connects to it, and redirects are not followed.
// An attempt takes at most 15 seconds and reads about 64 KB of the response. The attempt stores the first KB of the
// response, or 256 bytes after a success.
//
// # Failures
//
// An endpoint is disabled, and its team is notified, if it answers with 410 or if all attempts fail for as long as
// Config.DisableAfter. Messages that wait for a disabled endpoint fail when they are due. New messages for a full
// endpoint fail immediately. [Service.Recover] delivers failed messages again. The node that changes an endpoint
// applies the change before it responds to the request. Other nodes are notified of the change, or notice it within
// seconds if the notification is lost. Internal errors, such as an unavailable database, do not count as attempts in a
// message's schedule.
//
// # Out of scope
//
// Package webhooks records no events and sends no email; Deps.Notify sends the notices.
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
	"github.com/postrider/postrider/internal/platform/signing"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Limits of webhooks.
const (
	timeout     = 15 * time.Second // time limit for an attempt, from the DNS look-up to the last byte of the response
	failureMax  = 1 << 10          // maximum number of stored response bytes for a failed attempt
	successMax  = 256              // maximum number of stored response bytes for a successful attempt
	readMax     = 64 << 10         // maximum number of response bytes that are read after the stored bytes
	attemptsMax = 100              // maximum number of stored attempts per message, because replays can add many
	maxPerTeam  = 1000             // endpoints
	maxEvents   = 100              // maximum number of event types in a request's list, including duplicates
)

// Status says whether an endpoint receives messages.
type Status string

const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
	deleted  Status = "deleted" // status of a deleted endpoint until the sweep deletes its rows
)

// Types returns the event types that an endpoint may select (API reference section 19.1).
func Types() []events.Type {
	return []events.Type{events.EmailSent, events.EmailScheduled, events.EmailDelivered, events.EmailDelayed,
		events.EmailComplained,
		events.EmailBounced, events.EmailOpened, events.EmailClicked, events.EmailReceived, events.EmailFailed,
		events.EmailSuppressed,
		events.ContactCreated, events.ContactUpdated, events.ContactDeleted, events.DomainCreated, events.DomainUpdated,
		events.DomainDeleted, events.SuppressionAdded, events.SuppressionRemoved, events.BroadcastPaused}
}

// OptInTypes returns the event types that an endpoint receives only if it selects them by name. The API reference does
// not list the opt-in event types, and strict receivers reject unknown event types.
func OptInTypes() []events.Type {
	return []events.Type{events.ApprovalRequested, events.ApprovalDecided, events.DomainTransportFailed,
		events.DomainTransportRecovered}
}

// Endpoint is a URL to which a team's events are sent.
type Endpoint struct {
	ID             string
	TeamID         string
	URL            string
	Events         []events.Type // nil means all types except those of OptInTypes
	Status         Status
	Secret         string // whsec_ followed by base64; set only if a single endpoint is read
	DisabledReason string // why failures disabled the endpoint; otherwise empty
	DisabledAt     time.Time
	FailingSince   time.Time // zero while the endpoint works; a success does not always clear it (see judged)
	FullSince      time.Time // zero if the endpoint accepts new messages (see backlog.go)
	CreatedAt      time.Time

	secret       signing.Secret
	warned       bool
	fullNotified time.Time // time of the team's last notice that the endpoint is full
}

// wants reports whether the endpoint is enabled and selects events of the given type.
func (e *Endpoint) wants(t events.Type) bool {
	types := e.Events
	if types == nil {
		types = Types()
	}
	return e.Status == Enabled && slices.Contains(types, t)
}

// Config holds the settings of the webhooks service.
type Config struct {
	Schedule     []time.Duration // delays after failed attempts; a failed attempt after the last delay is final
	DisableAfter time.Duration   // time for which all attempts must fail before the endpoint is disabled
	AllowHTTP    bool            // allows endpoints without TLS, for development
	UserAgent    string
	Workers      int           // maximum number of concurrent attempts; 0 means 1,024
	EndpointMax  int           // approximate maximum number of waiting jobs for one endpoint; 0 means 100,000
	TeamMax      int           // maximum number of waiting jobs for all of a team's endpoints; 0 means 500,000
	Timeout      time.Duration // time limit for an attempt; 0 means 15 seconds
}

// Deps holds the dependencies of a Service.
type Deps struct {
	DB      *db.DB
	Queue   *jobs.Queue
	Keys    *keyring.Keyring
	Guard   *netguard.Guard
	Domains *domains.Service
	Log     *slog.Logger

	// Notify notifies a team that an endpoint is failing or was disabled. Notify runs in the transaction that records
	// the failure, so it must only write rows.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error

	// Observe is called after an attempt, with its outcome (success, retry or failed) and its duration.
	Observe func(outcome string, took time.Duration) `deps:"optional"`
}

// checkEvents parses a list of event types and removes duplicates.
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
