package api

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

// answers is the only table that maps a fault to a status and a name (API reference section 4.1). It uses only names
// of the reference: strict clients know a closed set.
var answers = map[fault.Kind]struct {
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

// envelope is the body of every error.
type envelope struct {
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Name       string `json:"name"`
}

// fail answers with an error.
func (a *API) fail(w *recorder, r *http.Request, err error) {
	e := judge(w, r, err)
	if a.PublicURL != "" {
		a.challenge(w, r, e.Kind)
	}
	writeError(w, e)
}

// challenge tells programs where they can get a token (RFC 9728 section 5.1), and what is wrong with theirs (RFC 6750
// section 3).
func (a *API) challenge(w *recorder, r *http.Request, k fault.Kind) {
	address := a.PublicURL
	if a.Address != nil {
		address = a.Address(r)
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

// judge returns the fault that an error is for the client. The cause of an internal failure goes into the log line of
// the request.
func judge(w *recorder, r *http.Request, err error) *fault.Error {
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case ok:
	case r.Context().Err() != nil:
		// The client went away, so it does not receive the answer.
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

// errFull means that a request found no room for its body or its answer.
var errFull = errors.New("no room is left for it")

// isBusy reports whether the cause of an Unavailable fault is how much is asked for at present, by the same team or by
// others, and no failure: whoever asks for much must not wake an operator.
func isBusy(cause error) bool {
	return errors.Is(cause, db.ErrCrowded) || errors.Is(cause, db.ErrTooLong) || errors.Is(cause, errFull)
}

func writeError(w http.ResponseWriter, e *fault.Error) {
	x, ok := answers[e.Kind]
	if !ok {
		x = answers[fault.Internal]
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
	body, err := json.Marshal(envelope{status, message, name})
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
