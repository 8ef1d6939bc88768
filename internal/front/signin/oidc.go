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

// finishOIDC handles the request that follows the redirect back from the provider.
func (p *Pages) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	cookie, next := p.Site.Cookie(r, "oidc"), p.takeNext(w, r)
	if cookie == "" {
		return errNoCookie
	}
	p.Site.DeleteCookie(w, "oidc")
	v, ok, err := p.Site.Visitor(r)
	if err != nil {
		return err
	}
	var session *users.Session
	if ok && next == linking { // package users checks whether the sign-in was started for linking
		session = &v.Session
	}
	next = web.Local(next)
	q := r.URL.Query()
	of, err := p.Users.FinishOIDC(r.Context(), session, cookie, q.Get("state"), q.Get("code"), q.Get("error"),
		client(r))
	switch {
	case err != nil:
		return err
	case of.Linked:
		return web.Redirect(w, r, "/app/account?done=linked")
	case of.Unknown != nil:
		return p.unknown(w, r, of.Unknown, next)
	}
	return p.completeSignIn(w, r, of.Outcome, next)
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

// takeNext returns the address that storeNext stored, and deletes the cookies. If a cookie is missing, takeNext returns
// "".
func (p *Pages) takeNext(w http.ResponseWriter, r *http.Request) string {
	first := p.Site.Cookie(r, nextCookie(0))
	if first == "" {
		return ""
	}
	n, text := min(int(first[0]-'0'), nextCookiesMax), first[1:]
	p.Site.DeleteCookie(w, nextCookie(0))
	whole := true
	for i := 1; i < n; i++ {
		chunk := p.Site.Cookie(r, nextCookie(i))
		whole = whole && chunk != ""
		text += chunk
		p.Site.DeleteCookie(w, nextCookie(i))
	}
	next, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !whole {
		return ""
	}
	return string(next)
}

// unknown creates an account for a person whom the provider has authenticated but who has no account yet. Either the
// person must have followed an invitation to the same address, or the installation must allow the address's domain.
func (p *Pages) unknown(w http.ResponseWriter, r *http.Request, who *users.Person, next string) error {
	if !who.Allowed {
		if err := p.invited(r.Context(), who.Email, next); err != nil {
			return err
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
	if err := p.Users.AddressError(err); err != nil {
		return err
	}
	return p.completeSignIn(w, r, users.Outcome{Token: token}, next)
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
