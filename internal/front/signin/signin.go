// Package signin is the pages on which people sign in, look after their account, see and invite the people of a team,
// see which programs act for it, and decide of what programs want to send.
//
// # Invariants
//
// What a page changes is changed by POST, and answered by a redirect: a page that is reloaded sends nothing again. Only
// secrets that are shown once (recovery codes, the secret of an authenticator app) are in the answer itself. Whoever is
// not signed in is answered in the same words whether or not an address has an account; who has a link to join or to
// choose a password is told what the link is for.
//
// # What it does not do
//
// It holds no rules: those of sign-in are package users', those of teams package members', those of programs package
// grants', and those of approvals package approvals'.
package signin

import (
	"embed"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/approvals"
)

//go:embed pages
var texts embed.FS

//go:embed passkeys.js
var passkeysJS string

// pageOf returns the template of a file in pages.
func pageOf(name string) *web.Template {
	text, err := texts.ReadFile("pages/" + name)
	if err != nil {
		panic(err)
	}
	return web.Page(string(text))
}

// Parts is what the pages stand on.
type Parts struct {
	Site    *web.Site
	DB      *db.DB
	Users   *users.Service
	Members *members.Service
	Teams   *teams.Service
	Audit   *audit.Log
	Grants  *grants.Service

	Approvals *approvals.Service
}

// Pages serves the pages.
type Pages struct{ Parts }

// New returns the pages.
func New(p Parts) *Pages { return &Pages{p} }

// prefixes are the paths of the pages. The API has none of them.
var prefixes = []string{"/setup", "/sign-in", "/sign-out", "/password", "/invitations", "/account", "/people",
	"/programs", "/approve"}

