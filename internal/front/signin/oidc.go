package signin

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

var leavePage = pageOf("leave.html")

// oidcLifetime is the lifetime of the cookies that hold the state of a sign-in at the provider.
const oidcLifetime = 10 * time.Minute

// linking is stored in place of the next page when the visitor links an account.
const linking = "link"

// beginOIDC redirects to the provider. A GET request is allowed, because only the same browser can complete the
// sign-in.
func (p *Pages) beginOIDC(w http.ResponseWriter, r *http.Request) error {
	next, err := web.Next(r.URL.Query().Get("next"))
	if err != nil {
		return err
	}
	flow, err := p.Users.BeginOIDC(r.Context(), nil)
	if err != nil {
		return err
	}
	p.Site.SetCookie(w, "oidc", flow.Cookie, oidcLifetime)
	p.storeNext(w, next)
	w.Header().Set("Location", flow.URL)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// link starts linking an account at the provider to the visitor's account. The Content-Security-Policy does not allow a
// form submission to redirect to another site, so the response is a page with a link to the provider.
func (p *Pages) link(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	if err := p.requireFresh(&v); err != nil {
		return err
	}
	flow, err := p.Users.BeginOIDC(r.Context(), &v.Session)
	if err != nil {
		return p.accountDone(w, r, v, "", err)
	}
	p.Site.SetCookie(w, "oidc", flow.Cookie, oidcLifetime)
	p.storeNext(w, linking)
	return p.Site.Show(w, r, http.StatusOK, leavePage, struct{ Provider, URL string }{p.Users.OIDCName(), flow.URL})
}

func (p *Pages) unlink(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	err := p.Users.Unlink(r.Context(), v.Session, pathID(r), client(r))
	return p.accountDone(w, r, v, "unlinked", err)
}

// finishOIDC handles the request that follows the redirect back from the provider. A HEAD request has no effect: the
// page of an outage sends it to learn whether the database is back.
func (p *Pages) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodHead {
		return p.DB.Ready(r.Context())
	}
	cookie := p.Site.Cookie(r, "oidc")
	if cookie == "" {
		p.deleteNext(w, r)
		return errNoCookie
	}
	next := p.readNext(r)
	of, err := p.completeOIDC(r, cookie, next)
	switch {
	case err == nil || !canRetry(err):
		p.Site.DeleteCookie(w, "oidc")
		p.deleteNext(w, r)
	case of.Cookie != "":
		p.Site.SetCookie(w, "oidc", of.Cookie, oidcLifetime)
	}
	switch {
	case err != nil:
		return err
	case of.Linked:
		return web.Redirect(w, r, "/app/account?done=linked")
	}
	return p.completeSignIn(w, r, of.Outcome, web.Local(next))
}

// canRetry reports whether a sign-in at the provider may succeed if the same request is repeated later. Only then the
// browser keeps its cookies. Package users completes each sign-in at most once.
func canRetry(err error) bool { return fault.Ours(err) || fault.KindOf(err) == fault.TooFast }

// completeOIDC completes a sign-in at the provider, or links the provider's account. If it returns an error, the result
// may have another cookie for a further try.
func (p *Pages) completeOIDC(r *http.Request, cookie, next string) (users.OIDCResult, error) {
	v, ok, err := p.Site.Visitor(r)
	if err != nil {
		return users.OIDCResult{}, err
	}
	var session *users.Session
	if ok && next == linking { // package users checks whether the sign-in was started for linking
		session = &v.Session
	}
	q := r.URL.Query()
	of, err := p.Users.FinishOIDC(r.Context(), session, cookie, q.Get("state"), q.Get("code"), q.Get("error"),
		client(r))
	if err == nil && of.Unknown != nil {
		of.Outcome, err = p.createFromOIDC(r, of.Unknown, web.Local(next))
	}
	return of, err
}

// nextCookieBytes is how many bytes of the next page's encoded address fit in one cookie. Browsers reject cookies whose
// name and value together exceed 4,096 bytes (RFC 6265bis section 5.7).
const nextCookieBytes = 3500

// nextCookiesMax is the maximum number of cookies for the next page. The longest allowed address needs fewer cookies.
const nextCookiesMax = 9

// storeNext stores the next page's address in cookies while the visitor signs in at the provider. The address is
// encoded in base64, because it may contain characters that are not allowed in cookies. The first cookie starts with
// the number of cookies.
func (p *Pages) storeNext(w http.ResponseWriter, next string) {
	all := slices.Collect(slices.Chunk([]byte(base64.RawURLEncoding.EncodeToString([]byte(next))), nextCookieBytes))
	if len(all) == 0 {
		all = [][]byte{nil}
	}
	for i, chunk := range all {
		value := string(chunk)
		if i == 0 {
			value = strconv.Itoa(len(all)) + value
		}
		p.Site.SetCookie(w, nextCookie(i), value, oidcLifetime)
	}
}

func nextCookie(i int) string { return "oidc-next" + strconv.Itoa(i) }

// readNext returns the address that storeNext stored. If a cookie is missing, readNext returns "".
func (p *Pages) readNext(r *http.Request) string {
	text := ""
	for i := range p.nextCookies(r) {
		chunk := p.Site.Cookie(r, nextCookie(i))
		if chunk == "" {
			return ""
		}
		if i == 0 {
			chunk = chunk[1:]
		}
		text += chunk
	}
	next, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(next)
}

// nextCookies returns the number of cookies that storeNext stored.
func (p *Pages) nextCookies(r *http.Request) int {
	first := p.Site.Cookie(r, nextCookie(0))
	if first == "" {
		return 0
	}
	return min(max(int(first[0])-'0', 1), nextCookiesMax)
}

// deleteNext deletes the cookies that storeNext stored.
func (p *Pages) deleteNext(w http.ResponseWriter, r *http.Request) {
	for i := range p.nextCookies(r) {
		p.Site.DeleteCookie(w, nextCookie(i))
	}
}

// createFromOIDC creates an account for a person whom the provider has authenticated but who has no account yet, and
// starts a session. Either the person must have followed an invitation to the same address, or the installation must
// allow the address's domain.
func (p *Pages) createFromOIDC(r *http.Request, who *users.Person, next string) (users.Outcome, error) {
	if !who.Allowed {
		if err := p.invited(r.Context(), who.Email, next); err != nil {
			return users.Outcome{}, err
		}
	}
	var token string
	err := p.DB.Update(r.Context(), func(tx *db.Tx) error {
		u, err := p.Users.CreateFromOIDC(r.Context(), tx, who.Token)
		if err == nil {
			token, err = p.Users.StartIn(r.Context(), tx, u, "oidc", client(r))
		}
		return err
	})
	return users.Outcome{Token: token}, p.Users.AddressError(err)
}

// invited returns a fault if the page is not an invitation to the given email address.
func (p *Pages) invited(ctx context.Context, email, page string) error {
	if token, ok := strings.CutPrefix(page, invitationPath); ok {
		address, err := users.Address(email)
		if err != nil {
			return err
		}
		switch v, err := p.Members.Invitation(ctx, token); {
		case err != nil:
			return err
		case v.Email == address:
			return nil
		}
	}
	return fault.Forbiddenf("", "There is no account for %s and no invitation to this address. Ask an owner or admin "+
		"of a team to invite you.", email)
}

var errNoCookie = fault.Forbiddenf("", "This sign-in did not start in this browser, or it started too long "+
	"ago. Start again.")
