package wire

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
)

// unknownKeysPerSecond limits how many requests with unknown API keys a client address may send per second.
const unknownKeysPerSecond = 30

// slowBody is the duration after which a request's token is checked again. If the body takes longer than slowBody to
// arrive, the token may have been revoked in the meantime.
const slowBody = time.Second

// authenticate finds the actor of a request and applies the team's rate limit, but does not check scopes. The actor is
// stored in w. Every response to a known actor gets the rate limit headers.
func (s *Server) authenticate(w *recorder, r *http.Request) error {
	if err := s.findActor(w, r); err != nil {
		return err
	}
	limit := s.TeamRateLimit(&w.actor)
	if limit == 0 {
		return nil
	}
	used, ok := s.opts.Limits.Count(w.actor.TeamID, limit)
	h := w.Header()
	n := strconv.Itoa(limit)
	h["Ratelimit-Limit"] = []string{n}
	h["Ratelimit-Remaining"] = []string{strconv.Itoa(max(0, limit-used))}
	h["Ratelimit-Reset"] = []string{"1"}
	h["Ratelimit-Policy"] = []string{n + ";w=1"}
	if !ok {
		return fault.New(fault.TooFast, "", "Too many requests: this team may make %d a second. Wait a second and "+
			"try again.", limit)
	}
	return nil
}

// TeamRateLimit returns the maximum number of requests per second for the actor's team; 0 means no limit.
func (s *Server) TeamRateLimit(by *teams.Actor) int {
	if by.RateLimit != 0 {
		return by.RateLimit
	}
	return s.opts.Limits.Default(s.opts.RateLimit)
}

// findActor stores the actor that the request's token identifies in w, and returns an error if the token is unknown.
func (s *Server) findActor(w *recorder, r *http.Request) error {
	if s.opts.RequireUserAgent && r.UserAgent() == "" {
		return fault.Forbiddenf("User-Agent", "Requests must have a User-Agent header.")
	}
	token := bearer(r)
	if token == "" {
		return fault.New(fault.NoCredential, "Authorization",
			"Missing API key. Send it as the header `Authorization: Bearer re_...`.")
	}
	// Behind a proxy, all clients may share one IP address. Requests with known API keys are therefore exempt from the
	// per-address limit.
	if s.unknownKeys.Over(clientIP(r), unknownKeysPerSecond) && !s.opts.Teams.IsCached(token) {
		return fault.New(fault.TooFast, "", "Too many requests with unknown API keys. Try again in a second.")
	}
	by, err := s.opts.Teams.Authenticate(r.Context(), token)
	if err != nil {
		if fault.KindOf(err) == fault.BadCredential {
			s.unknownKeys.Count(clientIP(r), unknownKeysPerSecond)
		}
		return err
	}
	if err := by.At(cmp.Or(w.resource, teams.APIResource)); err != nil {
		return err
	}
	w.actor = by
	return nil
}

// Authenticate authenticates a request for another protocol that accepts the API's tokens. The protocol is served at
// the given path. If ok is false, Authenticate has already sent an error response. The request does not count towards
// the rate limit. A token that was issued for that path is accepted only in API requests that use the returned context.
func (s *Server) Authenticate(w http.ResponseWriter, r *http.Request, path string) (ctx context.Context, by teams.Actor,
	ok bool) {
	rec := &recorder{ResponseWriter: w, start: time.Now(), id: requestID(r), resource: path}
	err := s.findActor(rec, r)
	if err == nil {
		err = checkSuspended(&rec.actor)
	}
	if err != nil {
		rec.Header()["X-Request-Id"] = []string{rec.id}
		s.fail(rec, r, err)
		s.finish(rec, r)
		return r.Context(), teams.Actor{}, false
	}
	return context.WithValue(r.Context(), resourceKey{}, path), rec.actor, true
}

type resourceKey struct{}

// resourceOf returns the path that was passed to [Server.Authenticate], or "". Clients cannot set this path.
func resourceOf(ctx context.Context) string {
	path, _ := ctx.Value(resourceKey{}).(string)
	return path
}

// bearer returns the bearer token in a request, or "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// reauthenticate refuses a slow request if its token was revoked, its team was suspended or its scope was removed after
// the request was first authenticated. The actor is read from a cache, which is invalidated when the token, the team or
// the scopes change. The second authentication does not count towards the rate limit.
func (s *Server) reauthenticate(w *recorder, r *http.Request, o *Operation) error {
	if w.withoutToken {
		return nil
	}
	by, err := s.opts.Teams.Authenticate(r.Context(), bearer(r))
	switch {
	case err != nil:
		return err
	case by.Ref() != w.actor.Ref():
		return fault.New(fault.BadCredential, "", "API key is invalid") // the token now belongs to another API key
	}
	if err := o.checkSuspended(&by); err != nil {
		return err
	}
	return by.Require(o.Scope)
}

// checkSuspended returns a fault if the actor's team is suspended.
func checkSuspended(by *teams.Actor) error {
	if !by.Suspended {
		return nil
	}
	return fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why.")
}

// answerNotFound responds to a request for a path that has no operation. If authentication fails, the client gets the
// authentication error instead of status 404.
func (s *Server) answerNotFound(w *recorder, r *http.Request, authenticate func(*recorder, *http.Request) error) {
	err := authenticate(w, r)
	if err == nil {
		err = checkSuspended(&w.actor)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.fail(w, r, fault.NotFoundf("The requested endpoint does not exist. See /docs."))
}

func (s *Server) answerWrongMethod(w *recorder, r *http.Request, authenticate func(*recorder, *http.Request) error) {
	err := authenticate(w, r)
	if err == nil {
		err = checkSuspended(&w.actor)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
		if s.routes.Match(chi.NewRouteContext(), m, routePath(r)) {
			allowed = append(allowed, m)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeStatus(w, http.StatusMethodNotAllowed, "method_not_allowed", "The method "+r.Method+" is not allowed here; "+
		"use "+strings.Join(allowed, " or ")+".")
}

func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}

// clientIP returns the client's IP address without the port.
func clientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
