package wire

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

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// Options configures a [Server].
type Options struct {
	Operations  []Operation
	LiveStreams []LiveStream
	Description Description // description of the API in the OpenAPI document

	Teams     *teams.Service // authenticates requests
	Audit     *audit.Log
	Log       *slog.Logger
	Version   string
	PublicURL string // the installation's address, which is shown to clients without a token; may be empty
	// Address returns the URL at which a client reaches this installation. If Address is nil, all clients get PublicURL.
	Address          func(r *http.Request) string
	RateLimit        int            // default limit on a team's requests per second; 0 means no limit
	Limits           *teams.Limiter // counts requests for the rate limit; if nil, a new limiter is created
	RequireUserAgent bool           // refuse requests without a User-Agent header
	Heartbeat        time.Duration  // time between comment lines in an idle live stream; 0 means DefaultHeartbeat
	BodyMax          int64          // maximum size of a request body in bytes; 0 means 64 MB; at most 256 MB

	// MaskSecrets masks API keys and other secrets in a path or a header before it is logged. If MaskSecrets is nil,
	// nothing is masked.
	MaskSecrets func(text string) string

	// AfterCall, if set, is called after each operation and before its response is written. AfterCall may add response
	// headers. The argument err is the operation's error.
	AfterCall func(ctx context.Context, c *Call, err error)

	// Observe, if set, is called for each request from an authenticated actor, after the response has been sent. The
	// connection cannot be reused until Observe returns.
	Observe func(ctx context.Context, r RequestRecord)

	// Served, if set, is called for every request, after the response has been sent. It must be quick.
	Served func(ServedRequest)
}

// ServedRequest describes a request for metrics and traces.
type ServedRequest struct {
	ID, Method  string
	Route       string // pattern of the operation's path; "" if no operation serves the path
	Group       string // first part of the path; "unknown" if no operation serves it
	Status      int
	Start       time.Time
	Duration    time.Duration
	Streamed    bool // whether the response was an event stream
	TeamID      string
	Traceparent string        // the header of the same name
	Emails      []StoredEmail // see RequestRecord
}

// Server serves operations over HTTP.
type Server struct {
	// Capacity is shared by requests from all teams.
	Capacity Capacity

	opts           Options
	routes         chi.Router
	unknownKeys    teams.Limiter   // counts requests with unknown API keys by client address
	unavailableLog lograte.Limiter // limits log lines about unavailable dependencies
	overloadLog    lograte.Limiter // limits log lines about overload, so that they do not hide failures
	document       func() []byte
}

// Capacity contains the pools that all requests on this node share. No single team can use up a pool; see package
// fairshare.
type Capacity struct {
	BodyStarts   *fairshare.Pool // bytes of memory for large bodies of which less than an eighth has arrived
	MediumBodies *fairshare.Pool // bytes of memory for bodies that do not wait for larger bodies
	Bodies       *fairshare.Pool // bytes of memory for the largest bodies
	Responses    *fairshare.Pool // bytes of memory for large responses
	Exports      *fairshare.Pool // export streams
	LongLists    *fairshare.Pool // streamed lists
	EventStreams *fairshare.Pool // event streams
}

// New returns a server. New panics if an operation has no scope.
func New(o Options) *Server {
	if o.BodyMax == 0 {
		o.BodyMax = bodyMax
	}
	if o.Limits == nil {
		o.Limits = &teams.Limiter{}
	}
	if o.MaskSecrets == nil {
		o.MaskSecrets = func(text string) string { return text }
	}
	o.BodyMax = min(o.BodyMax, bodiesMax/bodyCost)
	s := &Server{opts: o, Capacity: Capacity{
		BodyStarts:   fairshare.New(bodyStartsMax, fairshare.Greed),
		MediumBodies: fairshare.New(mediumBodiesMax, fairshare.Greed),
		Bodies:       fairshare.New(bodiesMax, bodiesGreed),
		Responses:    fairshare.New(responsesMax, responsesGreed),
		Exports:      fairshare.New(exportsMax, streamsGreed),
		LongLists:    fairshare.New(longListsMax, streamsGreed),
		EventStreams: fairshare.New(eventStreamsMax, streamsGreed)}}
	s.document = sync.OnceValue(s.makeDocument)
	s.routes = s.router(s.authenticate)
	return s
}

