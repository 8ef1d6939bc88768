// Package outbox serves the outbox of a node in development: the emails that were captured instead of being sent. The
// outbox has an API for programs, such as end-to-end tests, and a page for browsers. A request that accepts HTML and
// has no key gets the page.
//
// # Invariants
//
// A misspelt, repeated, empty or unknown query parameter is an error, because a filter that is ignored would select
// other emails. Requests that change something are refused if they come from another web site. No response can be read
// by another site. Emails are untrusted: their HTML cannot run scripts or load anything, and browsers save attachments
// without interpreting them.
//
// A request that waits for an email does not poll. At most [maxWaiting] requests wait at the same time, and at most
// [maxParsing] emails are parsed at the same time.
//
// # Failures
//
// Errors have the form of the API's errors, or are error pages for browsers. The page shows emails without their checks
// if the checks do not end in time. If the blobs or the database are away, the status is 503. A request that
// waited in vain has the status 408. When the node stops, requests that wait end with the status 503.
//
// # Out of scope
//
// The package does not check who may open the outbox; the caller does. Package capture stores the emails.
package outbox

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

// Path is the path of the outbox. All other paths of the outbox begin with Path and a slash.
const Path = "/dev/outbox"

const (
	maxWaiting = 500 // requests that wait for emails
	maxParsing = 4   // emails that are parsed at the same time, each of which may have tens of megabytes
	maxBody    = 64 << 10
)

// Deps are the dependencies of the outbox.
type Deps struct {
	Outbox *capture.Outbox
	// Check runs the checks of a sent email. Its result is sent as JSON.
	Check func(ctx context.Context, teamID, emailID string) (any, error)
	// Release sends a captured email through a mail server.
	Release func(ctx context.Context, captureID string, r capture.Release) (capture.Released, error)

	Site  *web.Site // serves the pages
	Relay string    // the operator's mail server as host:port, or ""
	Sends bool      // whether emails go to the relay at once instead of the outbox
	Log   *slog.Logger
}

// server serves the outbox.
type server struct {
	Deps
	origins *http.CrossOriginProtection
	waiting chan struct{} // holds a value for each request that waits
	parsing chan struct{} // holds a value for each email that is being parsed
	pages   *http.ServeMux

	mu    sync.Mutex
	found map[string]findings // by id of the email
	gone  *capture.Deleted    // the email that was deleted last, or nil
}

// Register adds the outbox to a mux.
func Register(mux *http.ServeMux, d Deps) error {
	if err := fault.Complete(d); err != nil {
		return err
	}
	s := &server{Deps: d, origins: http.NewCrossOriginProtection(), waiting: make(chan struct{}, maxWaiting),
		parsing: make(chan struct{}, maxParsing), pages: http.NewServeMux(), found: map[string]findings{}}
	for pattern, h := range map[string]handler{
		"GET " + Path:                               s.list,
		"DELETE " + Path:                            s.deleteAll,
		"GET " + Path + "/wait":                     s.wait,
		"GET " + Path + "/events":                   s.events,
		"GET " + Path + "/{id}":                     s.get,
		"PATCH " + Path + "/{id}":                   s.update,
		"DELETE " + Path + "/{id}":                  s.delete,
		"GET " + Path + "/{id}/raw":                 s.raw,
		"GET " + Path + "/{id}/html":                s.html,
		"GET " + Path + "/{id}/checks":              s.checks,
		"GET " + Path + "/{id}/attachments/{index}": s.attachment,
		"POST " + Path + "/{id}/release":            s.release,
		Path:                                        unknown,
		Path + "/":                                  unknown,
	} {
		mux.HandleFunc(pattern, s.serve(h))
	}
	for pattern, h := range map[string]handler{
		"GET " + Path:                    s.page,
		"GET " + Path + "/{id}":          s.page,
		"POST " + Path + "/clear":        s.clearForm,
		"POST " + Path + "/read":         s.readAllForm,
		"POST " + Path + "/{id}/delete":  s.deleteForm,
		"POST " + Path + "/{id}/restore": s.restoreForm,
		"POST " + Path + "/{id}/unread":  s.readForm(false),
		"POST " + Path + "/{id}/release": s.releasePage,
		Path:                             unknown,
		Path + "/":                       unknown,
	} {
		d.Site.Handle(s.pages, pattern, func(w http.ResponseWriter, r *http.Request) error {
			if err := s.checkOrigin(r); err != nil {
				return err
			}
			return h(w, r)
		})
	}
	return nil
}

// handler answers a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

func unknown(_ http.ResponseWriter, r *http.Request) error {
	return fault.NotFoundf("The outbox has no operation %.20s %.200s.", r.Method, r.URL.Path)
}

// serve adds to a handler what all paths have in common: headers, the protection against other sites, and errors.
func (s *server) serve(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Frame-Options", "SAMEORIGIN")
		if hasPage(r) {
			s.pages.ServeHTTP(w, r)
			return
		}
		err := s.checkOrigin(r)
		if err == nil {
			err = h(w, r)
		}
		if err != nil && r.Context().Err() == nil {
			s.fail(w, r, err)
		}
	}
}

// checkOrigin refuses a request that a page of another site, or of another port of this machine, made to change
// something.
func (s *server) checkOrigin(r *http.Request) error {
	if err := s.origins.Check(r); err != nil {
		return fault.Forbiddenf("", "This request came from another web site, so nothing was changed.").Because(err)
	}
	return nil
}

// fail sends an error response. Internal errors are logged.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case ok:
	case fault.IsOutage(err):
		e = fault.New(fault.Unavailable, "", "The outbox cannot be read or changed at present, because its storage does "+
			"not answer. Try again in a moment.").Because(err)
	default:
		e = fault.New(fault.Internal, "", "").Because(err)
	}
	if cause := e.Unwrap(); cause != nil && fault.Ours(e) {
		s.Log.Error("a request to the outbox failed", "request", r.Pattern, "error", cause)
	}
	wire.WriteError(w, e)
}

// wantsPage reports whether a request comes from a browser that shows a page.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && r.Header.Get("Authorization") == ""
}

// hasPage reports whether a browser gets a page in response to a request. The parts of an email are the same for
// browsers and programs.
func hasPage(r *http.Request) bool {
	if r.Method == http.MethodPost {
		return wantsPage(r) && isForm(r)
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, Path), "/")
	return wantsPage(r) && r.Method == http.MethodGet && (len(parts) < 3 && r.URL.Path != Path+"/wait" &&
		r.URL.Path != Path+"/events")
}

// answer sends a JSON response.
func (s *server) answer(w http.ResponseWriter, r *http.Request, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(append(text, '\n')); err != nil && r.Context().Err() == nil {
		s.Log.Debug("a response of the outbox was not received", "request", r.Pattern, "error", err)
	}
	return nil
}

// readBody decodes the body of a request, which must be JSON without unknown fields.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, into, json.RejectUnknownMembers(true))
	}
	if err != nil {
		return fault.New(fault.Malformed, "", "The body must be a JSON object with the fields that docs/testing-emails.md "+
			"lists.").Because(err)
	}
	return nil
}
