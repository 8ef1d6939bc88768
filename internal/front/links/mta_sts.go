package links

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

const policyPath = "/.well-known/mta-sts.txt"

// Policies serves the MTA-STS policies of receiving domains (RFC 8461 section 3.3). A host whose name begins with
// mta-sts. serves its policy and nothing else. The status is 404 if the host has no policy, and 503 if the database is
// unavailable. In both cases, senders keep the policy that they have stored.
type Policies struct {
	policies  *servedpolicies.Service
	log       *slog.Logger
	outageLog lograte.Limiter
}

// NewPolicies returns the handler for the hosts of MTA-STS policies.
func NewPolicies(s *servedpolicies.Service, log *slog.Logger) *Policies {
	return &Policies{policies: s, log: log}
}

// Serves reports whether the host of a request begins with mta-sts.
func (p *Policies) Serves(r *http.Request) bool {
	_, ok := mtasts.CutHost(host(r))
	return ok
}

// ServeHTTP serves a policy. Senders must not use HTTP caches (RFC 8461 section 3.3), so the response forbids caching.
func (p *Policies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
	if r.URL.Path != policyPath {
		http.Error(w, "There is nothing at this address.", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "A policy can only be read.", http.StatusMethodNotAllowed)
		return
	}
	body, err := p.policies.Body(r.Context(), host(r))
	switch {
	case errors.Is(err, servedpolicies.ErrNoPolicy):
		http.Error(w, "There is no policy at this host.", http.StatusNotFound)
	case err != nil:
		if logged, leftOut := p.outageLog.Allow(); logged && r.Context().Err() == nil {
			p.log.Error("a policy could not be looked up", "error", err, "more_like_it", leftOut)
		}
		h.Set("Retry-After", "60")
		http.Error(w, "The policy is temporarily unavailable. Try again in a minute.", http.StatusServiceUnavailable)
	default:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body) // a client that has disconnected needs no answer; HEAD has no body
	}
}
