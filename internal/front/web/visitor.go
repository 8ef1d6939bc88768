package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// cookieLifetime is the lifetime of the session cookie in the browser. Package users ends the session earlier.
const cookieLifetime = 90 * 24 * time.Hour

// Visitor is the signed-in user who sent a request.
type Visitor struct {
	Session users.Session
	User    users.User
	Teams   []members.Membership
}

// Team returns the visitor's current team. The current team is the one that the visitor chose last, or the visitor's
// first team if the visitor has left the chosen one. If the visitor is not in any team, Team returns false.
func (v *Visitor) Team() (members.Membership, bool) {
	if len(v.Teams) == 0 {
		return members.Membership{}, false
	}
	i := slices.IndexFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == v.Session.TeamID })
	return v.Teams[max(i, 0)], true
}

// CurrentTeam returns the current team's name, or "" if the visitor is not in any team.
func (v *Visitor) CurrentTeam() string {
	m, _ := v.Team()
	return m.TeamName
}

// visit caches the visitor who sent a request, because several parts of a page need the visitor.
type visit struct {
	asked   bool
	visitor Visitor
	ok      bool
	kept    *users.KeptForm // the form that the page must show as it was typed, or nil
	form    url.Values      // the form of the request, if it has been read
	commits *db.Commits     // whether the request has changed something
	frame   bool            // whether pages show the response in a frame
}

type visitKey struct{}

// Visitor returns the user who sent the request, or false if the request has no valid session.
func (s *Site) Visitor(r *http.Request) (Visitor, bool, error) {
	of, _ := r.Context().Value(visitKey{}).(*visit)
	if of != nil && of.asked {
		return of.visitor, of.ok, nil
	}
	token := s.Cookie(r, "")
	if token == "" {
		return Visitor{}, false, nil
	}
	v, ok, err := s.visitor(r.Context(), token)
	if of != nil && err == nil {
		of.asked, of.visitor, of.ok = true, v, ok
	}
	return v, ok, err
}

// visitor returns the user that a session belongs to.
func (s *Site) visitor(ctx context.Context, token string) (v Visitor, ok bool, err error) {
	v.Session, v.User, err = s.users.Session(ctx, token)
	if fault.KindOf(err) == fault.BadCredential {
		return Visitor{}, false, nil
	}
	if err == nil {
		v.Teams, err = s.members.ListByUser(ctx, v.User.ID)
	}
	return v, err == nil, err
}

// SignIn sets the session cookie to a token that package users has just created. SignIn also ends any earlier session
// of the browser, so that an attacker who planted that session cannot use it. If the earlier session cannot be ended,
// SignIn logs it: the new session exists, and the visitor may have no other way to it, such as after an invitation.
func (s *Site) SignIn(w http.ResponseWriter, r *http.Request, token string) {
	before, had, err := s.Visitor(r)
	if err == nil && had {
		err = s.users.EndSession(r.Context(), before.User.ID, before.Session.ID)
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		s.log.Warn("the earlier session of a browser could not be ended at a sign-in", "error", err)
	}
	s.setCookie(w, "", token, cookieLifetime)
}

// SignOut ends the browser's session, if it has one.
func (s *Site) SignOut(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := s.Visitor(r)
	if err != nil {
		return err
	}
	if ok {
		if err := s.users.EndSession(r.Context(), v.User.ID, v.Session.ID); err != nil &&
			fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	s.setCookie(w, "", "", 0)
	s.setCookie(w, keptCookie, "", 0)
	s.setCookie(w, lastCookie, "", 0)
	return nil
}

// SetCookie stores a value in a browser cookie for a sign-in that takes several pages. Scripts cannot read the cookie.
func (s *Site) SetCookie(w http.ResponseWriter, name, value string, lasts time.Duration) {
	s.setCookie(w, name, value, lasts)
}

// Cookie returns a value stored by [Site.SetCookie], or "" if the browser has no such cookie.
func (s *Site) Cookie(r *http.Request, name string) string {
	c, err := r.Cookie(s.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// DeleteCookie deletes a value stored by [Site.SetCookie].
func (s *Site) DeleteCookie(w http.ResponseWriter, name string) { s.setCookie(w, name, "", 0) }

// cookieName returns the full name of a cookie. An empty name means the session cookie. Browsers accept a cookie with
// the prefix __Host- only from this host over TLS (RFC 6265bis section 4.1.3.2), so no other host in the same domain
// can set the cookie.
func (s *Site) cookieName(name string) string {
	if name != "" {
		name = "-" + name
	}
	if s.secure {
		return "__Host-postrider" + name
	}
	return "postrider" + name
}

func (s *Site) setCookie(w http.ResponseWriter, name, value string, lasts time.Duration) {
	age := int(lasts.Seconds())
	if age == 0 {
		age = -1 // deletes it
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookieName(name), Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		Secure: s.secure, SameSite: http.SameSiteLaxMode})
}

// VisitorNow is like [Site.Visitor], but looks the session up again, for a response that lasts.
func (s *Site) VisitorNow(r *http.Request) (Visitor, bool, error) {
	token := s.Cookie(r, "")
	if token == "" {
		return Visitor{}, false, nil
	}
	return s.visitor(r.Context(), token)
}
