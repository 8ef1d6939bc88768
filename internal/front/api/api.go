// Package api is the JSON API. The package translates between JSON and the services behind the resources, and contains
// no business rules. Package wire is the API's framework: decoding, limits, errors, streams and the OpenAPI document.
//
// # Shape
//
// routes.go lists all operations. Each resource has one file with its JSON types and its operations. An operation has
// about ten lines: it translates the request, calls a service, and translates the result.
//
// # Invariants
//
// Every operation responds with JSON, except exports and events, which are streamed. Long lists are also streamed if
// the request has no limit. All errors have the same body.
//
// # Out of scope
//
// Package api does not repeat the validation that a resource's service performs.
//
// # To add a resource
//
//  1. Add the resource's service to [Services], and set it in the code that builds the API.
//  2. Write thing.go. The file contains request types named ...In, and response types named ...Wire (one) and ...Item
//     (in a list). It also contains a function from the resource's type to each response type, and the operations.
//     Follow the pattern of the operations in keys.go: func (a *API) createThing(ctx context.Context, c *wire.Call, in
//     createThingIn) (thingWire, error). Operations without input use [wire.None]. Package wire documents the field
//     types, and [wire.Call] documents how to read parameters. An operation with a large response reserves memory with
//     [wire.Call.ReserveMemory] before it reads the rows.
//  3. Add a line for each operation to routes.go, with the scope that an actor needs. The program does not start if an
//     operation has no scope. Run the tests with -update, and review the changes in testdata/scopes.txt and
//     testdata/actions.txt. The file testdata/actions.txt lists the audit log action that each operation records. An
//     operation that creates an object passes the object's ID to audit.Target in the same transaction. In paths, a
//     literal segment takes precedence over a parameter.
//  4. Describe new query parameters in query_params.go, and each operation with an example in reference/thing.txt. The
//     comment in reference.go has the format.
//  5. Write testdata/thing/*.txtar without the responses, run the tests with -update, and review the result. The tests
//     require a successful scenario for each operation, and status 404 for other teams' IDs (add the thing to
//     TestOtherTeams). The OpenAPI document must agree with the responses.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/explain"
	"github.com/postrider/postrider/internal/sending/metrics"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Services holds the services behind the API.
type Services struct {
	Teams   *teams.Service
	Domains *domains.Service

	ServedPolicies *servedpolicies.Service
	Suppressions   *suppressions.Service
	Emails         *emails.Service
	Explanations   *explain.Service
	Templates      *templates.Service
	Quotas         *quotas.Service
	Contacts       *contacts.Service
	Broadcasts     *broadcasts.Service
	Automations    *automations.Service
	Events         *customevents.Service
	Logs           *requestlog.Service
	Metrics        *metrics.Service
	Webhooks       *webhooks.Service
	Live           *eventstream.Service
	Receiving      *receiving.Service
	Forwards       *forwards.Service
	Imports        *imports.Service
	Exports        *exports.Service
	Privacy        *privacy.Service
	Grants         *grants.Service
	Members        *members.Service
	Approvals      *approvals.Service
	Audit          *audit.Log
	Reports        *domainreports.Service
}

// Options configures the API.
type Options struct {
	Services  Services
	Log       *slog.Logger
	Version   string
	PublicURL string // the installation's address, which is shown to clients without a token; may be empty
	// Address returns the URL at which a client reaches this installation. If Address is nil, all clients get PublicURL.
	Address          func(r *http.Request) string
	RateLimit        int            // default limit on a team's requests per second; 0 means no limit
	Limits           *teams.Limiter // rate limiter shared with SMTP submission; if nil, a new one is created
	RequireUserAgent bool           // refuse requests without a User-Agent header
	NoAliases        bool           // serve operations only at their documented paths
	// Heartbeat is the time between comment lines in an idle event stream; 0 means 15 seconds.
	Heartbeat time.Duration
	BodyMax   int64 // maximum size of a request body in bytes; 0 means 64 MB; at most 256 MB
	// Ready reports whether the node can serve requests; nil means that it can.
	Ready func(ctx context.Context) telemetry.Report
	DNS   resolve.Resolver // DNS resolver for checking emails; nil disables DNS queries

	// Observe, if set, is called for each request from an authenticated actor, after the response has been sent. The
	// connection cannot be reused until Observe returns.
	Observe func(ctx context.Context, r RequestRecord)
	Served  func(wire.ServedRequest) // see wire.Options; may be nil
}

// RequestRecord is a request from an authenticated actor, together with its response.
type RequestRecord = wire.RequestRecord

// API serves the JSON API.
type API struct {
	Options
	*wire.Server
}

// New returns the API.
func New(o Options) *API {
	a := &API{Options: o}
	a.serve(a.operations())
	return a
}

// serve creates the API's server with the given operations.
func (a *API) serve(operations []wire.Operation) {
	if a.NoAliases {
		operations = slices.DeleteFunc(operations, func(o wire.Operation) bool { return o.IsAlias() })
	}
	a.Server = wire.New(wire.Options{Operations: operations, LiveStreams: []wire.LiveStream{a.events()},
		Description: description(), Teams: a.Services.Teams, Audit: a.Services.Audit, Log: a.Log, Version: a.Version,
		PublicURL: a.PublicURL, Address: a.Address, RateLimit: a.RateLimit, Limits: a.Limits,
		RequireUserAgent: a.RequireUserAgent, Heartbeat: a.Heartbeat, BodyMax: a.BodyMax, MaskSecrets: requestlog.MaskSecrets,
		AfterCall: a.addQuotaHeaders, Observe: a.Observe, Served: a.Served})
}
