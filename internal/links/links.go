// Package links serves what strangers follow: signed downloads and shared emails.
//
// Whoever has a link needs no key; the token in it says what it opens, until when, and that we made it. A token that
// is forged or meant for something else is answered as if there were nothing. Pages are not to be indexed, and an
// email's HTML is shown in a frame that may run no script and reach no other part of this host.
package links

import (
	"bytes"
	"embed"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/fault"
)

//go:embed shared.html
var files embed.FS

// Links serves /download/{token} and /shared.
type Links struct {
	emails *emails.Service
	log    *slog.Logger
	shared *template.Template
}

// New returns the handlers.
func New(e *emails.Service, log *slog.Logger) *Links {
	return &Links{emails: e, log: log, shared: template.Must(template.ParseFS(files, "shared.html"))}
}

// Register adds the handlers to a mux.
func (l *Links) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /download/{token}", l.download)
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

// sharedPage is what the page of a shared email shows.
type sharedPage struct {
	emails.Email
	Body        string
	Text        string
	Attachments []sharedFile
}

type sharedFile struct {
	Name, Type, URL string
	Size            int64
}

func (l *Links) showShared(w http.ResponseWriter, r *http.Request) {
	e, files, err := l.emails.Shared(r.Context(), r.URL.Query().Get("token"))
	if err != nil {
		l.fail(w, r, err)
		return
	}
	p := sharedPage{Email: e}
	if e.HTML != nil {
		p.Body = *e.HTML
	}
	if e.Text != nil {
		p.Text = *e.Text
	}
	for _, f := range files {
		link, _ := l.emails.DownloadURL(&f, time.Now())
		p.Attachments = append(p.Attachments, sharedFile{f.Filename, f.ContentType, link, f.Size})
	}
	var page bytes.Buffer
	if err := l.shared.Execute(&page, p); err != nil {
		l.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src https: http: data:; frame-src 'self' data:")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	w.Write(page.Bytes())
}

// fail answers a stranger in a sentence. What went wrong on our side is logged and not told.
func (l *Links) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "Something went wrong on our side. Try again in a moment."
	switch fault.KindOf(err) {
	case fault.NotFound:
		status, text = http.StatusNotFound, err.Error()
	case fault.Forbidden:
		status, text = http.StatusForbidden, err.Error()
	default:
		if fault.KindOf(err) == fault.Unavailable {
			status, text = http.StatusServiceUnavailable, "This cannot be shown at present. Try again in a moment."
			w.Header().Set("Retry-After", "1")
		}
		// Not the path: it has the token, which opens what it stands for to whoever reads the log.
		l.log.Error("could not serve a link", "link", r.Pattern, "error", err)
	}
	w.Header().Set("X-Robots-Tag", "noindex")
	http.Error(w, text, status)
}
