package links

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/lograte"
)

// TLSAsk returns the handler for GET /tls/ask?domain=NAME. A reverse proxy with on-demand TLS requests this path to
// find out whether it may obtain a certificate for a host. The status is 200 if the host is listed in own or
// allowed returns true for it, and 404 otherwise. If the database is unavailable, the status is 503, which proxies
// treat as a refusal.
func TLSAsk(allowed func(ctx context.Context, host string) (bool, error), log *slog.Logger,
	own ...string) http.Handler {
	var outageLog lograte.Limiter
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, no-store")
		host := strings.ToLower(strings.TrimSuffix(r.URL.Query().Get("domain"), "."))
		ok, err := slices.Contains(own, host), error(nil)
		if host == "" {
			ok = false
		} else if !ok {
			ok, err = allowed(r.Context(), host)
		}
		switch {
		case err != nil && r.Context().Err() == nil:
			if logged, leftOut := outageLog.Allow(); logged {
				log.Error("could not look up whether a host may have a certificate", "error", err, "more_like_it", leftOut)
			}
			fallthrough
		case err != nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "The lookup failed. Try again in a moment.", http.StatusServiceUnavailable)
		case !ok:
			http.Error(w, "This host is neither a tracking host nor an MTA-STS policy host.", http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
}
