package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
)

var (
	errForeign = fault.Forbiddenf("", "This request came from another site, so nothing was changed. Go back to the "+
		"page and submit it from there.")
	errSignedOut = fault.New(fault.NoCredential, "", "You are no longer signed in. Reload the page.")
	errLong      = fault.New(fault.Malformed, "", "The address of this page is too long to return to it after you "+
		"sign in. Sign in first, and then open it.")
	errAddress = fault.New(fault.Malformed, "", "The address of this page has characters that are no text. Open the page "+
		"again from the navigation.")
	errTooFast = fault.New(fault.TooFast, "", "You requested too many pages in one second, so nothing was done. "+
		"Wait a second and reload.")
	errLarge = fault.New(fault.Malformed, "", "The form is too large.")
)

var errorPage = Page(`{{define "title"}}{{.Title}}{{end}}
{{define "main"}}<div class="head"><div><h1>{{.Title}}</h1><p>{{.Message}}</p></div></div>
<div class="actions"><a class="b" href="/app/emails">Go to your emails</a></div>{{end}}`)

// statusOf returns the HTTP status for a kind of fault.
func statusOf(k fault.Kind) int {
	switch k {
	case fault.Internal:
		return http.StatusInternalServerError
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Forbidden, fault.Restricted, fault.OutOfScope, fault.Suspended:
		return http.StatusForbidden
	case fault.NoCredential, fault.BadCredential:
		return http.StatusUnauthorized
	case fault.Locked, fault.InFlight, fault.IdempotencyMismatch:
		return http.StatusConflict
	case fault.TooFast, fault.DailyQuota, fault.MonthlyQuota:
		return http.StatusTooManyRequests
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	case fault.Malformed, fault.BadID, fault.MissingParameter:
		return http.StatusBadRequest
	}
	return http.StatusUnprocessableEntity
}

func titleOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return "Page not found"
	case http.StatusForbidden:
		return "This is not allowed"
	case http.StatusTooManyRequests:
		return "Too many requests"
	case http.StatusInternalServerError:
		return "Something went wrong"
	}
	return "This cannot be done"
}

// inPageWords returns the title and the text of an error page. Services write for clients of the API: they say only
// that an object was not found, and mark names with backticks.
func inPageWords(status int, message string) (title, text string) {
	object, ok := strings.CutSuffix(message, " not found")
	if status != http.StatusNotFound || !ok || object == "" {
		return titleOf(status), InWords("", message, nil)
	}
	if object[1:] == strings.ToLower(object[1:]) { // not an abbreviation, as in API key
		object = strings.ToLower(object)
	}
	return message, "This " + object + " does not exist, is no longer kept, or belongs to another team."
}

// fail responds with an error page or JSON. Internal errors are logged, and their message is not shown to the user.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, message := http.StatusInternalServerError, "Something went wrong on our side. Try again in a moment."
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind != fault.Internal {
		status, message = statusOf(e.Kind), e.Message
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		s.log.Debug("a page was refused", "page", r.Pattern, "reason", err, "cause", errors.Unwrap(e))
	} else {
		s.log.Error("a page failed", "page", r.Pattern, "error", err) // not the path, which may contain secrets
	}
	e, _ := errors.AsType[*fault.Error](err)
	if status == http.StatusServiceUnavailable {
		retryAfter(w.Header())
	}
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.MarshalWrite(w, struct {
			Message string `json:"message"`
		}{message})
		return
	}
	if isFrame(r) {
		s.failFrame(w, r, status, message)
		return
	}
	if status == http.StatusServiceUnavailable {
		if err := s.outage(w, r, e); err != nil {
			s.log.Error("rendering the page of an outage failed", "error", err)
			http.Error(w, message, status)
		}
		return
	}
	title, message := inPageWords(status, message)
	of := layoutData{Data: struct{ Title, Message string }{title, message}}
	// The error page for an internal error does not show the visitor, because looking up the visitor may be the operation
	// that failed.
	if v, ok, err := s.Visitor(r); err == nil && ok && status != http.StatusInternalServerError {
		of.Visitor = &v
	}
	o := options{crumbs: []Crumb{{Label: title}}}
	s.frame(r, &of, &o)
	if err := s.write(w, r, status, errorPage, of, &o); err != nil {
		s.log.Error("rendering the error page failed", "error", err)
		http.Error(w, message, status)
	}
}

// wantsJSON reports whether the request comes from a page's script, which expects JSON.
func wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "application/json")
}
