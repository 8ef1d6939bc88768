package links

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/sending/domains"
)

// TLSAsk returns the handler of GET /tls/ask?domain=NAME, by which a reverse proxy that gets certificates on demand
// learns whether it may get one for a host: 200 if it is one of own, or the host of some domain's tracked links,
// present or old; 404 otherwise. Without the database it answers 503, which proxies take for no.
func TLSAsk(d *domains.Service, log *slog.Logger, own ...string) http.Handler {
	var away lograte.Limiter
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, no-store")
		host := strings.ToLower(strings.TrimSuffix(r.URL.Query().Get("domain"), "."))
		ok, err := slices.Contains(own, host), error(nil)
		if host == "" {
			ok = false
		} else if !ok {
			ok, err = d.IsTrackingHost(r.Context(), host)
		}
		switch {
		case err != nil && r.Context().Err() == nil:
			if logged, leftOut := away.Allow(); logged {
				log.Error("could not say whether a host needs a certificate", "error", err, "more_like_it", leftOut)
			}
			fallthrough
		case err != nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "This is not known at present. Try again in a moment.", http.StatusServiceUnavailable)
		case !ok:
			http.Error(w, "This is no host of tracked links.", http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
}
