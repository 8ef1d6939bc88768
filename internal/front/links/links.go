// Package links serves the links that work without an API key: signed downloads, shared emails, tracked links and
// pixels, and unsubscribe pages.
//
// # Invariants
//
// The signed token in a link identifies the link's target and, if the link expires, its expiry time. A request with a
// token that is forged, was issued for another purpose, or belongs to a deleted team gets status 404. A tracked link
// continues to redirect to its target after its email or team has been deleted. All pages tell search engines not to
// index them. The HTML of an email is shown in a sandboxed frame that cannot run scripts or access other pages of this
// host.
//
// # Failures
//
// Showing a large received email reserves memory from the team's share. If not enough memory is available, the response
// is 503 with Retry-After. Internal errors are logged, and their cause is not included in the response. Pages and files
// are streamed. If reading the data fails after the response has started, the client gets an incomplete response.
package links

import (
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Links serves /download/ and /shared.
type Links struct {
	emails    *emails.Service
	received  *receiving.Service
	log       *slog.Logger
	outageLog lograte.Limiter // limits log lines about unavailable services
}

// New returns the handlers for /download/ and /shared.
func New(e *emails.Service, r *receiving.Service, log *slog.Logger) *Links {
	return &Links{emails: e, received: r, log: log}
}

// Register adds the handlers to a mux. /download/{token} serves attachments of sent emails. /download/received/{token}
// serves attachments of received emails. /download/raw/{token} serves received emails in their original form. /shared
// shows sent and received emails.
func (l *Links) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /download/{token}", l.download)
	mux.HandleFunc("GET /download/received/{token}", l.serveFile(l.received.OpenFile))
	mux.HandleFunc("GET /download/raw/{token}", l.serveFile(l.received.OpenRaw))
	mux.HandleFunc("GET /shared", l.showShared)
}

func (l *Links) download(w http.ResponseWriter, r *http.Request) {
	a, content, err := l.emails.Download(r.Context(), r.PathValue("token"))
	if err != nil {
		l.fail(w, r, err)
		return
	}
	defer content.Close()
	writeFileHeader(w, a.Filename, a.ContentType, a.Size)
	if _, err := io.Copy(w, content); err != nil && r.Context().Err() == nil {
		l.log.Warn("a download failed midway", "attachment", a.ID, "error", err)
	}
}

// fail sends an error response with a message. Internal errors are logged, and their cause is not included in the
// response.
func (l *Links) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "Something went wrong on our side. Try again in a moment."
	kind := fault.KindOf(err)
	switch kind {
	case fault.NotFound:
		status, text = http.StatusNotFound, err.Error()
	case fault.Forbidden:
		status, text = http.StatusForbidden, err.Error()
	case fault.TooFast:
		status, text = http.StatusTooManyRequests, err.Error()
		w.Header().Set("Retry-After", "3600")
	case fault.Unavailable:
		status, text = http.StatusServiceUnavailable, "This cannot be shown at present. Try again in a moment."
		w.Header().Set("Retry-After", "1")
	}
	if status >= 500 && r.Context().Err() == nil { // a client that disconnects is not a failure
		logged, leftOut := true, 0
		if kind == fault.Unavailable {
			logged, leftOut = l.outageLog.Allow()
			if f, ok := errors.AsType[*fault.Error](err); ok && f.Unwrap() != nil {
				err = f.Unwrap() // the fault's own message is meant for the client, not for the log
			}
		}
		if logged {
			// Log the pattern instead of the path, because the path contains the token.
			l.log.Error("could not serve a link", "link", r.Pattern, "error", err, "more_like_it", leftOut)
		}
	}
	l.writeError(w, r, status, text)
}
