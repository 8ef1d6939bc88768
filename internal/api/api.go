// Package api is the JSON API: it translates between the wire and the resources, and holds no rules of theirs.
//
// # Shape
//
// routes.go shows every operation on one screen. An operation is a function from a request type to a response type, made into
// a handler by [endpoint]; its types are the schema in the OpenAPI document too. Each resource has one file with its
// wire types and its operations, about ten lines each: translate, one call, translate.
//
// # Invariants
//
// Every answer is JSON, every error has the one envelope (errors.go alone turns a fault into status and name), and what is
// not a fault is a 500 that says nothing and is logged with its cause. Requests are read as real clients send them:
// doubled and trailing slashes, null for absent, unknown members, empty bodies.
//
// # Order
//
// User agent, key, rate limit, route, permission, JSON, then the operation's own rules (API reference section 4.2).
package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/semaphore"

	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

// Services are the resources that the API shows.
type Services struct {
	Teams        *teams.Service
	Domains      *domains.Service
	Suppressions *suppressions.Service
	Emails       *emails.Service
}

// Options say how the API behaves.
type Options struct {
	Services         Services
	Log              *slog.Logger
	Version          string
	RateLimit        int  // requests a second of a team without a limit of its own; 0 is none
	RequireUserAgent bool // refuse requests without one
	BodyMax          int64
	Ready            func(ctx context.Context) error // says whether the node can serve
}

const (
	bodyMax     = 64 << 20  // a message of 40 MB, its attachments in base64 once more, and some air
	bodiesMax   = 256 << 20 // octets of large bodies in memory at once
	bodyIsLarge = 256 << 10 // smaller ones are not counted
)

// API serves the JSON API.
type API struct {
	Options
	routes chi.Router
	ops    []op
	limits limiter
	guess  limiter // of requests with an unknown key, by address
	bodies *semaphore.Weighted
	doc    func() []byte
}

// New returns the API.
func New(o Options) *API {
	if o.BodyMax == 0 {
		o.BodyMax = bodyMax
	}
	a := &API{Options: o, bodies: semaphore.NewWeighted(bodiesMax)}
	a.ops = a.operations()
	r := chi.NewRouter()
	r.NotFound(func(w http.ResponseWriter, r *http.Request) { a.missing(w, r) })
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.wrongMethod(w, r) })
	for _, o := range a.ops {
		r.Method(o.method, o.path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, o) }))
	}
	r.Get("/openapi.json", a.Document)
	r.Get("/docs", a.Docs)
	a.routes = r
	a.doc = sync.OnceValue(a.document)
	return a
}

// ServeHTTP tidies the path, gives the request an id, and keeps a panic from ending more than its request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rid := r.Header.Get("X-Request-Id")
	if len(rid) == 0 || len(rid) > 100 || strings.ContainsFunc(rid, func(c rune) bool { return c <= ' ' || c > '~' }) {
		rid = id.New()
	}
	w.Header().Set("X-Request-Id", rid)
	rec := &recorder{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			a.Log.Error("panic while serving a request", "request_id", rid, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			if rec.status == 0 {
				writeError(rec, fault.New(fault.Internal, "", ""))
			}
		}
		a.logRequest(r, rid, rec.status, time.Since(start))
	}()
	tidy(r)
	a.routes.ServeHTTP(rec, r)
}

// tidy makes of a path what clients mean: //emails is /emails and /contacts/ is /contacts. A redirect would turn POST into GET.
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

func (a *API) logRequest(r *http.Request, rid string, status int, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case status >= 500:
		level = slog.LevelError
	case status >= 400:
		level = slog.LevelInfo
	}
	if a.Log.Enabled(r.Context(), level) {
		a.Log.Log(r.Context(), level, "request", "request_id", rid, "method", r.Method, "path", r.URL.Path, "status", status,
			"duration", took, "user_agent", r.UserAgent())
	}
}

// recorder remembers the status for the log.
type recorder struct {
	http.ResponseWriter
	status int
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
	return r.ResponseWriter.Write(p)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// enter finds out who asks and whether they may ask now.
func (a *API) enter(w http.ResponseWriter, r *http.Request) (teams.Principal, error) {
	if a.RequireUserAgent && r.UserAgent() == "" {
		return teams.Principal{}, fault.Forbiddenf("User-Agent", "Requests must have a User-Agent header.")
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return teams.Principal{}, fault.New(fault.NoCredential, "Authorization", "Missing API key. Send it as the header "+
			"`Authorization: Bearer re_...`.")
	}
	if a.guess.over(peer(r), guessesPerSecond) {
		return teams.Principal{}, fault.New(fault.TooFast, "", "Too many requests with unknown API keys. Try again in a second.")
	}
	p, err := a.Services.Teams.Authenticate(r.Context(), token)
	if err != nil {
		if fault.KindOf(err) == fault.BadCredential {
			a.guess.count(peer(r), guessesPerSecond)
		}
		return p, err
	}
	limit := p.RateLimit
	if limit == 0 {
		limit = a.RateLimit
	}
	if limit == 0 {
		return p, nil
	}
	used, ok := a.limits.count(p.TeamID, limit)
	h := w.Header()
	n := strconv.Itoa(limit)
	h["Ratelimit-Limit"] = []string{n}
	h["Ratelimit-Remaining"] = []string{strconv.Itoa(max(0, limit-used))}
	h["Ratelimit-Reset"] = []string{"1"}
	h["Ratelimit-Policy"] = []string{n + ";w=1"}
	if !ok {
		h["Retry-After"] = []string{"1"}
		return p, fault.New(fault.TooFast, "", "Too many requests: this team may make %d a second. Wait a second and try again.", limit)
	}
	return p, nil
}

// missing answers for a path that no operation has. Who asks is told first whether they may ask.
func (a *API) missing(w http.ResponseWriter, r *http.Request) {
	if _, err := a.enter(w, r); err != nil {
		a.fail(w, r, err)
		return
	}
	a.fail(w, r, fault.NotFoundf("The requested endpoint does not exist. See /docs."))
}

func (a *API) wrongMethod(w http.ResponseWriter, r *http.Request) {
	if _, err := a.enter(w, r); err != nil {
		a.fail(w, r, err)
		return
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
		if a.routes.Match(chi.NewRouteContext(), m, routePath(r)) {
			allowed = append(allowed, m)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeStatus(w, http.StatusMethodNotAllowed, "method_not_allowed", "The method "+r.Method+" is not allowed here; use "+
		strings.Join(allowed, " or ")+".")
}

func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}
