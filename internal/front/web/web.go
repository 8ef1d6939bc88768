// Package web is the part that all web pages for users have in common: layout and style, browser sessions, forms, and
// error pages.
//
// # Invariants
//
// [Site.Handle] serves every page, and refuses cross-site requests other than GET and HEAD. The response headers
// prevent framing, caching and indexing of a page, and allow only the page's own script. Every error and panic causes
// an error page. A page is rendered in memory before its first byte is sent, so that an error page can replace it if
// rendering fails. Pages are small, and the server reads at most 64 KB of a request.
//
// Only [Site.SignIn] sets the session cookie, to a token that is created for that sign-in. Browsers send the session
// cookie only to this host. All features of the pages except passkeys work without JavaScript.
//
// # Out of scope
//
// Package web defines only error pages and contains no business rules. The rules for sign-in are in package users, and
// the rules for permissions in a team are in package members.
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
	"github.com/postrider/postrider/internal/platform/db"
)

// Config holds the settings for the pages.
type Config struct {
	PublicURL string // the installation's address; if it has the scheme https, browsers send cookies only over TLS

	// Limits is the limiter that allows each user 20 page requests a second. If Limits is nil, page requests are not
	// limited.
	Limits *teams.Limiter

	// Counts returns the numbers that the navigation shows. If Counts is nil, the navigation shows none.
	Counts Counts

	// Development reports whether this is a node for development, whose navigation leads to the captured emails. It may
	// be nil.
	Development func() bool

	// SignInHint returns a sentence about signing in, which the sign-in page shows, or "". SignInHint may be nil.
	SignInHint func() string
}

// pagesPerSecond is the maximum number of pages that a user may request in a second. Users do not normally reach this
// limit, even with several browser windows open.
const pagesPerSecond = 20

// Site renders and serves pages.
type Site struct {
	c       Config
	secure  bool
	users   *users.Service
	members *members.Service
	log     *slog.Logger
	origins *http.CrossOriginProtection

	largeForms largeForms // see [Site.outage]
}

// New returns a site. The caller must have validated PublicURL.
func New(c Config, u *users.Service, m *members.Service, log *slog.Logger) *Site {
	s := &Site{c: c, users: u, members: m, log: log, origins: http.NewCrossOriginProtection(),
		secure: strings.HasPrefix(strings.ToLower(c.PublicURL), "https:")}
	if own, err := url.Parse(c.PublicURL); err == nil && own.Host != "" {
		// The public origin is trusted explicitly, because a reverse proxy may send a different Host header. AddTrustedOrigin
		// cannot fail for a URL with a host.
		s.origins.AddTrustedOrigin(strings.ToLower(own.Scheme + "://" + own.Host))
	}
	return s
}

// Handle registers f for a pattern. If f returns an error or panics, the response is an error page, or JSON if the
// client accepts only JSON. The function f must not write a response before it returns an error or panics.
func (s *Site) Handle(mux *http.ServeMux, pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	s.handle(mux, pattern, false, f)
}

func (s *Site) handle(mux *http.ServeMux, pattern string, frame bool,
	f func(w http.ResponseWriter, r *http.Request) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, commits := db.WithCommits(r.Context())
		ctx = context.WithValue(ctx, visitKey{}, &visit{commits: commits, frame: frame})
		r = r.WithContext(audit.With(ctx, client(r)))
		setHeaders(w.Header())
		if err := s.run(w, r, f); err != nil {
			s.fail(w, r, err)
		}
	})
}

// HandleSignedIn registers f for a pattern and calls it only for signed-in users. All other visitors must sign in
// first. After signing in, a visitor returns to the requested page, or to the page of the submitted form, which
// contains what was typed. Users who request too many pages must wait.
func (s *Site) HandleSignedIn(mux *http.ServeMux, pattern string,
	f func(w http.ResponseWriter, r *http.Request, v Visitor) error) {
	s.handleSignedIn(mux, pattern, false, f)
}

