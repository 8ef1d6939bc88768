package signin

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
)

var (
	accountPage = pageOf("account.html")
	teamsPage   = pageOf("teams.html")
)

// doneMessages maps values of the query parameter "done" to the messages that pages show after a redirect.
var doneMessages = map[string]string{
	"begin-again":      "The sign-in took too long, or too many codes were wrong. Start again.",
	"signed-out":       "You are signed out.",
	"reset-asked":      "If this address has an account, we have sent it a link to choose a new password.",
	"password-reset":   "Your new password is saved. Sign in with it.",
	"name-changed":     "Your name is saved.",
	"password-changed": "Your password is saved.",
	"totp-removed":     "Two-factor authentication is off.",
	"passkey-added":    "The passkey is added.",
	"passkey-renamed":  "The passkey is renamed.",
	"passkey-removed":  "The passkey is removed.",
	"linked":           "The account is linked.",
	"unlinked":         "The account is no longer linked.",
	"session-ended":    "The other browser is signed out.",
	"sessions-ended":   "All other browsers are signed out.",
	"joined":           "You have joined the team.",
	"invited":          "The invitation is sent.",
	"resent":           "The invitation was sent again. The earlier link no longer works.",
	"revoked":          "The invitation is revoked.",
	"role-changed":     "The role is changed.",
	"removed":          "The member is removed.",
	"left":             "You have left the team.",
	"program-limited":  "The limits are saved.",
	"program-revoked":  "The app can no longer act for the team.",
	"published":        "The template is published. Emails are sent with its new version from now on.",
	"email-approved":   "The email is approved and will be sent.",
	"email-rejected":   "The email is rejected and will not be sent.",
}

func doneMessage(r *http.Request) string { return doneMessages[r.URL.Query().Get("done")] }

// account is the content of the account page.
type account struct {
	User          users.User
	Done, Problem string
	Name          *web.Form
	Recovery      int
	Passkeys      []users.Passkey
	PasskeysWork  bool
	Provider      string
	Identities    []users.Identity
	Sessions      []session
}

type session struct {
	users.Session
	Browser string
	Current bool
}

func nameForm(u *users.User) *web.Form {
	return web.NewForm(&web.Field{Name: "name", Label: "Name", Value: u.Name, Autocomplete: "name", Optional: true,
		Max: 100})
}

func (p *Pages) showAccount(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	return p.accountPage(w, r, v, http.StatusOK, nameForm(&v.User), "")
}

func (p *Pages) accountPage(w http.ResponseWriter, r *http.Request, v web.Visitor, status int, name *web.Form,
	problem string) (err error) {
	ctx := r.Context()
	a := account{User: v.User, Name: name, Problem: problem, Provider: p.Users.OIDCName(),
		PasskeysWork: p.Users.PasskeysEnabled()}
	if r.Method == http.MethodGet {
		a.Done = doneMessage(r)
	}
	if v.User.HasTOTP {
		if a.Recovery, err = p.Users.RecoveryCodesLeft(ctx, v.User.ID); err != nil {
			return err
		}
	}
	if a.Passkeys, err = p.Users.Passkeys(ctx, v.User.ID); err != nil {
		return err
	}
	if a.Identities, err = p.Users.Identities(ctx, v.User.ID); err != nil {
		return err
	}
	all, err := p.Users.Sessions(ctx, v.User.ID)
	if err != nil {
		return err
	}
	for _, x := range all {
		a.Sessions = append(a.Sessions, session{x, browserName(x.UserAgent), x.ID == v.Session.ID})
	}
	return p.Site.Show(w, r, status, accountPage, a, web.Script(passkeysJS), web.Class("form"),
		web.Crumbs("Account"))
}

// accountDone responds to a change on the account page, either with a redirect to the page and a message, or with the
// page and the error.
func (p *Pages) accountDone(w http.ResponseWriter, r *http.Request, v web.Visitor, what string, err error) error {
	if err == nil {
		return web.Redirect(w, r, with("/app/account", "done", what))
	}
	if err == users.ErrProve {
		return err
	}
	f := web.NewForm()
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.accountPage(w, r, v, status, nameForm(&v.User), f.Problem)
}

func (p *Pages) rename(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	err = p.Users.Rename(r.Context(), v.User.ID, typed.Get("name"))
	if err == nil {
		return web.Redirect(w, r, "/app/account?done=name-changed")
	}
	f := nameForm(&v.User).Fill(typed)
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.accountPage(w, r, v, status, f, "")
}

func (p *Pages) endSession(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	err := p.requireFresh(&v)
	if err == nil {
		err = p.Users.EndSession(r.Context(), v.User.ID, pathID(r))
	}
	return p.accountDone(w, r, v, "session-ended", err)
}

func (p *Pages) endSessions(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	err := p.requireFresh(&v)
	if err == nil {
		err = p.Users.EndSessions(r.Context(), v.User.ID, v.Session.ID)
	}
	return p.accountDone(w, r, v, "sessions-ended", err)
}

func (p *Pages) showTeams(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	current, _ := v.Team()
	return p.Site.Show(w, r, http.StatusOK, teamsPage, struct {
		web.Visitor
		Current, Next string
	}{v, current.TeamID, web.Local(r.URL.Query().Get("next"))}, web.Class("form"),
		web.Crumbs("Account", "/app/account", "Teams"))
}

func (p *Pages) chooseTeam(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	if _, err := p.inTeam(r, &v, typed.Get("team"), teams.MembersRead); err != nil {
		return err
	}
	if err := p.Users.SetTeam(r.Context(), v.Session.ID, typed.Get("team")); err != nil {
		return err
	}
	next := web.Local(typed.Get("next"))
	if next == "" {
		next = "/app/emails"
	}
	return web.Redirect(w, r, next)
}

// browserName returns the names of the browser and the operating system in a User-Agent.
func browserName(userAgent string) string {
	first := func(of [][2]string, otherwise string) string {
		for _, x := range of {
			if strings.Contains(userAgent, x[0]) {
				return x[1]
			}
		}
		return otherwise
	}
	// The most specific names come first, because many user agents also contain the names of other browsers.
	name := first([][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}}, "Unknown browser")
	system := first([][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"CrOS", "ChromeOS"},
		{"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"Linux", "Linux"}}, "")
	if system == "" {
		return name
	}
	return name + " on " + system
}
