package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// provider is a fake OIDC provider whose ID tokens contain the given claims.
type provider struct {
	*httptest.Server
	claims map[string]any
	nonce  string // nonce from the last authorization request
	codes  int    // number of authorization codes so far; the last one works once
	used   int    // the last authorization code that was exchanged
	asked  func() // called when a code is exchanged; may be nil
}

func newProvider(t *testing.T) *provider {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{}
	mux := http.NewServeMux()
	answer := func(path string, with func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if path == "/token" && !p.exchange(r.FormValue("code")) {
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"error":"invalid_grant"}`)
				return
			}
			if err := json.NewEncoder(w).Encode(with()); err != nil {
				t.Error(err)
			}
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize",
			"token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/jwks",
			"id_token_signing_alg_values_supported": []string{"ES256"}}
	})
	answer("/jwks", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256",
			Use: "sig"}}}
	})
	answer("/token", func() any {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256,
			Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		token, err := jwt.Signed(signer).Claims(p.claims).Claims(map[string]any{"iss": p.URL, "aud": "postrider",
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "nonce": p.nonce}).Serialize()
		if err != nil {
			t.Error(err)
		}
		return map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": token}
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// exchange reports whether a code is the last one and was not exchanged before (RFC 6749 section 4.1.2).
func (p *provider) exchange(code string) bool {
	if p.asked != nil {
		p.asked()
	}
	ok := code == strconv.Itoa(p.codes) && p.used != p.codes
	p.used = p.codes
	return ok
}

// through simulates a user who follows a link to the provider, signs in, and returns to the callback. The provider's ID
// token contains the given subject and email.
func (p *provider) through(b *browser, address, subject, email string) *browser {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, p.URL+"/authorize?") {
		b.t.Fatalf("the way to the provider is %q: %s", address, b.body)
	}
	p.nonce = u.Query().Get("nonce")
	p.claims = map[string]any{"sub": subject, "email": email, "email_verified": true, "name": "Olga"}
	p.codes++
	return b.get("/sign-in/oidc/callback?" + url.Values{"state": {u.Query().Get("state")},
		"code": {strconv.Itoa(p.codes)}}.Encode())
}

// begin requests a page that redirects to the provider, and returns the target of the redirect.
func (b *browser) begin(path string) (address string) {
	b.t.Helper()
	b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer func() { b.c.CheckRedirect = nil }()
	return b.get(path).header.Get("Location")
}

// A user can sign in with a provider account, join a team with it, and link it to an existing account.
func TestOIDC(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := newProvider(t)
		x := newFixture(t, d, users.OIDCConfig{Issuer: p.URL, ClientID: "postrider", ClientSecret: "s3cret",
			Name: "Acme ID", Domains: []string{"allowed.example"}})
		x.person("ada@acme.example", teams.Owner)
		ada := x.browser(t).signIn("ada@acme.example")
		ada.get("/app/people").submit("/app/people/invite", "email", "olga@acme.example", "role", "viewer").want(200)
		link := x.lastLink("olga@acme.example")

		// Without an invitation to the same address, signing in at the provider creates no account.
		b := x.browser(t).get("/sign-in").want(200, "Sign in with Acme ID")
		p.through(b, b.begin("/sign-in/oidc"), "1", "olga@acme.example").want(403, "no invitation to this address")
		p.through(b, b.begin("/sign-in/oidc?next="+link), "2", "eve@acme.example").
			want(403, "no invitation to this address")

		// After an invitation to the address, signing in at the provider creates the account.
		b.get(link).want(200, "Join with Acme ID")
		var follow string
		for n := range elements(t, b.body) {
			if n.Data == "a" && strings.Contains(text(n), "Join with") {
				follow = attr(n, "href")
			}
		}
		p.through(b, b.begin(follow), "1", "olga@acme.example").want(200, "Join Acme").submit(link).
			want(200, "You have joined the team", "Olga")
		b.submit("/sign-out")
		p.through(b, b.begin("/sign-in/oidc?next=%2Fpeople"), "1", "renamed@elsewhere.example").
			want(200, "People of Acme")

		// A sign-in at the provider can be completed only in the browser that started it, and only once.
		other := x.browser(t)
		p.through(other, b.begin("/sign-in/oidc"), "1", "olga@acme.example").want(403, "did not start in this browser")
		b.get("/sign-in/oidc/callback?state=x&code=1").want(401)

		// A provider account cannot be used to sign in to an existing account with the same address until the user of the
		// existing account links it.
		p.through(other, other.begin("/sign-in/oidc"), "3", "ada@acme.example").
			want(403, "link it on the page of your account")
		ada.get("/app/account").submit("/app/account/oidc").want(200, "Continuing to Acme ID")
		for n := range elements(t, ada.body) {
			if n.Data == "a" && strings.Contains(text(n), "Continue") {
				follow = attr(n, "href")
			}
		}
		p.through(ada, follow, "3", "ada@acme.example").want(200, "The account is linked")
		p.through(other, other.begin("/sign-in/oidc"), "3", "ada@acme.example").
			want(200, "Your account", "ada@acme.example")
		for n := range elements(t, ada.body) {
			if strings.HasPrefix(attr(n, "action"), "/app/account/identities/") {
				follow = attr(n, "action")
			}
		}
		ada.submit(follow).want(200, "no longer linked")

		// If the address's domain is allowed, no invitation is needed.
		p.through(x.browser(t), x.browser(t).begin("/sign-in/oidc"), "4", "new@allowed.example").want(403)
		fresh := x.browser(t)
		p.through(fresh, fresh.begin("/sign-in/oidc"), "4", "new@allowed.example").want(200, "Your account")
		fresh.get("/app/people").want(200, "You are not a member of a team")
		if fresh.path != "/app/account/team" {
			t.Errorf("who is in no team is led to %s", fresh.path)
		}
	})
}

// After a sign-in at the provider, a long authorization request continues unchanged. An authorization request that is
// too long is refused before the sign-in.
func TestLongNextPage(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := newProvider(t)
		x := newFixture(t, d, users.OIDCConfig{Issuer: p.URL, ClientID: "postrider", ClientSecret: "s3cret",
			Domains: []string{"allowed.example"}})
		for _, n := range []int{100, 2000, 5000} {
			// Each & is encoded as three characters. In an address that contains the encoded address as a parameter, each &
			// takes five characters.
			page := "/app/people?" + url.Values{"state": {strings.Repeat("&", n)}}.Encode() + ";x=1,2"
			b := x.browser(t)
			b.get(page)
			if want := with("/sign-in", "next", page); b.path != want {
				t.Fatalf("who is not signed in is led to %.100s", b.path)
			}
			var follow string
			for n := range elements(t, b.body) {
				if n.Data == "a" && strings.HasPrefix(attr(n, "href"), "/sign-in/oidc") {
					follow = attr(n, "href")
				}
			}
			to := b.begin(follow)
			b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			p.through(b, to, "1", "new@allowed.example")
			if at := b.header.Get("Location"); at != page {
				t.Errorf("after the provider one is led to %.100s", at)
			}
			if n := b.kept("oidc-next"); n != 0 {
				t.Errorf("the browser keeps %d cookies that are not needed any more", n)
			}
		}
		b := x.browser(t)
		page := "/app/people?state=" + strings.Repeat("a", 17_000)
		b.get(page).want(400, "too long to return to")
		b.get(with("/sign-in", "next", page)).want(400, "too long to return to")
		b.begin(with("/sign-in/oidc", "next", page))
		b.want(400, "too long to return to")
	})
}

// kept returns how many of the browser's cookies have a name that starts with the prefix.
func (b *browser) kept(name string) (n int) {
	for _, c := range b.c.Jar.Cookies(&url.URL{Scheme: "https", Host: "postrider.test", Path: "/"}) {
		if strings.HasPrefix(c.Name, "__Host-postrider-"+name) {
			n++
		}
	}
	return n
}

func text(n *html.Node) string {
	var b strings.Builder
	for x := range n.Descendants() {
		if x.Type == html.TextNode {
			b.WriteString(x.Data)
		}
	}
	return b.String()
}
