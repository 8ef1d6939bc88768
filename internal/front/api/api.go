// Package api is the JSON API: it translates between the wire and the resources, and holds none of their rules.
//
// # Shape
//
// routes.go lists every operation. An operation is a function from a request type to a response type, made into a
// handler by [endpoint]; its types are the schema in the OpenAPI document too. Each resource has one file with its
// wire types and its operations, which are about ten lines each: translate, one call, translate.
//
// # Order
//
// User agent, key, team in good standing, rate limit, route, scope, JSON, then the operation's own rules (API
// reference section 4.2).
//
// # Invariants
//
// Every operation answers in JSON, except exports and events, which are streamed; a list without a limit is streamed too
// if it is long. Every error has the same envelope. Requests are
// read as real clients send them: with doubled and trailing slashes, null for absent, unknown members, empty bodies.
// Lists in requests are bounded while they are decoded, and the memory for large bodies is shared among teams.
//
// # When it fails
//
// errors.go alone maps a fault to a status and a name. An error that is not a fault is answered 500 without its
// cause, which is logged. A panic ends its request only.
//
// # What it does not do
//
// It checks nothing that a resource checks itself.
//
// # To add a resource
//
//  1. Give [Services] its service, and set it in internal/cli.
//  2. Write thing.go: request types named ...In with pointers or [opt] where null or absent have a meaning, response
//     types named ...Wire (one) and ...Item (in a list), a function from the resource's type to each, and the
//     operations, in the form of keys.go: func (a *API) createThing(ctx context.Context, c *Call, in createThingIn)
//     (thingWire, error). An operation without input takes [none]. Check nothing that the resource checks itself; ids
//     in paths are read by [Call.ID], other segments by [Call.Param], pages by [Call.Page] with the default limit or
//     0 for all, other parameters from [Call.Query]. Times are dbTime, or isoTime where the reference says so; lists
//     in responses are made by listOf, or by wholeList where no limit means all. Lists in requests are many, texts (a
//     string or a list) or named (an object), with their limit; [endpoint] accepts no other. [Call.Status] and
//     [Call.Header] change the status and the header of the response. An operation whose answer may be large takes
//     memory for it with [Call.reserve] before it reads what it answers.
//  3. Give each operation a line in routes.go, with the scope that an actor needs for it; without one the program
//     does not start. Run the tests with -update and read what changed in testdata/scopes.txt, and in
//     testdata/actions.txt: how the operation is recorded in the audit log. What a resource creates is named by
//     audit.Target in its transaction. A literal segment takes precedence over a parameter at the same place.
//  4. Describe new kinds of query parameters in openapi.go.
//  5. Write testdata/thing/*.txtar without the responses, run the tests with -update, and read the result. The tests
//     require a successful scenario for each operation, 404 for the ids of other teams (add the thing to
//     TestOtherTeams), and a document that agrees with the responses.
package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/metrics"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Services are the resources that the API exposes.
type Services struct {
	Teams        *teams.Service
	Domains      *domains.Service
	Suppressions *suppressions.Service
	Emails       *emails.Service
	Templates    *templates.Service
	Volume       *quotas.Service
	Contacts     *contacts.Service
	Broadcasts   *broadcasts.Service
	Automations  *automations.Service
	Events       *customevents.Service
	Logs         *requestlog.Service
	Metrics      *metrics.Service
	Webhooks     *webhooks.Service
	Live         *eventstream.Service
	Receiving    *receiving.Service
	Imports      *imports.Service
	Exports      *exports.Service
	Privacy      *privacy.Service
	Grants       *grants.Service
	Members      *members.Service
	Approvals    *approvals.Service
	Audit        *audit.Log
}

