// Package signin serves the web pages for users. On these pages, users can sign in, manage their account and their
// team's members, see the team's connected apps, and approve or reject emails from apps.
//
// # Invariants
//
// Only POST requests make changes. The response to a POST is a redirect, so that reloading the page does not submit the
// form again. The only pages sent without a redirect are those with secrets that are shown once: recovery codes and the
// secret for an authenticator app.
//
// Pages for visitors without a session do not reveal whether an address has an account. The pages behind invitation
// links and password reset links show the link's purpose without a session.
//
// # Out of scope
//
// Package signin contains no business rules. The rules for sign-in are in package users, those for teams in package
// members, those for connected apps in package grants, and those for approvals in package approvals.
package signin

import (
	"context"
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
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/templates"
)

//go:embed pages
var texts embed.FS

//go:embed passkeys.js
var passkeysJS string

// pageOf returns the template from a file in the folder pages.
func pageOf(name string) *web.Template {
	text, err := texts.ReadFile("pages/" + name)
	if err != nil {
		panic(err)
	}
	return web.Page(string(text))
}

// Deps holds the dependencies of the sign-in pages.
type Deps struct {
	Site    *web.Site
	DB      *db.DB
	Users   *users.Service
	Members *members.Service
	Teams   *teams.Service
	Audit   *audit.Log
	Grants  *grants.Service

	Approvals *approvals.Service
	Templates *templates.Service
	// Automations returns the automations for which the given grants are responsible.
	Automations func(ctx context.Context, teamID string, grantIDs []string) ([]automations.AppAutomation, error)
}

// Pages serves the sign-in pages.
type Pages struct{ Deps }

// New returns the sign-in pages, or an error if a dependency is missing.
func New(d Deps) (*Pages, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Pages{d}, nil
}

// Patterns returns the patterns of all pages and forms, in the order of the table.
func Patterns() (all []string) {
	for _, r := range (&Pages{}).routes() {
		all = append(all, r.pattern)
	}
	return all
}

// prefixes lists the path prefixes of the pages. The API does not use any of these prefixes.
var prefixes = []string{"/setup", "/sign-in", "/sign-out", "/password", "/invitations", "/app/account", "/app/people",
	"/app/apps", "/app/approvals"}

// moved maps the path prefixes that pages had in earlier releases to the present ones. Emails and bookmarks contain the
// earlier addresses.
var moved = map[string]string{"/account": "/app/account", "/people": "/app/people", "/programs": "/app/apps",
	"/approve": "/app/approvals"}

// Serves reports whether a path belongs to the pages, or to an earlier address of a page.
func Serves(path string) bool {
	for _, p := range prefixes {
		if isUnder(path, p) {
			return true
		}
	}
	for p := range moved {
		if isUnder(path, p) {
			return true
		}
	}
	return false
}

