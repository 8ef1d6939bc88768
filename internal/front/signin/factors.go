package signin

import (
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
)

var (
	provePage    = pageOf("prove.html")
	passwordPage = pageOf("password.html")
	totpPage     = pageOf("totp.html")
	codesPage    = pageOf("codes.html")
)

func proveForm() *web.Form {
	return web.NewForm(&web.Field{Name: "password", Label: "Password", Type: "password",
		Autocomplete: "current-password"})
}

func (p *Pages) provePage(w http.ResponseWriter, r *http.Request, v web.Visitor, status int, f *web.Form,
	next string) error {
	keys, err := p.Users.Passkeys(r.Context(), v.User.ID)
	if err != nil {
		return err
	}
	return p.Site.Show(w, r, status, provePage, struct {
		Form               *web.Form
		Next               string
		Password, Passkeys bool
	}{f, web.Local(next), v.User.HasPassword, len(keys) > 0}, web.Script(passkeysJS), web.Bare())
}

func (p *Pages) showProve(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	return p.provePage(w, r, v, http.StatusOK, proveForm(), r.URL.Query().Get("next"))
}

func (p *Pages) prove(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	err = p.Users.ProvePassword(r.Context(), v.Session, typed.Get("password"), client(r))
	if err == nil {
		return web.Redirect(w, r, web.Local(typed.Get("next")))
	}
	f := proveForm()
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.provePage(w, r, v, status, f, typed.Get("next"))
}

// passwordForm returns a form that asks for a new password and, if the user already has a password, for the current
// password.
func passwordForm(u *users.User) *web.Form {
	f := web.NewForm(newPasswordField())
	if u.HasPassword {
		f.Fields = append([]*web.Field{{Name: "current", Label: "Current password", Type: "password",
			Autocomplete: "current-password"}}, f.Fields...)
	}
	return f
}

func (p *Pages) passwordPage(w http.ResponseWriter, r *http.Request, v web.Visitor, status int, f *web.Form) error {
	return p.Site.Show(w, r, status, passwordPage, struct {
		Form *web.Form
		Has  bool
	}{f, v.User.HasPassword}, web.Class("form"), web.Crumbs("Account", "/app/account", "Password"))
}

func (p *Pages) showPassword(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	if !v.User.HasPassword {
		if err := p.requireFresh(&v); err != nil {
			return err
		}
	}
	return p.passwordPage(w, r, v, http.StatusOK, passwordForm(&v.User))
}

func (p *Pages) setPassword(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	err = p.Users.SetPassword(r.Context(), v.Session, typed.Get("current"), typed.Get("password"), client(r))
	if err == nil {
		return web.Redirect(w, r, "/app/account?done=password-changed")
	}
	if err == users.ErrProve {
		return err
	}
	f := passwordForm(&v.User)
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.passwordPage(w, r, v, status, f)
}

// authenticator is the content of the page that sets up an authenticator app. Token is "" until the setup of the
// authenticator app begins.
type authenticator struct {
	Secret, Token string
	QR            template.URL
	Form          *web.Form
	Problem       string
}

func totpForm() *web.Form {
	return web.NewForm(&web.Field{Name: "code", Label: "Code", Autocomplete: "one-time-code", Max: 40,
		Hint: "The six digits that the app shows now."})
}

func (p *Pages) showTOTP(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	if err := p.requireFresh(&v); err != nil {
		return err
	}
	return p.authenticatorPage(w, r, http.StatusOK, authenticator{})
}

func (p *Pages) beginTOTP(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	of, err := p.Users.BeginTOTP(r.Context(), v.Session)
	if err != nil {
		return err
	}
	return p.totpPage(w, r, http.StatusOK, of, totpForm())
}

func (p *Pages) totpPage(w http.ResponseWriter, r *http.Request, status int, of users.TOTPSetup, f *web.Form) error {
	return p.authenticatorPage(w, r, status, authenticator{Secret: of.Secret, Token: of.Token,
		QR: template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(of.PNG)), Form: f})
}

func (p *Pages) authenticatorPage(w http.ResponseWriter, r *http.Request, status int, a authenticator) error {
	return p.Site.Show(w, r, status, totpPage, a, web.Class("form"),
		web.Crumbs("Account", "/app/account", "Two-factor authentication"))
}

func (p *Pages) codesPage(w http.ResponseWriter, r *http.Request, codes []string) error {
	return p.Site.Show(w, r, http.StatusOK, codesPage, codes, web.Class("form"),
		web.Crumbs("Account", "/app/account", "Recovery codes"))
}

// confirmTOTP enables two-factor authentication and shows the recovery codes. After a wrong code, the page shows the
// same secret again, because the authenticator app may not have it yet. If the setup took too long, the page offers to
// begin again.
func (p *Pages) confirmTOTP(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	codes, err := p.Users.ConfirmTOTP(r.Context(), v.Session, typed.Get("token"), typed.Get("code"), client(r))
	if err == nil {
		return p.codesPage(w, r, codes)
	}
	if errors.Is(err, users.ErrProve) {
		return err
	}
	f := totpForm()
	status, ours := f.SetError(err)
	if ours != nil {
		return ours
	}
	if f.Fields[0].Error == "" {
		return p.authenticatorPage(w, r, status, authenticator{Problem: f.Problem})
	}
	of, err := p.Users.ResumeTOTP(r.Context(), v.Session, typed.Get("token"))
	if err != nil {
		return err
	}
	return p.totpPage(w, r, status, of, f)
}

func (p *Pages) removeTOTP(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	err := p.Users.DisableTOTP(r.Context(), v.Session, client(r))
	return p.accountDone(w, r, v, "totp-removed", err)
}

func (p *Pages) newRecoveryCodes(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	codes, err := p.Users.NewRecoveryCodes(r.Context(), v.Session, client(r))
	if err != nil {
		return p.accountDone(w, r, v, "", err)
	}
	return p.codesPage(w, r, codes)
}
