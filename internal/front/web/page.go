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
)

var (
	//go:embed layout.html
	layoutHTML string
	//go:embed style.css
	styleCSS string

	layout = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("layout").Funcs(template.FuncMap{"date": date}).Parse(layoutHTML))
	})

	barePolicy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	styleHash  = hashOf(styleCSS)
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// date writes a time. Pages do not know where their readers are.
func date(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// Template is a page within the layout. It is parsed when it is first shown: all pages together take a megabyte, and
// the collector lets the heap grow to several times that.
type Template struct{ parsed func() *template.Template }

// Page returns a page within the layout. The text defines the templates "title" and "main"; it can use the layout's
// "form" for a [Form], "field" for a [Field], and the function "date" for a time. It is meant for variables of
// packages. A page whose text is wrong panics as it is shown.
func Page(text string) *Template {
	return &Template{sync.OnceValue(func() *template.Template {
		return template.Must(template.Must(layout().Clone()).Parse(text))
	})}
}

// Option changes how a page is shown.
type Option func(*options)

type options struct {
	script  string
	leadsTo string
}

// Script adds a script to the end of a page; no other runs.
func Script(text string) Option { return func(o *options) { o.script = text } }

// LeadsTo allows the page's forms to be answered with a redirect to another site, which browsers otherwise do not
// follow: the redirection address of an OAuth client. It must have been checked to be the client's.
func LeadsTo(address string) Option { return func(o *options) { o.leadsTo = source(address) } }

// source returns what stands for the address in a policy: its origin, or its scheme where the grammar has no name for
// the origin, as for addresses of applications and IPv6 (CSP level 3, section 2.3.1); "" if it has neither.
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

// shown is what the layout is filled with.
type shown struct {
	Style   template.CSS
	Script  template.JS
	Visitor *Visitor
	Data    any
}

// Show answers with a page: a template that [Page] returned, and what it is filled with.
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
	of := shown{Style: template.CSS(styleCSS), Script: template.JS(o.script), Data: data}
	if ok {
		of.Visitor = &v
	}
	return write(w, status, t, of, &o)
}

func write(w http.ResponseWriter, status int, t *Template, of shown, o *options) error {
	var page bytes.Buffer
	if err := t.parsed().ExecuteTemplate(&page, "layout", of); err != nil {
		return fmt.Errorf("make a page: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", o.policy())
	w.WriteHeader(status)
	w.Write(page.Bytes())
	return nil
}

// policy returns the page's content security policy.
func (o *options) policy() string {
	p := "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; img-src data:; style-src " + styleHash +
		"; form-action 'self'"
	if o.leadsTo != "" {
		p += " " + o.leadsTo
	}
	if o.script != "" {
		p += "; connect-src 'self'; script-src " + hashOf(o.script)
	}
	return p
}
