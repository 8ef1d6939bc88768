package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler returns the handler for /metrics, /debug/pprof/, /healthz and /readyz. The command line is not among the
// profiles, because it may contain secrets.
func Handler(m *Metrics, h *Health, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		write(w, http.StatusOK, Report{Status: StatusOK})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		report := h.Report(r.Context())
		write(w, report.HTTPStatus(), report)
	})
	return mux
}

// HTTPStatus returns the status of a response with the report.
func (r Report) HTTPStatus() int {
	if r.Status == StatusUnavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

func write(w http.ResponseWriter, status int, r Report) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(r) // the only error is that the client is gone
}

// Serve serves a handler until ctx ends. A profile takes as long as its client asks, so requests have no time limit.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics_listen: %w", err)
	}
	return nil
}
