// Package links serves the links that need no key: signed downloads, shared emails, and tracked links and pixels.
//
// # Invariants
//
// The token in a link says what it opens and until when, and is signed by us. A token that is forged or meant for
// something else is answered as not found, and so is one of a team that was deleted. A tracked link goes on leading to
// its target whatever was deleted. Pages are not to be indexed, and the HTML of an email is shown in a frame that may
// not run scripts or reach any other part of this host.
//
// # When it fails
//
// Large received emails are shown with memory that all readers of their team share; if there is none the answer is
// 503 with Retry-After. Internal failures are logged and answered without their cause. Pages and files are written
// while they are read, not collected first: if reading fails later, the client gets an incomplete response.
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
	emails   *emails.Service
	received *receiving.Service
	log      *slog.Logger
	away     lograte.Limiter // limits log lines about what is unavailable
}

// New returns the handlers.
func New(e *emails.Service, r *receiving.Service, log *slog.Logger) *Links {
	return &Links{emails: e, received: r, log: log}
}

// Register adds the handlers to a mux: /download/{token} serves attachments of sent emails,
// /download/received/{token} those of received ones, /download/raw/{token} received emails as they came in, and
// /shared the pages of both.
func (l *Links) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /download/{token}", l.download)
	mux.HandleFunc("GET /download/received/{token}", l.give(l.received.OpenFile))
	mux.HandleFunc("GET /download/raw/{token}", l.give(l.received.OpenRaw))
	mux.HandleFunc("GET /shared", l.showShared)
}

func (l *Links) download(w http.ResponseWriter, r *http.Request) {
	a, content, err := l.emails.Download(r.Context(), r.PathValue("token"))
	if err != nil {
		l.fail(w, r, err)
		return
	}
	defer content.Close()
	saved(w, a.Filename, a.ContentType, a.Size)
	if _, err := io.Copy(w, content); err != nil && r.Context().Err() == nil {
		l.log.Warn("a download broke off", "attachment", a.ID, "error", err)
	}
}

// fail answers with a sentence. The cause of an internal failure is logged and not shown.
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
	if status >= 500 && r.Context().Err() == nil { // Otherwise the client went away, which is no failure.
		logged, leftOut := true, 0
		if kind == fault.Unavailable {
			logged, leftOut = l.away.Allow()
			if f, ok := errors.AsType[*fault.Error](err); ok && f.Unwrap() != nil {
				err = f.Unwrap() // The text of the fault is for the reader only.
			}
		}
		if logged {
			// The pattern and not the path: the path contains the token, which would give every reader of the log access.
			l.log.Error("could not serve a link", "link", r.Pattern, "error", err, "more_like_it", leftOut)
		}
	}
	h := w.Header()
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "private, no-store")
	http.Error(w, text, status)
}
