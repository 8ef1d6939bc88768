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

// oidcLasts is for how long a browser keeps what a sign-in at the provider needs.
const oidcLasts = 10 * time.Minute

// linking stands in place of the next page when an account is to be linked.
const linking = "link"

// beginOIDC leads to the provider. It is a link: what it begins can only be completed by this browser, and signs in who
// has an account there.
func (p *Pages) beginOIDC(w http.ResponseWriter, r *http.Request) error {
	next, err := web.Next(r.URL.Query().Get("next"))
	if err != nil {
		return err
	}
	flow, err := p.Users.BeginOIDC(r.Context(), nil)
	if err != nil {
		return err
	}
	p.Site.Keep(w, "oidc", flow.Cookie, oidcLasts)
	p.keepNext(w, next)
	w.Header().Set("Location", flow.URL)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// link begins to link an account at the provider to the visitor. Browsers do not follow a redirect of a form to another
// site here, so the answer is a page that leads on.
func (p *Pages) link(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	if err := p.fresh(&v); err != nil {
		return err
	}
	flow, err := p.Users.BeginOIDC(r.Context(), &v.Session)
	if err != nil {
		return p.accountDone(w, r, v, "", err)
	}
	p.Site.Keep(w, "oidc", flow.Cookie, oidcLasts)
	p.keepNext(w, linking)
	return p.Site.Show(w, r, http.StatusOK, leavePage, struct{ Provider, URL string }{p.Users.OIDCName(), flow.URL})
}

func (p *Pages) unlink(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	err := p.Users.Unlink(r.Context(), v.Session, pathID(r))
	return p.accountDone(w, r, v, "unlinked", err)
}

// finishOIDC is where the provider sends the browser back to.
func (p *Pages) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	cookie, next := p.Site.Kept(r, "oidc"), p.takeNext(w, r)
	if cookie == "" {
		return errNoCookie
	}
	p.Site.Drop(w, "oidc")
	v, ok, err := p.Site.Visitor(r)
	if err != nil {
		return err
	}
	var session *users.Session
	if ok && next == linking { // package users knows whether it was
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
		return web.Redirect(w, r, "/account?done=linked")
	case of.Unknown != nil:
		return p.unknown(w, r, of.Unknown, next)
	}
	return p.enter(w, r, of.Outcome, next)
}

// nextPart is how much of the next page one cookie has, in octets. Browsers keep none of more than 4,096 with its name
// (RFC 6265bis section 5.7).
const nextPart = 3500

// nextParts is the most cookies that the next page takes. Those of the longest one are fewer.
const nextParts = 9

// keepNext lets the browser keep the next page while it is at the provider: in base64, because addresses have
// characters that cookies have not, and in as many cookies as it takes, of which the first says how many.
func (p *Pages) keepNext(w http.ResponseWriter, next string) {
	all := slices.Collect(slices.Chunk([]byte(base64.RawURLEncoding.EncodeToString([]byte(next))), nextPart))
	if len(all) == 0 {
		all = [][]byte{nil}
	}
	for i, part := range all {
		value := string(part)
		if i == 0 {
			value = strconv.Itoa(len(all)) + value
		}
		p.Site.Keep(w, nextCookie(i), value, oidcLasts)
	}
}

func nextCookie(i int) string { return "oidc-next" + strconv.Itoa(i) }

// takeNext returns what keepNext gave the browser, and deletes it there; "" if it is not whole.
func (p *Pages) takeNext(w http.ResponseWriter, r *http.Request) string {
	first := p.Site.Kept(r, nextCookie(0))
	if first == "" {
		return ""
	}
	n, text := min(int(first[0]-'0'), nextParts), first[1:]
	p.Site.Drop(w, nextCookie(0))
	whole := true
	for i := 1; i < n; i++ {
		part := p.Site.Kept(r, nextCookie(i))
		whole = whole && part != ""
		text += part
		p.Site.Drop(w, nextCookie(i))
	}
	next, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !whole {
		return ""
	}
	return string(next)
}

// unknown makes an account for somebody whom the provider vouches for, if they come from an invitation of their address
// or the installation allows their domain.
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
	return p.enter(w, r, users.Outcome{Token: token}, next)
}

// invited returns a fault unless a page is that of an invitation of the address.
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
	return fault.Forbiddenf("", "There is no account for %s, and no invitation of this address. Ask an owner or admin "+
		"of a team to invite it.", email)
}

var errNoCookie = fault.Forbiddenf("", "This sign-in was not begun in this browser, or too long ago. Begin again.")