// Options configure the API.
type Options struct {
	Services  Services
	Log       *slog.Logger
	Version   string
	PublicURL string // the address of the installation, for clients without a token; may be empty
	// Address returns the address by which a client reaches this installation; nil is PublicURL for all.
	Address          func(r *http.Request) string
	RateLimit        int            // requests a second of a team without a limit of its own; 0 is none
	Limits           *teams.Limiter // counts them, shared with SMTP submission; nil is one of its own
	RequireUserAgent bool           // refuse requests without one
	NoAliases        bool           // operations answer under their documented names only
	// Heartbeat is the time between comment lines in an idle stream; 0 is 15 seconds.
	Heartbeat time.Duration
	BodyMax   int64                           // octets of a request body; 0 is 64 MB, and more than 256 MB is 256 MB
	Ready     func(ctx context.Context) error // reports whether the node can serve
	DNS       resolve.Resolver                // for checks of emails; nil asks nothing

	// Observe, when set, is called after each request of a known actor. The client has its answer already, but its
	// connection waits, so Observe must be quick.
	Observe func(ctx context.Context, r RequestRecord)
}

// API serves the JSON API.
type API struct {
	Options
	routes chi.Router
	ops    []op
	guess  teams.Limiter   // of requests with an unknown key, by address
	begun  *fairshare.Pool // octets of large bodies, see read
	bodies *fairshare.Pool

	mediums   *fairshare.Pool
	streams   *fairshare.Pool // exports that are being written
	longLists *fairshare.Pool // and long lists
	watchers  *fairshare.Pool // and streams of events
	answers   *fairshare.Pool // octets of large answers, see answer.go
	away      lograte.Limiter // limits log lines about what is unavailable
	busy      lograte.Limiter // and about what too much is asked for, which must not hide those
	doc       func() []byte
	docs      func() ([]byte, error)
}

// New returns the API.
func New(o Options) *API {
	if o.BodyMax == 0 {
		o.BodyMax = bodyMax
	}
	if o.Limits == nil {
		o.Limits = &teams.Limiter{}
	}
	o.BodyMax = min(o.BodyMax, bodiesMax/bodyCost)
	a := &API{Options: o, begun: fairshare.New(begunMax, fairshare.Greed), bodies: fairshare.New(bodiesMax, bodiesGreed),
		mediums: fairshare.New(mediumsMax, fairshare.Greed), streams: fairshare.New(streamsMax, streamsGreed),
		longLists: fairshare.New(longListsMax, streamsGreed), answers: fairshare.New(answersMax, answersGreed),
		watchers: fairshare.New(watchersMax, streamsGreed)}
	a.doc, a.docs = sync.OnceValue(a.document), sync.OnceValues(a.docsHTML)
	ops := a.operations()
	if o.NoAliases {
		ops = slices.DeleteFunc(ops, op.isAlias)
	}
	a.mount(ops)
	return a
}

func (a *API) mount(ops []op) {
	a.ops = ops
	r := chi.NewRouter()
	r.NotFound(func(w http.ResponseWriter, r *http.Request) { a.missing(w.(*recorder), r) })
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.wrongMethod(w.(*recorder), r) })
	for i := range a.ops {
		o := &a.ops[i]
		if o.scope == 0 {
			panic("api: " + o.method + " " + o.path + " has no scope: name one in routes.go")
		}
		o.act = actOf(o)
		r.Method(o.method, o.path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.serve(w.(*recorder), r,
				o)
		}))
	}
	r.Get("/openapi.json", a.Document)
	r.Get("/docs", a.Docs)
	r.Get("/webhooks/listen", a.Listen)
	a.routes = r
}

// ServeHTTP normalizes the path, gives the request an id, and lets a panic end this request only.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w2 := &recorder{ResponseWriter: w, start: time.Now(), id: requestID(r), keep: a.Observe != nil,
		head: r.Method == http.MethodHead, resource: entered(r.Context())}
	w.Header()["X-Request-Id"] = []string{w2.id}
	defer func() {
		if w2.done != nil {
			w2.done()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			w2.cause = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			if w2.status == 0 {
				writeError(w2, fault.New(fault.Internal, "", ""))
			}
		}
		a.finish(w2, r)
		if w2.cut {
			panic(http.ErrAbortHandler)
		}
	}()
	tidy(r)
	routed := r
	if w2.head {
		get := *r // the server must go on seeing HEAD, to send no body
		get.Method = http.MethodGet
		routed = &get
	}
	a.routes.ServeHTTP(w2, routed)
}