// isUnder reports whether a path is the prefix, or continues it with a slash.
func isUnder(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// Register adds the sign-in pages to a mux.
func (p *Pages) Register(mux *http.ServeMux) {
	for _, x := range p.routes() {
		switch {
		case x.signedIn == nil:
			p.Site.Handle(mux, x.pattern, x.public)
		case x.frame:
			p.Site.HandleFrame(mux, x.pattern, p.withProof(x.signedIn))
		default:
			p.Site.HandleSignedIn(mux, x.pattern, p.withProof(x.signedIn))
		}
	}
	for _, prefix := range prefixes {
		for _, pattern := range []string{prefix, prefix + "/"} {
			p.Site.Handle(mux, pattern, func(http.ResponseWriter, *http.Request) error { return errNoPage })
		}
	}
	for from, to := range moved {
		for _, pattern := range []string{from, from + "/"} {
			p.Site.Handle(mux, pattern, func(w http.ResponseWriter, r *http.Request) error {
				return redirectMoved(w, r, from, to)
			})
		}
	}
}

// redirectMoved redirects to the present address of a page. Status 308 makes the browser repeat a POST with its form,
// so that a form which was shown before an upgrade still works.
func redirectMoved(w http.ResponseWriter, r *http.Request, from, to string) error {
	to += strings.TrimPrefix(r.URL.EscapedPath(), from)
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

// route is a page and its handler. Exactly one of public and signedIn is set.
type route struct {
	pattern  string
	public   func(w http.ResponseWriter, r *http.Request) error
	signedIn func(w http.ResponseWriter, r *http.Request, v web.Visitor) error
	frame    bool // whether a page shows the response in a frame
}

func (p *Pages) routes() []route {
	return []route{
		{pattern: "GET /setup", public: p.showSetup},
		{pattern: "POST /setup", public: p.setup},

		{pattern: "GET /sign-in", public: p.showSignIn},
		{pattern: "POST /sign-in", public: p.signIn},
		{pattern: "GET /sign-in/code", public: p.showCode},
		{pattern: "POST /sign-in/code", public: p.code},
		{pattern: "POST /sign-in/passkey/begin", public: p.beginPasskey},
		{pattern: "POST /sign-in/passkey/finish", public: p.finishPasskey},
		{pattern: "GET /sign-in/oidc", public: p.beginOIDC},
		{pattern: "GET /sign-in/oidc/callback", public: p.finishOIDC},
		{pattern: "POST /sign-out", public: p.signOut},

		{pattern: "GET /password/forgot", public: p.showForgot},
		{pattern: "POST /password/forgot", public: p.forgot},
		{pattern: "GET /password/reset", public: p.showReset},
		{pattern: "POST /password/reset", public: p.reset},

		{pattern: "GET /invitations/{token}", public: p.showInvitation},
		{pattern: "POST /invitations/{token}", public: p.accept},

		{pattern: "GET /app/account", signedIn: p.showAccount},
		{pattern: "POST /app/account/name", signedIn: p.rename},
		{pattern: "GET /app/account/team", signedIn: p.showTeams},
		{pattern: "POST /app/account/team", signedIn: p.chooseTeam},
		{pattern: "GET /app/account/prove", signedIn: p.showProve},
		{pattern: "POST /app/account/prove", signedIn: p.prove},
		{pattern: "POST /app/account/prove/begin", signedIn: p.beginProof},
		{pattern: "POST /app/account/prove/finish", signedIn: p.finishProof},
		{pattern: "GET /app/account/password", signedIn: p.showPassword},
		{pattern: "POST /app/account/password", signedIn: p.setPassword},
		{pattern: "GET /app/account/totp", signedIn: p.showTOTP},
		{pattern: "POST /app/account/totp/begin", signedIn: p.beginTOTP},
		{pattern: "POST /app/account/totp/confirm", signedIn: p.confirmTOTP},
		{pattern: "POST /app/account/totp/remove", signedIn: p.removeTOTP},
		{pattern: "POST /app/account/recovery-codes", signedIn: p.newRecoveryCodes},
		{pattern: "POST /app/account/passkeys/begin", signedIn: p.beginNewPasskey},
		{pattern: "POST /app/account/passkeys/finish", signedIn: p.finishNewPasskey},
		{pattern: "POST /app/account/passkeys/{id}/name", signedIn: p.renamePasskey},
		{pattern: "POST /app/account/passkeys/{id}/remove", signedIn: p.removePasskey},
		{pattern: "POST /app/account/oidc", signedIn: p.link},
		{pattern: "POST /app/account/identities/{id}/remove", signedIn: p.unlink},
		{pattern: "POST /app/account/sessions/end", signedIn: p.endSessions},
		{pattern: "POST /app/account/sessions/{id}/end", signedIn: p.endSession},

		{pattern: "GET /app/approvals", signedIn: p.showApprovals},
		{pattern: "GET /app/approvals/{id}", signedIn: p.showApproval},
		{pattern: "GET /app/approvals/{id}/html", signedIn: p.showMail, frame: true},
		{pattern: "GET /app/approvals/{id}/files/{number}", signedIn: p.showFile},
		{pattern: "POST /app/approvals/{id}/send", signedIn: p.approve},
		{pattern: "POST /app/approvals/{id}/reject", signedIn: p.reject},

		{pattern: "GET /app/apps", signedIn: p.showConnectedApps},
		{pattern: "POST /app/apps/{id}/limits", signedIn: p.limitConnectedApp},
		{pattern: "POST /app/apps/{id}/revoke", signedIn: p.revokeConnectedApp},

		{pattern: "GET /app/apps/templates/{id}", signedIn: p.showTemplate},
		{pattern: "POST /app/apps/templates/{id}/publish", signedIn: p.publishTemplate},

		{pattern: "GET /app/people", signedIn: p.showPeople},
		{pattern: "POST /app/people/invite", signedIn: p.invite},
		{pattern: "POST /app/people/invitations/{id}/resend", signedIn: p.resend},
		{pattern: "POST /app/people/invitations/{id}/revoke", signedIn: p.revoke},
		{pattern: "POST /app/people/{id}/role", signedIn: p.setRole},
		{pattern: "POST /app/people/{id}/remove", signedIn: p.remove},
		{pattern: "POST /app/people/leave", signedIn: p.leave},
	}
}

// withProof runs f. If f returns [users.ErrProve], withProof redirects the visitor to a page that requires a password
// or passkey. After the visitor has entered the password or used the passkey, that page redirects to the current page.
func (p *Pages) withProof(f func(http.ResponseWriter, *http.Request, web.Visitor) error) func(http.ResponseWriter,
	*http.Request, web.Visitor) error {
	return func(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
		err := f(w, r, v)
		if !errors.Is(err, users.ErrProve) {
			return err
		}
		back := "/app/account"
		if r.Method == http.MethodGet {
			back = r.URL.RequestURI()
		}
		to := with("/app/account/prove", "next", back)
		if strings.HasPrefix(r.Header.Get("Accept"), "application/json") {
			return answer(w, http.StatusForbidden, next{to})
		}
		return web.Redirect(w, r, to)
	}
}

// requireFresh returns [users.ErrProve] if the visitor has not entered a password or used a passkey recently.
func (p *Pages) requireFresh(v *web.Visitor) error {
	if !v.Session.Fresh(p.DB.Now()) {
		return users.ErrProve
	}
	return nil
}

// next is the JSON response that tells a page's script which path to open next.
type next struct {
	Next string `json:"next"`
}

// answer sends a JSON response to a page's script.
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

// with returns the path with one query parameter added, or the path alone if the value is empty.
func with(path, name, value string) string {
	if value == "" {
		return path
	}
	return path + "?" + url.Values{name: {value}}.Encode()
}

// pathID returns the id in the request's path. If the path contains no valid id, pathID returns [db.NoID], which
// matches no object.
func pathID(r *http.Request) string {
	if text := strings.ToLower(r.PathValue("id")); id.Valid(text) {
		return text
	}
	return string(db.NoID)
}

// client returns the IP address and User-Agent of a request.
func client(r *http.Request) users.Client {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return users.Client{Address: host, UserAgent: r.UserAgent()}
}