// router returns a router for all operations. The router uses the given function to authenticate every request.
func (s *Server) router(authenticate func(w *recorder, r *http.Request) error) chi.Router {
	router := chi.NewRouter()
	router.NotFound(func(w http.ResponseWriter, r *http.Request) { s.answerNotFound(w.(*recorder), r, authenticate) })
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		s.answerWrongMethod(w.(*recorder), r, authenticate)
	})
	for i := range s.opts.Operations {
		o := &s.opts.Operations[i]
		if o.Scope == 0 {
			panic("wire: " + o.Method + " " + o.Path + " has no scope: name one in its route")
		}
		group := groupOf(o.Path)
		router.Method(o.Method, o.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := w.(*recorder)
			rec.route, rec.group = o.Path, group
			s.serve(rec, r, o, authenticate)
		}))
	}
	for i := range s.opts.LiveStreams {
		l := &s.opts.LiveStreams[i]
		router.Get(l.Path, func(w http.ResponseWriter, r *http.Request) {
			rec := w.(*recorder)
			rec.route, rec.group = l.Path, groupOf(l.Path)
			s.serveLive(rec, r, l, authenticate)
		})
	}
	router.Get("/openapi.json", s.serveDocument)
	return router
}

// Operations returns the server's operations.
func (s *Server) Operations() []Operation { return s.opts.Operations }

// Scope returns the scope that an actor needs for an operation. The operation is identified by its method and its
// route's path pattern. If the operation does not exist or needs no scope, ok is false.
func (s *Server) Scope(method, path string) (scope teams.Scope, ok bool) {
	for i := range s.opts.Operations {
		if o := &s.opts.Operations[i]; o.Method == method && o.Path == path && o.Scope != Open {
			return o.Scope, true
		}
	}
	return 0, false
}

// HasResource reports whether a path belongs to the API: whether an operation's path begins with the same segment. A
// path may belong to the API although no operation serves it.
func (s *Server) HasResource(path string) bool {
	path = normalized(path)
	if path == "/" || path == "/openapi.json" {
		return true
	}
	first := firstSegment(path)
	return slices.ContainsFunc(s.opts.Operations, func(o Operation) bool { return firstSegment(o.Path) == first }) ||
		slices.ContainsFunc(s.opts.LiveStreams, func(l LiveStream) bool { return firstSegment(l.Path) == first })
}

func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// groupOf returns the group of an operation in metrics: the first segment of its path.
func groupOf(path string) string { return cmp.Or(firstSegment(path), "root") }

// ScopeOf returns the scope of the operation that serves requests with the given method and path. If no operation
// serves them, or the operation needs no scope, ok is false.
func (s *Server) ScopeOf(method, path string) (scope teams.Scope, ok bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return s.Scope(method, s.routes.Find(chi.NewRouteContext(), method, path))
}

// ServeHTTP handles a request: it normalizes the path, assigns a request ID, and recovers from panics in operations.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serveRoutes(s.routes, &recorder{ResponseWriter: w, start: time.Now(), id: requestID(r),
		recordResponse: s.opts.Observe != nil, head: r.Method == http.MethodHead, resource: resourceOf(r.Context())}, r)
}

// ServeAs returns a handler that serves all operations to an actor who has already been authenticated. The handler
// checks scopes, but does not check tokens or the rate limit.
func (s *Server) ServeAs(by teams.Actor) http.Handler {
	routes := s.router(func(w *recorder, _ *http.Request) error {
		w.actor = by
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveRoutes(routes, &recorder{ResponseWriter: w, start: time.Now(), id: requestID(r), withoutToken: true,
			head: r.Method == http.MethodHead}, r)
	})
}

func (s *Server) serveRoutes(routes chi.Router, w *recorder, r *http.Request) {
	w.Header()["X-Request-Id"] = []string{w.id}
	defer func() {
		if w.release != nil {
			w.release()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			w.cause = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			if w.status == 0 {
				WriteError(w, fault.New(fault.Internal, "", ""))
			}
		}
		s.finish(w, r)
		if w.truncated {
			panic(http.ErrAbortHandler)
		}
	}()
	normalizePath(r)
	routed := r
	if w.head {
		get := *r // copied because r must keep the method HEAD, so that net/http sends no body
		get.Method = http.MethodGet
		routed = &get
	}
	routes.ServeHTTP(w, routed)
}

// requestID returns the client's X-Request-Id if it is safe to use in headers and logs, and a new ID otherwise.
func requestID(r *http.Request) string {
	given := r.Header.Get("X-Request-Id")
	if given == "" || len(given) > 100 || strings.ContainsFunc(given, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return id.New()
	}
	return given
}

// normalizePath rewrites //emails to /emails and /contacts/ to /contacts. The path is rewritten and not redirected,
// because clients follow a redirected POST with a GET.
func normalizePath(r *http.Request) {
	if r.URL.RawPath != "" {
		r.URL.RawPath = normalized(r.URL.RawPath)
	}
	r.URL.Path = normalized(r.URL.Path)
}

