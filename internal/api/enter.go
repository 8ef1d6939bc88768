package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/postrider/postrider/internal/fault"
)

// enter finds out who asks and whether they may ask now. Once the key is known, w has whose it is, and every answer
// tells what is left of the rate.
func (a *API) enter(w *recorder, r *http.Request) error {
	if a.RequireUserAgent && r.UserAgent() == "" {
		return fault.Forbiddenf("User-Agent", "Requests must have a User-Agent header.")
	}
	token := bearer(r)
	if token == "" {
		return fault.New(fault.NoCredential, "Authorization", "Missing API key. Send it as the header `Authorization: Bearer re_...`.")
	}
	// Behind a proxy, all clients may have one address: those whose key is known are not held up by those who guess.
	if a.guess.Over(peer(r), guessesPerSecond) && !a.Services.Teams.Knows(token) {
		return fault.New(fault.TooFast, "", "Too many requests with unknown API keys. Try again in a second.")
	}
	p, err := a.Services.Teams.Authenticate(r.Context(), token)
	if err != nil {
		if fault.KindOf(err) == fault.BadCredential {
			a.guess.Count(peer(r), guessesPerSecond)
		}
		return err
	}
	w.principal = p
	if p.Suspended {
		return fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why.")
	}
	limit := a.rate(p)
	if limit == 0 {
		return nil
	}
	used, ok := a.Limits.Count(p.TeamID, limit)
	h := w.Header()
	n := strconv.Itoa(limit)
	h["Ratelimit-Limit"] = []string{n}
	h["Ratelimit-Remaining"] = []string{strconv.Itoa(max(0, limit-used))}
	h["Ratelimit-Reset"] = []string{"1"}
	h["Ratelimit-Policy"] = []string{n + ";w=1"}
	if !ok {
		return fault.New(fault.TooFast, "", "Too many requests: this team may make %d a second. Wait a second and try again.", limit)
	}
	return nil
}

// bearer is the request's token, or "" when it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// slowBody is how long a body may take before its key is looked at again.
const slowBody = time.Second

// still refuses a request whose key was deleted, or whose team was suspended, while its body came in: who hears that
// it was carried out must be able to rely on it.
func (a *API) still(r *http.Request) error {
	p, err := a.Services.Teams.Authenticate(r.Context(), bearer(r))
	if err == nil && p.Suspended {
		err = fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why.")
	}
	return err
}

// missing answers for a path that no operation has. Who asks is told first whether they may ask.
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
	writeStatus(w, http.StatusMethodNotAllowed, "method_not_allowed", "The method "+r.Method+" is not allowed here; use "+
		strings.Join(allowed, " or ")+".")
}

func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}
