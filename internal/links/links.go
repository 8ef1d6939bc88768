// Package links serves what strangers follow: signed downloads and shared emails.
//
// Whoever has a link needs no key; the token in it says what it opens, until when, and that we made it. A token that
// is forged or meant for something else is answered as if there were nothing, and so is one of a team that was deleted.
// Pages are not to be indexed, and an email's HTML is shown in a frame that may run no script and reach no other part
// of this host.
//
// What is shown of large received emails takes memory that their team's readers share; when there is none the answer is
// 503 with Retry-After. Pages and files are written as they are read, and not gathered first.
package links

import (
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/lograte"
	"github.com/postrider/postrider/internal/receiving"
)

// Links serves /download/ and /shared.
type Links struct {
	emails   *emails.Service
	received *receiving.Service
	log      *slog.Logger
	away     lograte.Limiter // lines about what is not available
}

// New returns the handlers.
func New(e *emails.Service, r *receiving.Service, log *slog.Logger) *Links {
	return &Links{emails: e, received: r, log: log}
}

// Register adds the handlers to a mux: /download/{token} has attachments of sent emails, /download/received/{token}
// those of received ones, /download/raw/{token} received emails as they came in, and /shared the pages of both.
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

// fail answers a stranger in a sentence. What went wrong on our side is logged and not told.
func (l *Links) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "Something went wrong on our side. Try again in a moment."
	kind := fault.KindOf(err)
	switch kind {
	case fault.NotFound:
		status, text = http.StatusNotFound, err.Error()
	case fault.Forbidden:
		status, text = http.StatusForbidden, err.Error()
	case fault.Unavailable:
		status, text = http.StatusServiceUnavailable, "This cannot be shown at present. Try again in a moment."
		w.Header().Set("Retry-After", "1")
	}
	if status >= 500 && r.Context().Err() == nil { // Otherwise the client went away, which is no failure.
		logged, leftOut := true, 0
		if kind == fault.Unavailable {
			logged, leftOut = l.away.Allow()
			if f, ok := errors.AsType[*fault.Error](err); ok && f.Unwrap() != nil {
				err = f.Unwrap() // The fault itself says only what its reader is told.
			}
		}
		if logged {
			// Not the path: it has the token, which opens what it stands for to whoever reads the log.
			l.log.Error("could not serve a link", "link", r.Pattern, "error", err, "more_like_it", leftOut)
		}
	}
	h := w.Header()
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "private, no-store")
	http.Error(w, text, status)
}
