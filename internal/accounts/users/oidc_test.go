package users_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// issuer is an OIDC provider for tests. The issuer signs in every browser as the person described by the claims field.
type issuer struct {
	*testing.T
	*httptest.Server
	key *rsa.PrivateKey
	now func() time.Time

	mu     sync.Mutex
	claims map[string]any // claims of the next ID token that the protocol does not require
	change func(map[string]any)
	codes  map[string]url.Values // authorization requests, keyed by issued code

	asked    atomic.Int32         // number of discovery requests received
	discover func() (refuse bool) // called on each discovery request; may be nil
}

var issuerKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func newIssuer(t *testing.T) *issuer {
	key, err := issuerKey()
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{T: t, key: key, now: time.Now, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		if i.discover != nil && i.discover() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		i.answer(w, map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize",
			"token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/jwks",
			"id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) {
		i.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256",
			Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		i.Error(err)
	}
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	id, secret, _ := r.BasicAuth()
	verified := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || id != "postrider" || secret != "s3cret" || asked.Get("redirect_uri") != r.FormValue("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(verified[:]) != asked.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		i.answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": i.URL, "aud": "postrider", "iat": i.now().Unix(),
		"exp": i.now().Add(time.Hour).Unix(), "nonce": asked.Get("nonce")}
	for k, v := range i.claims {
		claims[k] = v
	}
	if i.change != nil {
		i.change(claims)
	}
	key := jose.JSONWebKey{Key: i.key, KeyID: "1"}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil)
	if err != nil {
		i.Error(err)
		return
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.Error(err)
		return
	}
	i.answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": token})
}

// visit follows a redirect to the provider as a browser would, and returns the resulting state and code.
func (i *issuer) visit(address string, claims map[string]any) (state, code string) {
	i.Helper()
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, i.URL+"/authorize?") {
		i.Fatalf("sent to %q, %v", address, err)
	}
	q := u.Query()
	if q.Get("redirect_uri") != publicURL+"/sign-in/oidc/callback" || q.Get("code_challenge_method") != "S256" ||
		q.Get("client_id") != "postrider" || !strings.Contains(q.Get("scope"), "openid") {
		i.Fatalf("asked for %v", q)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	code = rand.Text()
	i.codes[code], i.claims = q, claims
	return q.Get("state"), code
}

// eachOIDC runs a test with an OIDC provider on each database engine.
func eachOIDC(t *testing.T, f func(t *testing.T, x *fixture, i *issuer)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		i := newIssuer(t)
		x := newFixture(t, d, withIssuer(i))
		i.now = x.now
		f(t, x, i)
	})
}

func withIssuer(i *issuer) users.Config {
	return users.Config{PublicURL: publicURL, OIDC: users.OIDCConfig{Issuer: i.URL, ClientID: "postrider",
		ClientSecret: "s3cret", Name: "Acme ID", Domains: []string{"acme.example"}}}
}

// through runs a complete sign-in at the provider and returns its result.
func (x *fixture) through(i *issuer, s *users.Session, claims map[string]any) (users.OIDCResult, error) {
	x.Helper()
	flow, err := x.BeginOIDC(x.Context(), s)
	x.must(err)
	state, code := i.visit(flow.URL, claims)
	return x.FinishOIDC(x.Context(), s, flow.Cookie, state, code, "", home)
}

func as(subject, email string, verified any) map[string]any {
	return map[string]any{"sub": subject, "email": email, "email_verified": verified, "name": "Ada L."}
}

func TestOIDC(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		ctx := t.Context()
		if x.OIDCName() != "Acme ID" {
			t.Errorf("the provider is %q", x.OIDCName())
		}
		// A provider account with the same address cannot sign in as a user who has a password.
		u := x.user("ada@example.com")
		_, err := x.through(i, nil, as("s1", "ada@example.com", true))
		x.is(err, fault.Forbidden)
		s := x.session(u.Email, password)
		got, err := x.through(i, &s, as("s1", "elsewhere@example.com", false))
		x.must(err)
		if !got.Linked || got.Token != "" {
			t.Errorf("linked: %+v", got)
		}
		// a provider account is identified by its subject, not by its address
		got, err = x.through(i, nil, as("s1", "another@example.com", true))
		x.must(err)
		if in := x.of(got.Outcome); in.UserID != u.ID {
			t.Errorf("session %+v", in)
		}
		all, err := x.Identities(ctx, u.ID)
		x.must(err)
		if len(all) != 1 || all[0].Email != "elsewhere@example.com" || all[0].Issuer != i.URL {
			t.Errorf("identities %+v", all)
		}

		// A provider account can be linked to only one user.
		eve := x.session(x.user("eve@example.com").Email, password)
		_, err = x.through(i, &eve, as("s1", "eve@example.com", true))
		x.is(err, fault.Invalid)
		x.is(x.Unlink(ctx, eve, all[0].ID, home), fault.NotFound)

		// A sign-in through the provider still requires the second factor.
		secret, _ := x.withTOTP(s)
		x.pass(time.Minute)
		got, err = x.through(i, nil, as("s1", "", false))
		x.must(err)
		if got.Token != "" || got.Pending == "" {
			t.Errorf("signed in without a code: %+v", got)
		}
		_, err = x.SecondFactor(ctx, strings.Replace(got.Pending, "oidc", "password", 1), code(t, secret, x.now()), home)
		x.is(err, fault.BadCredential)
		_, err = x.SecondFactor(ctx, got.Pending, code(t, secret, x.now()), home)
		x.must(err)
		in, _, _, err := x.Audit.List(ctx, "", audit.Filter{Action: audit.UserSignedIn}, page.Page{Limit: 1})
		x.must(err)
		if in[0].Detail != "Acme ID and code" {
			t.Errorf("recorded as %q", in[0].Detail)
		}
		x.must(x.Unlink(ctx, s, all[0].ID, home))
		_, err = x.through(i, nil, as("s1", "ada@example.com", true))
		x.is(err, fault.Forbidden)
		x.must(x.SetDisabled(ctx, u.ID, true))
	})
}

