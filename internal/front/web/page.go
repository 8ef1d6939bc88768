package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/visible"
)

var (
	//go:embed layout.html
	layoutHTML string
	//go:embed style.css
	styleCSS string

	layout = sync.OnceValue(func() *template.Template {
		functions := template.FuncMap{"date": date, "shown": visible.Show}
		return template.Must(template.New("layout").Funcs(functions).Parse(layoutHTML))
	})

	barePolicy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	styleHash  = hashOf(styleCSS)
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// date formats a time in UTC, because the server does not know the visitor's time zone.
func date(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// Template is the template for a page within the common layout. A Template is parsed when its page is first shown. Lazy
// parsing saves memory: all parsed pages together use a megabyte, and the heap grows to several times its live size.
type Template struct{ parsed func() *template.Template }

// Page returns the template for a page within the common layout. The text must define the templates "title" and "main".
// The text can use the layout's templates "form" for a [Form] and "field" for a [Field], and the function "date" for a
// time. Page is meant for initializing package variables. If the text is not a valid template, showing the page panics.
func Page(text string) *Template {
	return &Template{sync.OnceValue(func() *template.Template {
		return template.Must(template.Must(layout().Clone()).Parse(text))
	})}
}

// Option changes how a page is shown.
type Option func(*options)

type options struct {
	script         string
	redirectTarget string
}

// Script adds a script to the end of a page. The Content-Security-Policy does not allow any other script on the page.
func Script(text string) Option { return func(o *options) { o.script = text } }

// LeadsTo allows the page's forms, when submitted, to redirect to an OAuth client's redirect URI on another site. The
// caller must have checked that the client has registered the URI.
func LeadsTo(address string) Option { return func(o *options) { o.redirectTarget = source(address) } }

// source returns the source expression for an address in a Content-Security-Policy. The source expression is the
// address's origin. If a policy cannot contain the origin, as with app links and IPv6 addresses, the source expression
// is the scheme (CSP level 3, section 2.3.1). If the address has neither an origin nor a scheme, source returns "".
func source(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || strings.ContainsAny(u.Host, "'\"; ,*") {
		return ""
	}
	if (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && !strings.Contains(u.Host, "[") {
		return u.Scheme + "://" + u.Host
	}
	return u.Scheme + ":"
}

// layoutData is the data for the layout template.
type layoutData struct {
	Style   template.CSS
	Script  template.JS
	Visitor *Visitor
	Data    any
}

// Show responds with a page that is rendered from data and a template that [Page] returned.
func (s *Site) Show(w http.ResponseWriter, r *http.Request, status int, t *Template, data any,
	opts ...Option) error {
	var o options
	for _, set := range opts {
		set(&o)
	}
	v, ok, err := s.Visitor(r)
	if err != nil {
		return err
	}
	of := layoutData{Style: template.CSS(styleCSS), Script: template.JS(o.script), Data: data}
	if ok {
		of.Visitor = &v
	}
	return write(w, status, t, of, &o)
}

func write(w http.ResponseWriter, status int, t *Template, of layoutData, o *options) error {
	var page bytes.Buffer
	if err := t.parsed().ExecuteTemplate(&page, "layout", of); err != nil {
		return fmt.Errorf("render a page: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", o.policy())
	w.WriteHeader(status)
	w.Write(page.Bytes())
	return nil
}

// policy returns the page's Content-Security-Policy.
func (o *options) policy() string {
	p := "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; img-src data:; style-src " + styleHash +
		"; form-action 'self'"
	if o.redirectTarget != "" {
		p += " " + o.redirectTarget
	}
	if o.script != "" {
		p += "; connect-src 'self'; script-src " + hashOf(o.script)
	}
	return p
}