// HandleFrame is like [Site.HandleSignedIn], for mail that pages show in a frame. Its error pages can be shown in the
// frame too.
func (s *Site) HandleFrame(mux *http.ServeMux, pattern string,
	f func(w http.ResponseWriter, r *http.Request, v Visitor) error) {
	s.handleSignedIn(mux, pattern, true, f)
}

func (s *Site) handleSignedIn(mux *http.ServeMux, pattern string, frame bool,
	f func(w http.ResponseWriter, r *http.Request, v Visitor) error) {
	s.handle(mux, pattern, frame, func(w http.ResponseWriter, r *http.Request) error {
		v, ok, err := s.Visitor(r)
		if err != nil {
			return err
		}
		if !ok {
			return s.askToSignIn(w, r, mux)
		}
		if s.c.Limits != nil {
			if _, ok := s.c.Limits.Count("pages "+v.User.ID, pagesPerSecond); !ok {
				w.Header().Set("Retry-After", "1")
				return errTooFast
			}
		}
		if of, _ := r.Context().Value(visitKey{}).(*visit); of != nil {
			if of.kept, err = s.takeForm(w, r, &v); err != nil {
				return err
			}
			if token := s.users.BrowserToken(v.User.ID); s.Cookie(r, lastCookie) != token {
				s.setCookie(w, lastCookie, token, cookieLifetime)
			}
		}
		by := client(r)
		by.ActorKind, by.ActorID, by.ActorName = string(teams.UserActor), v.User.ID, v.User.Email
		return f(w, r.WithContext(audit.With(r.Context(), by)), v)
	})
}

// client returns an audit entry with the client's IP address and User-Agent.
func client(r *http.Request) audit.Entry {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return audit.Entry{Address: host, UserAgent: r.UserAgent()}
}

// Host returns the host name of the installation, or "" if its address is not set.
func (s *Site) Host() string {
	own, err := url.Parse(s.c.PublicURL)
	if err != nil {
		return ""
	}
	return own.Hostname()
}

// Development reports whether this is a node for development.
func (s *Site) Development() bool { return s.c.Development != nil && s.c.Development() }

// SignInHint returns a sentence about signing in, or "".
func (s *Site) SignInHint() string {
	if s.c.SignInHint == nil {
		return ""
	}
	return s.c.SignInHint()
}

func (s *Site) askToSignIn(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) error {
	if wantsJSON(r) || isFrame(r) {
		return errSignedOut
	}
	var next string
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		var err error
		if next, err = Next(r.URL.RequestURI()); err != nil {
			return err
		}
	} else {
		next = s.keepForm(w, r, mux)
	}
	to := "/sign-in"
	if next != "" {
		to += "?" + url.Values{"next": {next}}.Encode()
	}
	return Redirect(w, r, to)
}

// Redirect redirects to a path on this site with status 303, which is meant for redirects after a form submission (RFC
// 9110 section 15.4.4).
func Redirect(w http.ResponseWriter, _ *http.Request, path string) error {
	// The path may contain another path as a query parameter. Percent-encoding makes such a parameter up to three times as
	// long.
	if path = local(path, 4*nextMaxBytes); path == "" {
		path = "/app/account"
	}
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// run calls f unless the request is a cross-site request, or its query has a value that no database can store. A panic
// in f is converted to an error.
func (s *Site) run(w http.ResponseWriter, r *http.Request, f func(http.ResponseWriter, *http.Request) error) (
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
	if r.URL.RawQuery != "" && !Storable(r.URL.Query()) {
		return errAddress
	}
	return f(w, r)
}

// setHeaders sets the headers that all responses have. The Referrer-Policy makes browsers send the referrer only within
// the site. The policy no-referrer is not possible, because browsers would then send forms with `Origin: null`, as they
// do for forms on other sites.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", barePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
}