// requestID returns the client's own id for the request if it is fit for a header and a log, otherwise a new one.
func requestID(r *http.Request) string {
	given := r.Header.Get("X-Request-Id")
	if given == "" || len(given) > 100 || strings.ContainsFunc(given, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return id.New()
	}
	return given
}

// tidy normalizes a path: //emails is /emails and /contacts/ is /contacts. A redirect would turn POST into GET.
func tidy(r *http.Request) {
	if r.URL.RawPath != "" {
		r.URL.RawPath = tidyPath(r.URL.RawPath)
	}
	r.URL.Path = tidyPath(r.URL.Path)
}

func tidyPath(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	if len(p) > 1 {
		p = strings.TrimSuffix(p, "/")
	}
	return p
}

// finish logs the request, in one line, and calls Observe. While something is unavailable, every request would log
// the same line, so only few of them are logged.
func (a *API) finish(w *recorder, r *http.Request) {
	took := time.Since(w.start)
	path := cmp.Or(w.path, r.URL.Path)
	level, logged, leftOut := slog.LevelDebug, true, 0
	switch {
	case r.Context().Err() != nil && w.status == http.StatusServiceUnavailable:
		// The client went away: this is not a failure of the service.
	case w.status == http.StatusServiceUnavailable && isBusy(w.cause):
		level = slog.LevelWarn
		logged, leftOut = a.busy.Allow()
	case w.status == http.StatusServiceUnavailable:
		level = slog.LevelError
		logged, leftOut = a.away.Allow()
	case w.status >= 500:
		level = slog.LevelError
	case w.status >= 400:
		level = slog.LevelInfo
	}
	if logged && a.Log.Enabled(r.Context(), level) {
		args := []any{"request_id", w.id, "method", r.Method, "path", requestlog.Veil(path), "status", w.status,
			"duration", took, "user_agent", requestlog.Veil(r.UserAgent())}
		if w.actor.TeamID != "" {
			args = append(args, "team", w.actor.TeamID)
		}
		if w.cause != nil {
			args = append(args, "error", w.cause)
		}
		if leftOut > 0 {
			args = append(args, "more_like_it", leftOut)
		}
		a.Log.Log(r.Context(), level, "request", args...)
	}
	if a.Observe != nil && w.actor.TeamID != "" {
		a.Observe(context.WithoutCancel(r.Context()), RequestRecord{Actor: w.actor, ID: w.id, Method: r.Method,
			Path: path, UserAgent: r.UserAgent(), Status: w.status, Start: w.start, Duration: took, Body: w.body,
			Answer: w.answer, Long: w.long, Streamed: w.streamed})
	}
}

// RequestRecord is a request of a known actor, and its answer. ID is that of the request. Body and Answer are valid
// only during the call of Observe and must be copied to be kept.
type RequestRecord struct {
	teams.Actor
	ID, Method, Path, UserAgent string
	Status                      int
	Start                       time.Time
	Duration                    time.Duration
	Body, Answer                []byte
	Long                        int64 // octets of an answer that was written while it was made, and is not kept
	Streamed                    bool  // the answer was a stream of events, of which nothing is kept
}

// recorder records what the log and Observe need of a request.
type recorder struct {
	http.ResponseWriter
	start        time.Time
	id           string
	path         string      // for the logs; "" means the request's
	actor        teams.Actor // the authenticated actor, whether or not it may do this
	resource     string      // the path at which it came in, if not the API's own; see Enter
	status       int
	cause        error // of an internal failure
	keep         bool  // the answer, for the observer
	measured     bool  // or only its length
	long         int64 // the length
	streamed     bool
	body, answer []byte
	head         bool   // the request is HEAD: the answer has no body
	cut          bool   // the answer is not whole: the connection is to be closed
	done         func() // gives back the memory of the body and of the answer; nil when they have none
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.keep {
		r.answer = append(r.answer, p...)
	}
	if r.measured {
		r.long += int64(len(p))
	}
	return r.ResponseWriter.Write(p)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
