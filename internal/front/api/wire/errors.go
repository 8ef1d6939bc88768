package wire

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// errorNames is the only table that maps a fault to a status code and a name (API reference section 4.1). All names
// come from the API reference, because strict clients do not accept other names.
var errorNames = map[fault.Kind]struct {
	status int
	name   string
}{
	fault.Internal:            {http.StatusInternalServerError, "application_error"},
	fault.Invalid:             {http.StatusUnprocessableEntity, "validation_error"},
	fault.Missing:             {http.StatusUnprocessableEntity, "missing_required_field"},
	fault.MissingParameter:    {http.StatusUnprocessableEntity, "missing_required_parameter"},
	fault.BadID:               {http.StatusUnprocessableEntity, "invalid_parameter"},
	fault.BadAttachment:       {http.StatusUnprocessableEntity, "invalid_attachment"},
	fault.Malformed:           {http.StatusBadRequest, "validation_error"},
	fault.BadIdempotencyKey:   {http.StatusBadRequest, "invalid_idempotency_key"},
	fault.NotFound:            {http.StatusNotFound, "not_found"},
	fault.Forbidden:           {http.StatusForbidden, "validation_error"},
	fault.NoCredential:        {http.StatusUnauthorized, "missing_api_key"},
	fault.BadCredential:       {http.StatusUnauthorized, "validation_error"},
	fault.Restricted:          {http.StatusUnauthorized, "restricted_api_key"},
	fault.OutOfScope:          {http.StatusForbidden, "invalid_permission"},
	fault.Suspended:           {http.StatusForbidden, "suspended_api_key"},
	fault.IdempotencyMismatch: {http.StatusConflict, "invalid_idempotent_request"},
	fault.InFlight:            {http.StatusConflict, "concurrent_idempotent_requests"},
	fault.Locked:              {http.StatusConflict, "resource_locked"},
	fault.TooFast:             {http.StatusTooManyRequests, "rate_limit_exceeded"},
	fault.DailyQuota:          {http.StatusTooManyRequests, "daily_quota_exceeded"},
	fault.MonthlyQuota:        {http.StatusTooManyRequests, "monthly_quota_exceeded"},
	fault.Unavailable:         {http.StatusServiceUnavailable, "service_unavailable"},
}

// ErrorBody is the JSON body of every error response.
type ErrorBody struct {
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Name       string `json:"name"`
}

// fail sends err as an error response.
func (s *Server) fail(w *recorder, r *http.Request, err error) {
	e := faultOf(w, r, err)
	if s.opts.PublicURL != "" {
		s.addChallenge(w, r, e.Kind)
	}
	WriteError(w, e)
}

// addChallenge adds the WWW-Authenticate header. The header tells the client where to get a token (RFC 9728 section
// 5.1) and why its token was refused (RFC 6750 section 3).
func (s *Server) addChallenge(w *recorder, r *http.Request, k fault.Kind) {
	address := s.opts.PublicURL
	if s.opts.Address != nil {
		address = s.opts.Address(r)
	}
	text := `Bearer resource_metadata="` + address + `/.well-known/oauth-protected-resource` + w.resource + `"`
	switch {
	case k == fault.BadCredential:
		text += `, error="invalid_token"`
	case k == fault.OutOfScope && w.actor.Kind == teams.GrantActor:
		text += `, error="insufficient_scope"`
	case k != fault.NoCredential && k != fault.Restricted:
		return
	}
	w.Header().Set("WWW-Authenticate", text)
}

// faultOf returns the fault to send to the client. For an internal failure, the cause is stored in w so that it can be
// logged.
func faultOf(w *recorder, r *http.Request, err error) *fault.Error {
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case ok:
	case r.Context().Err() != nil:
		// The client has disconnected, so it does not receive this response.
		e = fault.New(fault.Unavailable, "", "The request was canceled.")
	case errors.Is(err, context.DeadlineExceeded):
		e = fault.New(fault.Unavailable, "", "The service took too long. Try again in a moment.").Because(err)
	default:
		e = fault.New(fault.Internal, "", "").Because(err)
	}
	if e.Kind == fault.Internal || e.Kind == fault.Unavailable {
		w.cause = e.Unwrap()
	}
	return e
}

// errNoMemory means that there is no memory left for large bodies or responses.
var errNoMemory = errors.New("the memory for large requests is used up")

// isOverload reports whether an Unavailable fault was caused by high load, not by a failure. Overload must not alert an
// operator, because clients can cause it.
func isOverload(cause error) bool {
	return errors.Is(cause, db.ErrCrowded) || errors.Is(cause, db.ErrTooLong) || errors.Is(cause, errNoMemory)
}

// WriteError sends a fault as an error response. The message of an internal failure is not sent.
func WriteError(w http.ResponseWriter, e *fault.Error) {
	x, ok := errorNames[e.Kind]
	if !ok {
		x = errorNames[fault.Internal]
	}
	message := e.Message
	if x.status == http.StatusInternalServerError {
		message = "Something went wrong on our side. Try again; if it goes on, tell the operator the x-request-id of this " +
			"answer."
	}
	switch x.status {
	case http.StatusUnauthorized:
		if w.Header().Get("WWW-Authenticate") == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", "1")
		}
	}
	writeStatus(w, x.status, x.name, message)
}

func writeStatus(w http.ResponseWriter, status int, name, message string) {
	body, err := json.Marshal(ErrorBody{status, message, name})
	if err != nil {
		body = []byte(`{"statusCode":500,"message":"The answer could not be encoded.","name":"application_error"}`)
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = []string{"application/json; charset=utf-8"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}