func normalized(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// finish logs the request in one line and calls Observe. Failures caused by an unavailable dependency are logged at a
// limited rate, because every request fails in the same way.
func (s *Server) finish(w *recorder, r *http.Request) {
	took := time.Since(w.start)
	path := cmp.Or(w.path, r.URL.Path)
	level, logged, suppressed := slog.LevelDebug, true, 0
	switch {
	case r.Context().Err() != nil && w.status == http.StatusServiceUnavailable:
		// The client disconnected, which is not a server failure.
	case w.status == http.StatusServiceUnavailable && isOverload(w.cause):
		level = slog.LevelWarn
		logged, suppressed = s.overloadLog.Allow()
	case w.status == http.StatusServiceUnavailable:
		level = slog.LevelError
		logged, suppressed = s.unavailableLog.Allow()
	case w.status >= 500:
		level = slog.LevelError
	case w.status >= 400:
		level = slog.LevelInfo
	}
	if logged && s.opts.Log.Enabled(r.Context(), level) {
		args := []any{"request_id", w.id, "method", r.Method, "path", s.opts.MaskSecrets(path), "status", w.status,
			"duration", took, "user_agent", s.opts.MaskSecrets(r.UserAgent())}
		if w.actor.TeamID != "" {
			args = append(args, "team", w.actor.TeamID)
		}
		if len(w.emails) == 1 {
			args = append(args, "email", w.emails[0].ID)
		}
		if w.cause != nil {
			args = append(args, "error", w.cause)
		}
		if suppressed > 0 {
			args = append(args, "more_like_it", suppressed)
		}
		s.opts.Log.Log(r.Context(), level, "request", args...)
	}
	if s.opts.Served != nil {
		s.opts.Served(ServedRequest{ID: w.id, Method: r.Method, Route: w.route, Group: cmp.Or(w.group, "unknown"),
			Status: w.status, Start: w.start, Duration: took, Streamed: w.streamed, TeamID: w.actor.TeamID,
			Traceparent: r.Header.Get("Traceparent"), Emails: w.emails})
	}
	if s.opts.Observe != nil && w.actor.TeamID != "" {
		s.opts.Observe(context.WithoutCancel(r.Context()), RequestRecord{Actor: w.actor, ID: w.id, Method: r.Method,
			Path: path, UserAgent: r.UserAgent(), Status: w.status, Start: w.start, Duration: took, Body: w.body,
			Answer: w.response, Long: w.responseBytes, Streamed: w.streamed, Emails: w.emails})
	}
}

// RequestRecord is a request from an authenticated actor, together with its response. Body and Answer are valid only
// until Observe returns.
type RequestRecord struct {
	teams.Actor
	ID, Method, Path, UserAgent string // ID is the request ID
	Status                      int
	Start                       time.Time
	Duration                    time.Duration
	Body, Answer                []byte
	Long                        int64 // length in bytes of a streamed list, which is not in Answer
	Streamed                    bool  // whether the response was an event stream, which is not recorded
	// Emails are the emails that a successful request created, in the order of the request. If the request contains
	// several emails, the elements of those that were not created are zero.
	Emails []StoredEmail
}

// StoredEmail is an email that a request created, with its bodies as they were stored.
type StoredEmail struct {
	ID         string
	HTML, Text *string
}

// Logged reports whether a request belongs in the request log. Event streams and requests that read the request log are
// not logged.
func (r RequestRecord) Logged() bool {
	return !r.Streamed && r.Path != "/logs" && !strings.HasPrefix(r.Path, "/logs/")
}

// recorder is a request's response writer, which also records the data for the log line and for Observe.
type recorder struct {
	http.ResponseWriter
	start    time.Time
	id       string
	route    string      // see ServedRequest
	group    string      // see ServedRequest
	path     string      // for the logs; "" means the path of the request
	actor    teams.Actor // the authenticated actor, even if the actor lacks the scope
	resource string      // path of the other protocol through which the request came, or ""; see Server.Authenticate
	status   int
	cause    error // cause of an internal failure

	recordResponse bool // whether to keep the response for Observe
	countResponse  bool // whether to count the bytes of the response without keeping them
	responseBytes  int64
	streamed       bool
	body, response []byte
	emails         []StoredEmail // see RequestRecord

	head         bool   // the method is HEAD, so the response has no body
	truncated    bool   // the response is incomplete, so the connection must be closed
	withoutToken bool   // the actor was not authenticated by a token
	release      func() // releases the memory reserved for the request and response bodies; may be nil
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.recordResponse {
		w.response = append(w.response, p...)
	}
	if w.countResponse {
		w.responseBytes += int64(len(p))
	}
	return w.ResponseWriter.Write(p)
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
