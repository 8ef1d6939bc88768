package web

import (
	"html/template"
	"net/http"
)

// A page shows mail in a frame that runs no scripts. If the mail cannot be shown, the frame says why. A browser does
// not refresh such a frame by itself, so the script of the page loads it again after an outage. Without JavaScript, the
// reader must load the page again: a link in the frame would come from another origin, and the browser would not send
// the session with it. The script recognizes the error by the empty frame in it: a page can see nothing else of a
// frame of another origin.

var frameError = template.Must(template.New("frame").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Title}}</title>
<p role="status">{{.Message}}</p>
{{if .Again}}<p>Load the page again to try once more.</p>
<iframe hidden title="Nothing"></iframe>
{{end}}</html>
`))

// isFrame reports whether a request is for a frame. Browsers without Sec-Fetch-Dest, and those that reach the server
// without TLS, do not say so.
func isFrame(r *http.Request) bool {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	dest := r.Header.Get("Sec-Fetch-Dest")
	return v != nil && v.frame && (dest == "" || dest == "iframe" || dest == "empty")
}

// failFrame responds with an error for a frame.
func (s *Site) failFrame(w http.ResponseWriter, r *http.Request, status int, message string) {
	data := struct {
		Title, Message string
		Again          bool
	}{Title: titleOf(status), Message: message}
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError:
		data.Again = true
	}
	MailHeaders(w.Header(), false)
	w.WriteHeader(status)
	if err := frameError.Execute(w, data); err != nil {
		s.log.Debug("an error in a frame could not be sent", "error", err)
	}
}
