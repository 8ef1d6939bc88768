package oauth

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/lib/fault"
)

const serverError grants.Code = "server_error"

// refusal is the JSON body of all error responses (RFC 6749 section 5.2).
type refusal struct {
	Error       grants.Code `json:"error"`
	Description string      `json:"error_description"`
}

// statusOf returns the HTTP status for an error at the endpoints that OAuth clients call.
func statusOf(c grants.Code) int {
	switch c {
	case grants.InvalidClient:
		return http.StatusUnauthorized
	case grants.TooManyRequests:
		return http.StatusTooManyRequests
	}
	return http.StatusBadRequest
}

// fail sends an error response, and also logs the error if the request failed for an internal reason.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := errors.AsType[*grants.Error](err); ok {
		if h := w.Header(); e.Code == grants.TooManyRequests && h.Get("Retry-After") == "" {
			h.Set("Retry-After", "3600")
		}
		writeRefusal(w, statusOf(e.Code), e.Code, e.Text)
		return
	}
	s.report(r, err)
	if fault.KindOf(err) == fault.Unavailable {
		w.Header().Set("Retry-After", "1")
		writeRefusal(w, http.StatusServiceUnavailable, "temporarily_unavailable", "Try again in a moment.")
		return
	}
	writeRefusal(w, http.StatusInternalServerError, serverError, "Something went wrong on our side. Try again.")
}

// report logs a failure unless the client has disconnected. While a service is unavailable, the rate of log lines is
// limited.
func (s *Server) report(r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	logged, leftOut := true, 0
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.Unavailable {
		logged, leftOut = s.outageLog.Allow()
		if e.Unwrap() != nil {
			err = e.Unwrap()
		}
	}
	if logged {
		s.Log.Error("an OAuth request failed", "path", r.URL.Path, "error", err, "more_like_it", leftOut)
	}
}

func writeRefusal(w http.ResponseWriter, status int, c grants.Code, text string) {
	writeJSON(w, status, refusal{c, text})
}

// writeJSON writes a JSON response, which must not be cached unless the caller has set Cache-Control.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"server_error"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	w.Write(body)
}