// Serves reports whether a path is one of these pages.
func Serves(path string) bool {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// Register adds the pages to a mux.
func (p *Pages) Register(mux *http.ServeMux) {
	for _, x := range p.routes() {
		if x.person == nil {
			p.Site.Handle(mux, x.pattern, x.anybody)
		} else {
			p.Site.Person(mux, x.pattern, p.proved(x.person))
		}
	}
	for _, prefix := range prefixes {
		for _, pattern := range []string{prefix, prefix + "/"} {
			p.Site.Handle(mux, pattern, func(http.ResponseWriter, *http.Request) error { return errNothing })
		}
	}
}

// route is a page for anybody, or for who is signed in.
type route struct {
	pattern string
	anybody func(w http.ResponseWriter, r *http.Request) error
	person  func(w http.ResponseWriter, r *http.Request, v web.Visitor) error
}

func (p *Pages) routes() []route {
	return []route{
		{pattern: "GET /setup", anybody: p.showSetup},
		{pattern: "POST /setup", anybody: p.setup},

		{pattern: "GET /sign-in", anybody: p.showSignIn},
		{pattern: "POST /sign-in", anybody: p.signIn},
		{pattern: "GET /sign-in/code", anybody: p.showCode},
		{pattern: "POST /sign-in/code", anybody: p.code},
		{pattern: "POST /sign-in/passkey/begin", anybody: p.beginPasskey},
		{pattern: "POST /sign-in/passkey/finish", anybody: p.finishPasskey},
		{pattern: "GET /sign-in/oidc", anybody: p.beginOIDC},
		{pattern: "GET /sign-in/oidc/callback", anybody: p.finishOIDC},
		{pattern: "POST /sign-out", anybody: p.signOut},

		{pattern: "GET /password/forgot", anybody: p.showForgot},
		{pattern: "POST /password/forgot", anybody: p.forgot},
		{pattern: "GET /password/reset", anybody: p.showReset},
		{pattern: "POST /password/reset", anybody: p.reset},

		{pattern: "GET /invitations/{token}", anybody: p.showInvitation},
		{pattern: "POST /invitations/{token}", anybody: p.accept},

		{pattern: "GET /account", person: p.showAccount},
		{pattern: "POST /account/name", person: p.rename},
		{pattern: "GET /account/team", person: p.showTeams},
		{pattern: "POST /account/team", person: p.chooseTeam},
		{pattern: "GET /account/prove", person: p.showProve},
		{pattern: "POST /account/prove", person: p.prove},
		{pattern: "POST /account/prove/begin", person: p.beginProof},
		{pattern: "POST /account/prove/finish", person: p.finishProof},
		{pattern: "GET /account/password", person: p.showPassword},
		{pattern: "POST /account/password", person: p.setPassword},
		{pattern: "GET /account/totp", person: p.showTOTP},
		{pattern: "POST /account/totp/begin", person: p.beginTOTP},
		{pattern: "POST /account/totp/confirm", person: p.confirmTOTP},
		{pattern: "POST /account/totp/remove", person: p.removeTOTP},
		{pattern: "POST /account/recovery-codes", person: p.newRecoveryCodes},
		{pattern: "POST /account/passkeys/begin", person: p.beginNewPasskey},
		{pattern: "POST /account/passkeys/finish", person: p.finishNewPasskey},
		{pattern: "POST /account/passkeys/{id}/name", person: p.renamePasskey},
		{pattern: "POST /account/passkeys/{id}/remove", person: p.removePasskey},
		{pattern: "POST /account/oidc", person: p.link},
		{pattern: "POST /account/identities/{id}/remove", person: p.unlink},
		{pattern: "POST /account/sessions/end", person: p.endSessions},
		{pattern: "POST /account/sessions/{id}/end", person: p.endSession},

		{pattern: "GET /approve", person: p.showApprovals},
		{pattern: "GET /approve/{id}", person: p.showApproval},
		{pattern: "POST /approve/{id}/send", person: p.approve},
		{pattern: "POST /approve/{id}/reject", person: p.reject},

		{pattern: "GET /programs", person: p.showPrograms},
		{pattern: "POST /programs/{id}/limits", person: p.limitProgram},
		{pattern: "POST /programs/{id}/revoke", person: p.revokeProgram},

		{pattern: "GET /people", person: p.showPeople},
		{pattern: "POST /people/invite", person: p.invite},
		{pattern: "POST /people/invitations/{id}/resend", person: p.resend},
		{pattern: "POST /people/invitations/{id}/revoke", person: p.revoke},
		{pattern: "POST /people/{id}/role", person: p.setRole},
		{pattern: "POST /people/{id}/remove", person: p.remove},
		{pattern: "POST /people/leave", person: p.leave},
	}
}

// proved sends who must confirm who they are to the page for it, and then back to the page that they looked at.
func (p *Pages) proved(f func(http.ResponseWriter, *http.Request, web.Visitor) error) func(http.ResponseWriter,
	*http.Request, web.Visitor) error {
	return func(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
		err := f(w, r, v)
		if !errors.Is(err, users.ErrProve) {
			return err
		}
		back := "/account"
		if r.Method == http.MethodGet {
			back = r.URL.RequestURI()
		}
		to := with("/account/prove", "next", back)
		if strings.HasPrefix(r.Header.Get("Accept"), "application/json") {
			return answer(w, http.StatusForbidden, next{to})
		}
		return web.Redirect(w, r, to)
	}
}

// fresh returns ErrProve unless the visitor has given a password or passkey lately.
func (p *Pages) fresh(v *web.Visitor) error {
	if !v.Session.Fresh(p.DB.Now()) {
		return users.ErrProve
	}
	return nil
}

// next tells a script where to go.
type next struct {
	Next string `json:"next"`
}

// answer answers a script.
func answer(w http.ResponseWriter, status int, with any) error {
	text, err := json.Marshal(with)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(text)
	return nil
}

// with returns a path with a query of one parameter, without it if the value is empty.
func with(path, name, value string) string {
	if value == "" {
		return path
	}
	return path + "?" + url.Values{name: {value}}.Encode()
}

// pathID returns the id in the path; one that is none is found nowhere.
func pathID(r *http.Request) string {
	if text := strings.ToLower(r.PathValue("id")); id.Valid(text) {
		return text
	}
	return "-"
}

// client returns the program that sent a request.
func client(r *http.Request) users.Client {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return users.Client{Address: host, UserAgent: r.UserAgent()}
}
