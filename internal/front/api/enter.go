package api

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
)

// enter authenticates the request and applies the rate limit. Once the actor is known, w has it, and every answer
// states what is left of the rate. Scopes are not checked here.
func (a *API) enter(w *recorder, r *http.Request) error {
	if err := a.authenticate(w, r); err != nil {
		return err
	}
	limit := a.rate(&w.actor)
	if limit == 0 {
		return nil
	}
	used, ok := a.Limits.Count(w.actor.TeamID, limit)
	h := w.Header()
	n := strconv.Itoa(limit)
	h["Ratelimit-Limit"] = []string{n}
	h["Ratelimit-Remaining"] = []string{strconv.Itoa(max(0, limit-used))}
	h["Ratelimit-Reset"] = []string{"1"}
	h["Ratelimit-Policy"] = []string{n + ";w=1"}
	if !ok {
		return fault.New(fault.TooFast, "", "Too many requests: this team may make %d a second. Wait a second and "+
			"try again.",
			limit)
	}
	return nil
}

// authenticate finds out whose request it is, and refuses those of nobody and of suspended teams.
func (a *API) authenticate(w *recorder, r *http.Request) error {
	if a.RequireUserAgent && r.UserAgent() == "" {
		return fault.Forbiddenf("User-Agent", "Requests must have a User-Agent header.")
	}
	token := bearer(r)
	if token == "" {
		return fault.New(fault.NoCredential, "Authorization",
			"Missing API key. Send it as the header `Authorization: Bearer re_...`.")
	}
	// Behind a proxy, all clients may have one address: those with a known key are not held up by those that guess.
	if a.guess.Over(peer(r), guessesPerSecond) && !a.Services.Teams.IsCached(token) {
		return fault.New(fault.TooFast, "", "Too many requests with unknown API keys. Try again in a second.")
	}
	by, err := a.Services.Teams.Authenticate(r.Context(), token)
	if err != nil {
		if fault.KindOf(err) == fault.BadCredential {
			a.guess.Count(peer(r), guessesPerSecond)
		}
		return err
	}
	if err := by.At(cmp.Or(w.resource, teams.APIResource)); err != nil {
		return err
	}
	w.actor = by
	if by.Suspended {
		return suspended()
	}
	return nil
}

// Enter authenticates a request for what is beside the API, at a path of its own for which there are tokens too, as the
// API's own requests are. Unless ok, the request has been answered. It does not count as a request of the team. Requests
// to the API with the context that is returned are part of this one: its token works for them, and only for them if it
// was issued for that path.
func (a *API) Enter(w http.ResponseWriter, r *http.Request, path string) (ctx context.Context, by teams.Actor, ok bool) {
	rec := &recorder{ResponseWriter: w, start: time.Now(), id: requestID(r), resource: path}
	if err := a.authenticate(rec, r); err != nil {
		rec.Header()["X-Request-Id"] = []string{rec.id}
		a.fail(rec, r, err)
		a.finish(rec, r)
		return r.Context(), teams.Actor{}, false
	}
	return context.WithValue(r.Context(), enteredKey{}, path), rec.actor, true
}

type enteredKey struct{}

// entered returns the path at which a request came in by Enter, or "". No client can set it.
func entered(ctx context.Context) string {
	path, _ := ctx.Value(enteredKey{}).(string)
	return path
}

// bearer returns the request's token, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// slowBody is how long a body may take before its key is checked again.
const slowBody = time.Second

// still refuses a slow request if its token was revoked, its team suspended or the scope removed since enter. It is
// one look-up in memory, which is invalidated when any of that happens, and does not count as a request.
func (a *API) still(w *recorder, r *http.Request, scope teams.Scope) error {
	by, err := a.Services.Teams.Authenticate(r.Context(), bearer(r))
	switch {
	case err != nil:
		return err
	case by.Ref() != w.actor.Ref():
		return fault.New(fault.BadCredential, "", "API key is invalid") // Its token was given to another key.
	case by.Suspended:
		return suspended()
	}
	return by.Require(scope)
}

func suspended() error {
	return fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why.")
}

// missing answers for a path without an operation. An unauthenticated client gets the error of enter instead.
func (a *API) missing(w *recorder, r *http.Request) {
	if err := a.enter(w, r); err != nil {
		a.fail(w, r, err)
		return
	}
	a.fail(w, r, fault.NotFoundf("The requested endpoint does not exist. See /docs."))
}

func (a *API) wrongMethod(w *recorder, r *http.Request) {
	if err := a.enter(w, r); err != nil {
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
	writeStatus(w, http.StatusMethodNotAllowed, "method_not_allowed", "The method "+r.Method+" is not allowed here; "+
		"use "+strings.Join(allowed, " or ")+".")
}

func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}
