package links

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
)

var (
	//go:embed note.html
	noteHTML     string
	noteTemplate = template.Must(template.New("note").Parse(noteHTML))
)

// note is the content of a short page, which may have a list of names and a button.
type note struct {
	Style                       template.CSS
	Heading, Text, Button, Hint string
	Names                       []string // the page shows the first 100
}

func (l *Links) write(w http.ResponseWriter, r *http.Request, status int, n note) {
	const most = 100
	n.Names = n.Names[:min(len(n.Names), most)]
	n.Style = template.CSS(unsubscribeCSS)
	var page bytes.Buffer
	if err := noteTemplate.Execute(&page, n); err != nil {
		l.log.Error("could not render a page", "link", r.Pattern, "error", err)
		http.Error(w, "Something went wrong on our side. Try again in a moment.", http.StatusInternalServerError)
		return
	}
	setPageHeader(w.Header(), "en")
	w.WriteHeader(status)
	w.Write(page.Bytes())
}

// setPageHeader sets the header fields of a page that a token opens.
func setPageHeader(h http.Header, language string) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", language)
	h.Set("Content-Security-Policy", unsubscribePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
}

// writeError sends an error as a page to browsers, and as plain text to other clients. The first sentence is the
// heading.
func (l *Links) writeError(w http.ResponseWriter, r *http.Request, status int, text string) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		h := w.Header()
		h.Set("X-Robots-Tag", "noindex")
		h.Set("Cache-Control", "private, no-store")
		http.Error(w, text, status)
		return
	}
	heading, rest, _ := strings.Cut(text, ". ")
	l.write(w, r, status, note{Heading: strings.TrimSuffix(heading, "."), Text: rest})
}
