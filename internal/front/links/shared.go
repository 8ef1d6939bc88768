package links

import (
	"bufio"
	"context"
	_ "embed"
	"html/template"
	"io"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
)

//go:embed shared.html
var sharedHTML string

// sharedTemplate contains two templates: `head` for the part of the page before the email's content, and `foot` for the
// part after it.
var sharedTemplate = template.Must(template.New("shared").Parse(sharedHTML))

// sharedPage is the content of a page that shows a shared email.
type sharedPage struct {
	Subject, From   string
	To, Cc, ReplyTo []string
	Date            time.Time
	MessageID       string
	Attachments     []sharedFile

	html  func(io.Writer) error // writes the email's HTML; nil if the email has no HTML
	text  string
	close func() // releases the memory reserved for the page
}

type sharedFile struct {
	Name, Type, URL string
	Size            int64
}

// showShared shows the email that a token refers to. A token is valid for either a sent email or a received email.
func (l *Links) showShared(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	p, err := l.sharedSent(r.Context(), token)
	if fault.KindOf(err) == fault.NotFound {
		p, err = l.sharedReceived(r.Context(), token)
	}
	if err != nil {
		l.fail(w, r, err)
		return
	}
	defer p.close()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src https: http: data:; "+
		"frame-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	if err := p.write(w); err != nil {
		if r.Context().Err() == nil {
			l.log.Warn("showing a shared email failed midway", "error", err)
		}
		panic(http.ErrAbortHandler) // closes the connection, because an incomplete page must not look complete
	}
}

func (l *Links) sharedSent(ctx context.Context, token string) (*sharedPage, error) {
	e, files, err := l.emails.Shared(ctx, token)
	if err != nil {
		return nil, err
	}
	p := &sharedPage{Subject: e.Subject, From: e.From, To: e.To, Cc: e.Cc, ReplyTo: e.ReplyTo, Date: e.CreatedAt,
		MessageID: e.MessageID, close: func() {}}
	if e.HTML != nil && *e.HTML != "" {
		p.html = func(w io.Writer) error { _, err := io.WriteString(w, *e.HTML); return err }
	}
	if e.Text != nil {
		p.text = *e.Text
	}
	for _, f := range files {
		link, _ := l.emails.DownloadURL(&f, time.Now())
		p.Attachments = append(p.Attachments, sharedFile{f.Filename, f.ContentType, link, f.Size})
	}
	return p, nil
}

func (l *Links) sharedReceived(ctx context.Context, token string) (*sharedPage, error) {
	e, err := l.received.Shared(ctx, token)
	if err != nil {
		return nil, err
	}
	p := &sharedPage{Subject: e.Subject, From: e.From, To: e.To, Cc: e.Cc, ReplyTo: e.ReplyTo, Date: e.CreatedAt,
		MessageID: e.MessageID, close: e.Close}
	if e.Author != "" {
		p.From = e.Author + " <" + e.From + ">"
	}
	if e.HTML != nil && *e.HTML != "" {
		p.html = e.WriteHTML
	}
	if e.Text != nil {
		p.text = *e.Text
	}
	for _, f := range e.Files {
		link, _ := l.received.FileURL(e.TeamID, e.ID, f.ID, time.Now())
		p.Attachments = append(p.Attachments, sharedFile{f.Filename, f.ContentType, link, f.Size})
	}
	return p, nil
}

// write writes the page. The email's HTML and plain text may be tens of megabytes long. They are escaped in chunks,
// because a template would hold each of them in one string.
func (p *sharedPage) write(w io.Writer) error {
	out := bufio.NewWriterSize(w, escapeChunk)
	if err := sharedTemplate.ExecuteTemplate(out, "head", p); err != nil {
		return err
	}
	if p.html != nil {
		out.WriteString(`<iframe sandbox srcdoc="`)
		if err := p.html(escaper{out}); err != nil {
			return err
		}
		out.WriteString("\" title=\"The email\"></iframe>\n")
	}
	if p.text != "" {
		out.WriteString("<h2>Plain text</h2><pre>\n") // HTML ignores a line feed at the start of a pre element
		if _, err := io.WriteString(escaper{out}, p.text); err != nil {
			return err
		}
		out.WriteString("</pre>\n")
	}
	if err := sharedTemplate.ExecuteTemplate(out, "foot", p); err != nil {
		return err
	}
	return out.Flush()
}

// escapeChunk is how many bytes are escaped at a time.
const escapeChunk = 32 << 10

// escaper escapes text for HTML. Escaped text can be used between tags and in quoted attributes.
type escaper struct{ out *bufio.Writer }

// Write implements io.Writer.
func (e escaper) Write(b []byte) (int, error) {
	template.HTMLEscape(e.out, b)
	_, err := e.out.Write(nil) // an empty write returns any earlier error from the bufio.Writer
	return len(b), err
}

// WriteString implements io.StringWriter, so that a large string is copied in chunks.
func (e escaper) WriteString(s string) (n int, err error) {
	for err == nil && n < len(s) {
		piece := s[n:min(n+escapeChunk, len(s))]
		_, err = e.Write([]byte(piece))
		n += len(piece)
	}
	return n, err
}