// TestOIDCOfUsersWithoutPassword checks that users whom the operator created without a password can sign in through the
// provider.
func TestOIDCOfUsersWithoutPassword(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		ctx := t.Context()
		u, err := x.Create(ctx, users.NewUser{Email: "ada@example.com"})
		x.must(err)
		_, err = x.through(i, nil, as("s1", "ada@example.com", false))
		x.is(err, fault.Forbidden)
		got, err := x.through(i, nil, as("s1", "Ada@Example.com", "true"))
		x.must(err)
		s := x.of(got.Outcome)
		if s.UserID != u.ID {
			t.Errorf("session %+v", s)
		}
		// A second provider account with the same address is not linked to the user.
		_, err = x.through(i, nil, as("s2", "ada@example.com", true))
		x.is(err, fault.Forbidden)
		all, err := x.Identities(ctx, u.ID)
		x.must(err)
		x.is(x.Unlink(ctx, s, all[0].ID, home), fault.Forbidden) // refused because it is the user's only way to sign in
		x.must(x.SetDisabled(ctx, u.ID, true))
		_, err = x.through(i, nil, as("s1", "ada@example.com", true))
		x.is(err, fault.BadCredential)
	})
}

func TestOIDCOfStrangers(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		ctx := t.Context()
		_, err := x.through(i, nil, as("s1", "new@acme.example", false))
		x.is(err, fault.Forbidden)
		_, err = x.through(i, nil, map[string]any{"sub": "s1"})
		x.is(err, fault.Forbidden)
		got, err := x.through(i, nil, as("s1", "new@elsewhere.example", true))
		x.must(err)
		if got.Unknown == nil || got.Unknown.Allowed || got.Unknown.Email != "new@elsewhere.example" ||
			got.Token != "" {
			t.Errorf("a stranger: %+v", got)
		}
		got, err = x.through(i, nil, as("s1", "New@Acme.example", true))
		x.must(err)
		p := got.Unknown
		if p == nil || !p.Allowed || p.Email != "new@acme.example" || p.Name != "Ada L." {
			t.Fatalf("a stranger of the domain: %+v", p)
		}
		create := func(token string) (u users.User, err error) {
			err = x.d.Update(ctx, func(tx *db.Tx) error {
				u, err = x.CreateFromOIDC(ctx, tx, token)
				return err
			})
			return u, x.AddressError(err)
		}
		for _, bad := range []string{"", "x", p.Token + "x", p.Token[:40]} {
			_, err := create(bad)
			x.is(err, fault.BadCredential)
		}
		u, err := create(p.Token)
		x.must(err)
		if u.Email != "new@acme.example" || u.HasPassword {
			t.Errorf("created %+v", u)
		}
		_, err = create(p.Token)
		x.is(err, fault.BadCredential)
		got, err = x.through(i, nil, as("s1", "", false))
		x.must(err)
		x.of(got.Outcome)
		if all, err := x.List(ctx, "", 10); err != nil || len(all) != 1 {
			t.Errorf("users %+v, %v", all, err)
		}
	})
}

