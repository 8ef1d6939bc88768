// Package web is the common part of all pages for people: layout and style, browser sessions, forms, and error pages.
//
// # Invariants
//
// [Site.Handle] serves every page. It refuses requests that another site made a browser send, except GET and HEAD. It
// sets headers that keep a page out of frames, caches and search engines, and that let only the page's own script run.
// It turns every error and panic into a page. A page is rendered in memory before its first byte is sent, so an error
// never follows half a page. Pages are small, and at most 64 KB of a request are read.
//
// Only [Site.SignIn] sets the session cookie, with a token made for that sign-in. Browsers send the cookie only to this
// host. Pages work without JavaScript, except for passkeys.
//
// # What it does not do
//
// The package has no pages of its own and no rules. Package users decides who may sign in, and package members decides
// who may do what in a team.
package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/audit"
)

// Config holds the settings of the pages.
type Config struct {
	PublicURL string // the address of the installation; with https, browsers send cookies only over TLS

	// Limits counts the page requests of each user, of which 20 a second are allowed. Nil means no limit.
	Limits *teams.Limiter

	// Auto, if not nil, returns the token of a new session for a visitor without one who requests a page of
	// [Site.HandleSignedIn]. It is for development only.
	Auto func(r *http.Request) (token string, ok bool)
}

// pagesPerSecond is the number of pages a user may request in a second. People request fewer, even in several windows.
const pagesPerSecond = 20

// Site renders and serves pages.
type Site struct {
	c       Config
	secure  bool
	users   *users.Service
	members *members.Service
	log     *slog.Logger
	origins *http.CrossOriginProtection
}

// New returns a site. The caller must have checked PublicURL.
func New(c Config, u *users.Service, m *members.Service, log *slog.Logger) *Site {
	s := &Site{c: c, users: u, members: m, log: log, origins: http.NewCrossOriginProtection(),
		secure: strings.HasPrefix(strings.ToLower(c.PublicURL), "https:")}
	if own, err := url.Parse(c.PublicURL); err == nil && own.Host != "" {
		// A reverse proxy may send another Host. After this check of PublicURL, the string is always an origin.
		s.origins.AddTrustedOrigin(strings.ToLower(own.Scheme + "://" + own.Host))
	}
	return s
}

// Handle serves a pattern. If f returns an error or panics, the answer is an error page, or JSON if the client accepts
// only JSON. Before f returns an error or panics, it must not write anything.
func (s *Site) Handle(mux *http.ServeMux, pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(audit.With(context.WithValue(r.Context(), visitKey{}, &visit{}), client(r)))
		setHeaders(w.Header())
		if err := s.checkOrigin(w, r, f); err != nil {
			s.fail(w, r, err)
		}
	})
}

// HandleSignedIn serves a pattern to signed-in users. Other visitors must sign in first, and then return to the page if
// they requested it by GET. In development they are signed in automatically. Users who request too many pages must
// wait.
func (s *Site) HandleSignedIn(mux *http.ServeMux, pattern string,
	f func(w http.ResponseWriter, r *http.Request, v Visitor) error) {
	s.Handle(mux, pattern, func(w http.ResponseWriter, r *http.Request) error {
		v, ok, err := s.Visitor(r)
		if err == nil && !ok {
			v, ok, err = s.auto(w, r)
		}
		if err != nil {
			return err
		}
		if !ok {
			return s.askToSignIn(w, r)
		}
		if s.c.Limits != nil {
			if _, ok := s.c.Limits.Count("pages "+v.User.ID, pagesPerSecond); !ok {
				w.Header().Set("Retry-After", "1")
				return errTooFast
			}
		}
		by := client(r)
		by.ActorKind, by.ActorID, by.ActorName = string(teams.UserActor), v.User.ID, v.User.Email
		return f(w, r.WithContext(audit.With(r.Context(), by)), v)
	})
}

// client returns an audit entry with the address and user agent of a request.
func client(r *http.Request) audit.Entry {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return audit.Entry{Address: host, UserAgent: r.UserAgent()}
}

func (s *Site) askToSignIn(w http.ResponseWriter, r *http.Request) error {
	if wantsJSON(r) {
		return errSignedOut
	}
	to := "/sign-in"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		next, err := Next(r.URL.RequestURI())
		if err != nil {
			return err
		}
		to += "?" + url.Values{"next": {next}}.Encode()
	}
	return Redirect(w, r, to)
}

// Redirect redirects to a path of this site with status 303, as after a form (RFC 9110 section 15.4.4).
func Redirect(w http.ResponseWriter, _ *http.Request, path string) error {
	// A path that is a query parameter of another path is up to three times as long there.
	if path = local(path, 4*nextMaxBytes); path == "" {
		path = "/account"
	}
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// checkOrigin runs f unless another site sent the request. It turns a panic into an error.
func (s *Site) checkOrigin(w http.ResponseWriter, r *http.Request, f func(http.ResponseWriter, *http.Request) error) (
	err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := s.origins.Check(r); err != nil {
		return errForeign.Because(err)
	}
	return f(w, r)
}

// setHeaders sets the headers of all answers. The referrer is sent only within the site. The referrer cannot be turned
// off, because browsers would then send forms with `Origin: null`, like forms from other sites.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", barePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
}
