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

	"github.com/postrider/postrider/internal/accounts/users"
)

var (
	//go:embed layout.html
	layoutHTML string

	layout = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("layout").Funcs(functions).Parse(layoutHTML))
	})

	barePolicy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

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
	bare           bool
	class          string
	live           string
	tool           bool
	guests         bool
	htmx           bool
	crumbs         []Crumb
}

// Script adds a script to the end of a page. The Content-Security-Policy does not allow any other script on the page.
func Script(text string) Option { return func(o *options) { o.script = text } }

// Bare shows a page as an entry page, without the navigation, also to signed-in visitors.
func Bare() Option { return func(o *options) { o.bare = true } }

// Class sets a class of the main element: "form" for a narrow page of the dashboard, "wide" for a wide entry page.
func Class(name string) Option { return func(o *options) { o.class = name } }

// Live shows that a page follows events, and gives the path of the stream of server-sent events.
func Live(path string) Option { return func(o *options) { o.live = path } }

// Tool shows a page of the dashboard that needs the whole width: the navigation shows icons only, and the page fills
// the window.
func Tool() Option { return func(o *options) { o.tool = true } }

// HTMX loads htmx on a page of the dashboard. Pages that do without it do not load it.
func HTMX() Option { return func(o *options) { o.htmx = true } }

// Guests shows a page in the frame of the dashboard also to visitors who are not signed in or have no team. Their
// navigation leads only to the documentation and to pages for development.
func Guests() Option { return func(o *options) { o.guests = true } }

// Crumbs sets the path that leads to a page of the dashboard. It holds pairs of a label and an address; the last label
// is that of the page and has no address.
func Crumbs(pairs ...string) Option {
	return func(o *options) {
		for i := 0; i < len(pairs); i += 2 {
			c := Crumb{Label: pairs[i]}
			if i+1 < len(pairs) {
				c.Href = pairs[i+1]
			}
			o.crumbs = append(o.crumbs, c)
		}
	}
}

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
	Script  template.JS
	Visitor *Visitor
	Data    any
	Theme   string // light, dark or ""
	Class   string
	Kept    *users.KeptForm // the form that the page must show as it was typed, or nil

	// These fields are for the frame of the dashboard.
	Shell  bool
	Tool   bool
	Guest  bool // whether the visitor has no team
	TeamID string
	Path   string // the address of the page
	Nav    []NavSection
	Crumbs []Crumb
	Live   string
	HTMX   bool
	Keys   bool // whether single keys are shortcuts
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
	of := layoutData{Script: template.JS(o.script), Data: data}
	if ok {
		of.Visitor = &v
	}
	s.frame(r, &of, &o)
	return s.write(w, r, status, t, of, &o)
}

// frame adds to the layout what surrounds the page.
func (s *Site) frame(r *http.Request, of *layoutData, o *options) {
	of.Theme, of.Class, of.Keys = s.theme(r), o.class, s.Cookie(r, keysCookie) != "off"
	if v, _ := r.Context().Value(visitKey{}).(*visit); v != nil {
		of.Kept = v.kept
	}
	if of.Visitor != nil || o.guests {
		s.shell(r, of, o)
	}
}

func (s *Site) write(w http.ResponseWriter, r *http.Request, status int, t *Template, of layoutData, o *options) error {
	var page bytes.Buffer
	if err := t.parsed().ExecuteTemplate(&page, "layout", of); err != nil {
		return fmt.Errorf("render a page: %w", err)
	}
	content := page.Bytes()
	if zone := Zone(r); zone != time.UTC {
		content = inZone(content, zone)
	}
	if of.Kept != nil {
		var err error
		if content, err = refill(content, of.Kept); err != nil {
			return err
		}
	}
	h := w.Header()
	if status == http.StatusServiceUnavailable {
		retryAfter(h)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", o.policy())
	if s.mayCompress(r) {
		var packed bytes.Buffer
		compress(&packed, content)
		h.Set("Content-Encoding", "gzip")
		content = packed.Bytes()
	}
	w.WriteHeader(status)
	w.Write(content)
	return nil
}

// policy returns the page's Content-Security-Policy.
func (o *options) policy() string {
	p := "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; img-src 'self' data:; style-src 'self'; " +
		"connect-src 'self'; frame-src 'self'; form-action 'self'"
	if o.redirectTarget != "" {
		p += " " + o.redirectTarget
	}
	p += "; script-src 'self'"
	if o.script != "" {
		p += " " + hashOf(o.script)
	}
	return p
}