// TestOIDCIsChecked checks that sign-ins with forged or wrong parameters are refused.
func TestOIDCIsChecked(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		_, err := x.through(i, &s, as("s1", u.Email, true))
		x.must(err)
		begin := func(s *users.Session) (flow users.OIDCFlow, state, code string) {
			flow, err := x.BeginOIDC(ctx, s)
			x.must(err)
			state, code = i.visit(flow.URL, as("s1", u.Email, true))
			return flow, state, code
		}
		flow, state, code := begin(nil)
		theirs, theirState, theirCode := begin(nil)
		refused := func(name string, session *users.Session, cookie, state, code string) {
			t.Helper()
			_, err := x.FinishOIDC(ctx, session, cookie, state, code, "", home)
			if fault.KindOf(err) != fault.BadCredential {
				t.Errorf("%s: %v", name, err)
			}
		}
		refused("no cookie", nil, "", state, code)
		refused("another browser's cookie", nil, theirs.Cookie, state, code)
		refused("no state", nil, flow.Cookie, "", code)
		refused("another state", nil, flow.Cookie, theirState, code)
		refused("an altered cookie", nil, flow.Cookie[:len(flow.Cookie)-2]+"AA", state, code)
		refused("a link where a sign-in was begun", &s, flow.Cookie, state, code)
		refused("no code", nil, flow.Cookie, state, "x")
		refused("a code of another sign-in", nil, flow.Cookie, state, theirCode) // PKCE
		_, err = x.FinishOIDC(ctx, nil, flow.Cookie, state, "", "access_denied", home)
		x.is(err, fault.Forbidden)
		_, err = x.FinishOIDC(ctx, nil, flow.Cookie, state, code, "", home)
		x.must(err)
		refused("the code again", nil, flow.Cookie, state, code)

		linking, state, code := begin(&s)
		eve := x.session(x.user("eve@example.com").Email, password)
		refused("a sign-in where a link was begun", nil, linking.Cookie, state, code)
		refused("a link of another session", &eve, linking.Cookie, state, code)

		flow, state, code = begin(nil)
		x.pass(10*time.Minute + time.Second)
		refused("an old flow", nil, flow.Cookie, state, code)

		for name, change := range map[string]func(c map[string]any){
			"another client":  func(c map[string]any) { c["aud"] = "other" },
			"another issuer":  func(c map[string]any) { c["iss"] = "https://other.example" },
			"an old token":    func(c map[string]any) { c["exp"] = x.now().Add(-time.Hour).Unix() },
			"another nonce":   func(c map[string]any) { c["nonce"] = "x" },
			"no nonce":        func(c map[string]any) { delete(c, "nonce") },
			"no subject":      func(c map[string]any) { delete(c, "sub") },
			"a long subject":  func(c map[string]any) { c["sub"] = strings.Repeat("x", 256) },
			"a NUL in it":     func(c map[string]any) { c["sub"] = "s1\x00" },
			"claims of a map": func(c map[string]any) { c["email"] = map[string]any{} },
		} {
			flow, state, code := begin(nil)
			i.mu.Lock()
			i.change = change
			i.mu.Unlock()
			_, err := x.FinishOIDC(ctx, nil, flow.Cookie, state, code, "", home)
			if k := fault.KindOf(err); k != fault.BadCredential && k != fault.Unavailable {
				t.Errorf("%s: %v", name, err)
			}
			i.mu.Lock()
			i.change = nil
			i.mu.Unlock()
		}
	})
}

// TestOIDCIsLimited checks that callbacks with made-up codes cause only a limited number of requests to the provider.
func TestOIDCIsLimited(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		flow, err := x.BeginOIDC(t.Context(), nil)
		x.must(err)
		state, _ := i.visit(flow.URL, nil)
		guess := func() error {
			_, err := x.FinishOIDC(t.Context(), nil, flow.Cookie, state, "guessed", "", home)
			return err
		}
		for range 49 {
			x.is(guess(), fault.BadCredential)
		}
		for range 3 { // refunds its count
			_, err = x.through(i, nil, as("s1", "new@acme.example", true))
			x.must(err)
		}
		x.is(guess(), fault.BadCredential)
		x.is(guess(), fault.TooFast)
	})
}

// TestOIDCProviderIsSlow checks that sign-ins share one discovery request while the provider does not answer, and that
// a sign-in stops waiting when its context ends.
func TestOIDCProviderIsSlow(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		answer := make(chan bool)
		i.discover = func() bool { return !<-answer }
		begin := func(ctx context.Context, ends chan<- error) {
			_, err := x.BeginOIDC(ctx, nil)
			ends <- err
		}
		leaving, leave := context.WithCancel(t.Context())
		left, stayed := make(chan error, 2), make(chan error, 4)
		for range cap(left) {
			go begin(leaving, left)
		}
		for range cap(stayed) {
			go begin(t.Context(), stayed)
		}
		leave()
		for range cap(left) {
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("who left: %v", err)
			}
		}
		answer <- true
		for range cap(stayed) {
			x.must(<-stayed)
		}
		if n := i.asked.Load(); n != 1 {
			t.Errorf("the provider was asked %d times", n)
		}
	})
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		refuse := true
		i.discover = func() bool { return refuse }
		for range 3 {
			_, err := x.BeginOIDC(t.Context(), nil)
			x.is(err, fault.Unavailable)
		}
		refuse = false
		x.pass(5 * time.Second)
		_, err := x.BeginOIDC(t.Context(), nil)
		x.must(err)
		if n := i.asked.Load(); n != 2 {
			t.Errorf("the provider was asked %d times, want once when it failed and once later", n)
		}
	})
}

func TestOIDCProviderIsAway(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		i.Close()
		_, err := x.BeginOIDC(t.Context(), nil)
		x.is(err, fault.Unavailable)
	})
	each(t, func(t *testing.T, x *fixture) {
		if x.OIDCName() != "" {
			t.Error("there is a provider")
		}
		_, err := x.BeginOIDC(t.Context(), nil)
		x.is(err, fault.NotFound)
	})
}
