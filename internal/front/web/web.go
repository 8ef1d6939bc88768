// Package web is what all pages for people share: the layout and its style, the session of a browser, forms, and how
// errors look.
//
// # Invariants
//
// Every page is served by [Site.Handle]. It refuses requests that another site made a browser send (everything but GET
// and HEAD), sets headers that keep a page out of frames, caches and search engines and let it run nothing but its own
// script, and makes a page of every error and panic. A page is made in memory before its first octet is sent, so an
// error never follows half of one; pages are small, and what is read of a request is at most 64 KB.
//
// The cookie of a session is set in one place ([Site.SignIn]), with a token that was made for that sign-in, and only
// goes to this host. Pages work without JavaScript, except where a passkey is used.
//
// # What it does not do
//
// It knows no page, and holds no rules: who may sign in is for package users, and who may do what in a team for package
// members.
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

// Config holds what the pages of an installation depend on.
type Config struct {
	PublicURL string // the address of the installation; with https, cookies are only sent encrypted

	// Limits counts the pages that a user asks for, of which 20 a second are served. Without it there is no limit.
	Limits *teams.Limiter

	// Auto, if not nil, returns the token of a new session for a visitor without one who gets a page of [Site.Person].
	// It is for development.
	Auto func(r *http.Request) (token string, ok bool)
}

// pagesPerSecond is how many pages a user may ask for in a second: more than people do, also in several windows.
const pagesPerSecond = 20

// Site makes and serves pages.
type Site struct {
	c       Config
	secure  bool
	users   *users.Service
	members *members.Service
	log     *slog.Logger
	origins *http.CrossOriginProtection
}

// New returns a site. PublicURL must have been checked.
func New(c Config, u *users.Service, m *members.Service, log *slog.Logger) *Site {
	s := &Site{c: c, users: u, members: m, log: log, origins: http.NewCrossOriginProtection(),
		secure: strings.HasPrefix(strings.ToLower(c.PublicURL), "https:")}
	if own, err := url.Parse(c.PublicURL); err == nil && own.Host != "" {
		// A reverse proxy may ask with another Host. What is left of the address is always an origin.
		s.origins.AddTrustedOrigin(strings.ToLower(own.Scheme + "://" + own.Host))
	}
	return s
}

// Handle serves a pattern. An error that f returns, or a panic, is answered as a page, or as JSON if the request
// accepts nothing else; f must then not have written anything.
func (s *Site) Handle(mux *http.ServeMux, pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(audit.With(context.WithValue(r.Context(), visitKey{}, &visit{}), client(r)))
		setHeaders(w.Header())
		if err := s.guarded(w, r, f); err != nil {
			s.fail(w, r, err)
		}
	})
}

// Person serves a pattern to who is signed in. Others are sent to sign in first, and come back to a page that they
// asked for by GET; in development they are signed in by themselves. Who asks for more than a person can is told to
// wait.
func (s *Site) Person(mux *http.ServeMux, pattern string,
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

// client says in the audit log where what a request does comes from.
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

// Redirect leads to a path of this site by GET, as after a form that was accepted (RFC 9110 section 15.4.4).
func Redirect(w http.ResponseWriter, _ *http.Request, path string) error {
	// A path that is a parameter of another one is up to three times as long there.
	if path = local(path, 4*nextMax); path == "" {
		path = "/account"
	}
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// guarded runs f unless another site sent the request.
func (s *Site) guarded(w http.ResponseWriter, r *http.Request, f func(http.ResponseWriter, *http.Request) error) (
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

// setHeaders sets what all answers have. The referrer stays within the site, and is not left out altogether, because
// browsers send forms of pages without it with `Origin: null`, which cannot be told from other sites.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", barePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
}
