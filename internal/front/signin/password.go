package signin

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

var (
	signInPage  = pageOf("signin.html")
	codePage    = pageOf("code.html")
	forgotPage  = pageOf("forgot.html")
	resetPage   = pageOf("reset.html")
	messagePage = pageOf("message.html")

	errNoPage = fault.NotFoundf("There is no page at this address.")
)

// pendingLifetime is the lifetime of the cookie that holds the token for a sign-in that is waiting for the second
// factor. In package users, the token expires after the same length of time.
const pendingLifetime = 5 * time.Minute

// message is the content of a page that shows a message and a link.
type message struct{ Title, Text, Link, Label string }

func (p *Pages) messagePage(w http.ResponseWriter, r *http.Request, status int, m message) error {
	return p.Site.Show(w, r, status, messagePage, m, web.Bare())
}

func emailField() *web.Field {
	return &web.Field{Name: "email", Label: "Email address", Type: "email", Autocomplete: "username"}
}

func newPasswordField() *web.Field {
	return &web.Field{Name: "password", Label: "New password", Type: "password", Autocomplete: "new-password",
		Hint: "At least 10 characters."}
}

func signInForm() *web.Form {
	return web.NewForm(emailField(), &web.Field{Name: "password", Label: "Password", Type: "password",
		Autocomplete: "current-password", Link: web.Crumb{Label: "Forgot password", Href: "/password/forgot"}})
}

// completeSignIn sets the session cookie, or redirects to the page that asks for a code if a second factor is required.
func (p *Pages) completeSignIn(w http.ResponseWriter, r *http.Request, o users.Outcome, next string) error {
	if o.Pending != "" {
		p.Site.SetCookie(w, "code", o.Pending, pendingLifetime)
		return web.Redirect(w, r, with("/sign-in/code", "next", web.Local(next)))
	}
	p.Site.SignIn(w, r, o.Token)
	p.Site.DeleteCookie(w, "code")
	return web.Redirect(w, r, cmp.Or(web.Local(next), "/app/emails"))
}

func (p *Pages) signInPage(w http.ResponseWriter, r *http.Request, status int, f *web.Form, next string) error {
	return p.Site.Show(w, r, status, signInPage, struct {
		Form                 *web.Form
		Next, Done, Provider string
		Hint, Host           string
		Passkeys             bool
	}{f, web.Local(next), doneMessage(r), p.Users.OIDCName(), p.Site.SignInHint(), p.Site.Host(),
		p.Users.PasskeysEnabled()}, web.Script(passkeysJS), web.Bare())
}

func (p *Pages) showSignIn(w http.ResponseWriter, r *http.Request) error {
	_, ok, err := p.Site.Visitor(r)
	if err != nil {
		return err
	}
	next, err := web.Next(r.URL.Query().Get("next"))
	if err != nil {
		return err
	}
	if ok {
		return web.Redirect(w, r, cmp.Or(next, "/app/emails"))
	}
	return p.signInPage(w, r, http.StatusOK, signInForm(), next)
}

func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	o, err := p.Users.SignIn(r.Context(), users.Attempt{Email: typed.Get("email"), Password: typed.Get("password"),
		Client: client(r)})
	if err == nil {
		return p.completeSignIn(w, r, o, typed.Get("next"))
	}
	f := signInForm().Fill(typed)
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.signInPage(w, r, status, f, typed.Get("next"))
}

func codeForm() *web.Form {
	return web.NewForm(&web.Field{Name: "code", Label: "Code", Autocomplete: "one-time-code", Max: 40,
		Hint: "From your authenticator app, or one of your recovery codes."})
}

func (p *Pages) codePage(w http.ResponseWriter, r *http.Request, status int, f *web.Form, next string) error {
	return p.Site.Show(w, r, status, codePage, struct {
		Form *web.Form
		Next string
	}{f, web.Local(next)}, web.Bare())
}

func (p *Pages) showCode(w http.ResponseWriter, r *http.Request) error {
	next := r.URL.Query().Get("next")
	if p.Site.Cookie(r, "code") == "" {
		return web.Redirect(w, r, with("/sign-in", "next", web.Local(next)))
	}
	return p.codePage(w, r, http.StatusOK, codeForm(), next)
}

func (p *Pages) code(w http.ResponseWriter, r *http.Request) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	o, err := p.Users.SecondFactor(r.Context(), p.Site.Cookie(r, "code"), typed.Get("code"), client(r))
	if err == nil {
		return p.completeSignIn(w, r, o, typed.Get("next"))
	}
	if fault.KindOf(err) == fault.BadCredential {
		p.Site.DeleteCookie(w, "code")
		q := url.Values{"done": {"begin-again"}}
		if next := web.Local(typed.Get("next")); next != "" {
			q.Set("next", next)
		}
		return web.Redirect(w, r, "/sign-in?"+q.Encode())
	}
	f := codeForm()
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.codePage(w, r, status, f, typed.Get("next"))
}

func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) error {
	if err := p.Site.SignOut(w, r); err != nil {
		return err
	}
	return web.Redirect(w, r, "/sign-in?done=signed-out")
}

func (p *Pages) forgotPage(w http.ResponseWriter, r *http.Request, status int, f *web.Form) error {
	return p.Site.Show(w, r, status, forgotPage, struct{ Form *web.Form }{f}, web.Bare())
}

func (p *Pages) showForgot(w http.ResponseWriter, r *http.Request) error {
	return p.forgotPage(w, r, http.StatusOK, web.NewForm(emailField()))
}

// forgot handles the form for requesting a password reset link. The response is the same whether or not the address has
// an account.
func (p *Pages) forgot(w http.ResponseWriter, r *http.Request) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	err = p.Users.RequestReset(r.Context(), typed.Get("email"), client(r))
	if err == nil {
		return web.Redirect(w, r, "/sign-in?done=reset-asked")
	}
	f := web.NewForm(emailField()).Fill(typed)
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.forgotPage(w, r, status, f)
}

func (p *Pages) resetPage(w http.ResponseWriter, r *http.Request, status int, f *web.Form, token string) error {
	return p.Site.Show(w, r, status, resetPage, struct {
		Form  *web.Form
		Token string
	}{f, token}, web.Bare())
}

func (p *Pages) showReset(w http.ResponseWriter, r *http.Request) error {
	token := r.URL.Query().Get("token")
	if _, err := p.Users.CheckReset(r.Context(), token); err != nil {
		return p.badLink(w, r, err)
	}
	return p.resetPage(w, r, http.StatusOK, web.NewForm(newPasswordField()), token)
}

func (p *Pages) reset(w http.ResponseWriter, r *http.Request) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	err = p.Users.Reset(r.Context(), typed.Get("token"), typed.Get("password"), client(r))
	switch {
	case err == nil:
		return web.Redirect(w, r, "/sign-in?done=password-reset")
	case fault.KindOf(err) == fault.NotFound:
		return p.badLink(w, r, err)
	}
	f := web.NewForm(newPasswordField())
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	return p.resetPage(w, r, status, f, typed.Get("token"))
}

// badLink shows a page that says that a link is invalid.
func (p *Pages) badLink(w http.ResponseWriter, r *http.Request, err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return p.messagePage(w, r, http.StatusNotFound, message{"This link no longer works",
		"It was used, it has expired, or a newer link was sent.", "/sign-in", "Go to sign-in"})
}
