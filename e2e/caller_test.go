package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
)

// caller makes requests that are authenticated with a credential or with browser cookies.
type caller struct {
	addr   string
	bearer string
	jar    http.CookieJar
}

// reply is the program's response to a request.
type reply struct {
	status   int
	location string // the Location header
	text     string
}

// ask sends a request and returns the response. If the body is url.Values, ask sends it as a form, otherwise as JSON.
// Redirects are not followed.
func (c caller) ask(ctx context.Context, method, path string, body any, header ...string) (a reply, err error) {
	text, kind := "", "application/json"
	switch b := body.(type) {
	case nil:
	case url.Values:
		text, kind = b.Encode(), "application/x-www-form-urlencoded"
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return a, err
		}
		text = string(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+path, strings.NewReader(text))
	if err != nil {
		return a, err
	}
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Jar: c.jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	w, err := client.Do(r)
	if err != nil {
		return a, err
	}
	defer w.Body.Close()
	said, err := io.ReadAll(w.Body)
	return reply{w.StatusCode, w.Header.Get("Location"), string(said)}, err
}

// pair holds the access token and refresh token of a connected app.
type pair struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

// grantID returns the grant id that the access token contains.
func (p pair) grantID(t *testing.T) string {
	t.Helper()
	parts := strings.Split(p.Access, ".")
	var says struct {
		Grant string `json:"grant_id"`
	}
	if len(parts) == 3 {
		text, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err == nil {
			err = json.Unmarshal(text, &says)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if says.Grant == "" {
		t.Errorf("the access token names no grant: %q", p.Access)
	}
	return says.Grant
}

const anyLoopback = "http://127.0.0.1:9/oauth/callback"

const oauthVerifier = "a-verifier-of-43-characters-at-least-0123456789"

// authorizePath returns the path and query of the authorization URL that an OAuth client opens in the browser.
func authorizePath(redirect, clientID, scope string) string {
	hash := sha256.Sum256([]byte(oauthVerifier))
	return "/oauth/authorize?" + url.Values{"client_id": {clientID}, "response_type": {"code"},
		"redirect_uri": {redirect},
		"scope":        {scope}, "state": {"s"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(hash[:])},
		"code_challenge_method": {"S256"}}.Encode()
}

// codeFor returns the form with which the official CLI exchanges an authorization code for tokens.
func codeFor(code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "client_id": {grants.CLI}, "code": {code},
		"redirect_uri": {anyLoopback}, "code_verifier": {oauthVerifier}}
}

// consented gives consent to the official CLI with an API key, and returns the authorization code.
func consented(ctx context.Context, addr, key, scope string) (code string, err error) {
	path := authorizePath(anyLoopback, grants.CLI, scope)
	a, err := caller{addr: addr, bearer: key}.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	to, err := url.Parse(a.location)
	if err != nil || to.Query().Get("code") == "" {
		return "", errors.New("no code: " + a.location + a.text)
	}
	return to.Query().Get("code"), nil
}

// granted authorizes the official CLI, giving consent with an API key, and returns the tokens.
func granted(ctx context.Context, addr, key, scope string) (p pair, err error) {
	code, err := consented(ctx, addr, key, scope)
	if err != nil {
		return p, err
	}
	a, err := caller{addr: addr}.ask(ctx, http.MethodPost, "/oauth/token", codeFor(code))
	if err == nil {
		err = json.Unmarshal([]byte(a.text), &p)
	}
	if err == nil && p.Refresh == "" {
		err = errors.New("no tokens: " + a.text)
	}
	return p, err
}

// refresh exchanges the refresh token for new tokens.
func (p pair) refresh(ctx context.Context, addr string) (next pair, a reply, err error) {
	a, err = caller{addr: addr}.ask(ctx, http.MethodPost, "/oauth/token", url.Values{"grant_type": {"refresh_token"},
		"client_id": {grants.CLI}, "refresh_token": {p.Refresh}})
	if err == nil && a.status == http.StatusOK {
		err = json.Unmarshal([]byte(a.text), &next)
	}
	return next, a, err
}
