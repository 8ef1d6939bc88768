package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
)

// cookieLasts is for how long a browser keeps the cookie of a session, which package users ends sooner.
const cookieLasts = 90 * 24 * time.Hour

// Visitor is who looks at a page.
type Visitor struct {
	Session users.Session
	User    users.User
	Teams   []members.Membership
}

// Team returns the team that the visitor looks at: the one chosen last if the visitor is still its member, otherwise
// the first; false if the visitor is in no team.
func (v *Visitor) Team() (members.Membership, bool) {
	if len(v.Teams) == 0 {
		return members.Membership{}, false
	}
	i := slices.IndexFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == v.Session.TeamID })
	return v.Teams[max(i, 0)], true
}

// CurrentTeam returns the name of that team, or "".
func (v *Visitor) CurrentTeam() string {
	m, _ := v.Team()
	return m.TeamName
}

// visit keeps the visitor of a request, which several parts of a page ask for.
type visit struct {
	asked   bool
	visitor Visitor
	ok      bool
}

type visitKey struct{}

// Visitor returns who made the request; false for somebody without a session.
func (s *Site) Visitor(r *http.Request) (Visitor, bool, error) {
	of, _ := r.Context().Value(visitKey{}).(*visit)
	if of != nil && of.asked {
		return of.visitor, of.ok, nil
	}
	token := s.Kept(r, "")
	if token == "" {
		return Visitor{}, false, nil
	}
	v, ok, err := s.visitor(r.Context(), token)
	if of != nil && err == nil {
		of.asked, of.visitor, of.ok = true, v, ok
	}
	return v, ok, err
}

// visitor returns who has a session.
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

// auto signs a visitor in by the site's option.
func (s *Site) auto(w http.ResponseWriter, r *http.Request) (Visitor, bool, error) {
	if s.c.Auto == nil || r.Method != http.MethodGet {
		return Visitor{}, false, nil
	}
	token, ok := s.c.Auto(r)
	if !ok {
		return Visitor{}, false, nil
	}
	v, ok, err := s.visitor(r.Context(), token)
	if ok {
		s.setCookie(w, "", token, cookieLasts)
		if of, _ := r.Context().Value(visitKey{}).(*visit); of != nil {
			of.asked, of.visitor, of.ok = true, v, true
		}
	}
	return v, ok, err
}

// SignIn gives the browser a session, which package users has just made. A session that the browser had before ends:
// nobody can sign in for it and use it on.
func (s *Site) SignIn(w http.ResponseWriter, r *http.Request, token string) error {
	before, had, err := s.Visitor(r)
	if err != nil {
		return err
	}
	if had {
		if err := s.users.EndSession(r.Context(), before.User.ID, before.Session.ID); err != nil &&
			fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	s.setCookie(w, "", token, cookieLasts)
	return nil
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
	return nil
}

// Keep lets the browser keep a value for some minutes, in a cookie of that name: what a sign-in needs that takes
// several pages. Nothing but this site reads it, and no page has it.
func (s *Site) Keep(w http.ResponseWriter, name, value string, lasts time.Duration) {
	s.setCookie(w, name, value, lasts)
}

// Kept returns what [Site.Keep] gave the browser, "" if there is nothing.
func (s *Site) Kept(r *http.Request, name string) string {
	c, err := r.Cookie(s.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// Drop deletes what Keep gave the browser.
func (s *Site) Drop(w http.ResponseWriter, name string) { s.setCookie(w, name, "", 0) }

// cookieName returns the name of a cookie; that of the session has no name of its own. Browsers take one with the
// prefix only from this very host, over TLS (RFC 6265bis section 4.1.3.2), so no neighbouring host can set it.
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
