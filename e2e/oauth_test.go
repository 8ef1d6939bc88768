//go:build browser

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
)

// program is an OAuth client that uses the same flow as the official CLI.
type program struct {
	t        *testing.T
	n        *node
	redirect string
	sent     chan url.Values // query parameters of each redirect to the client
}

func newProgram(t *testing.T, n *node) *program {
	p := &program{t: t, n: n, sent: make(chan url.Values, 10)}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth/callback" {
			p.sent <- r.URL.Query()
			fmt.Fprint(w, "You can close this window.")
		}
	}))
	t.Cleanup(back.Close)
	p.redirect = back.URL + "/oauth/callback"
	return p
}

// token exchanges an authorization code for an access token.
func (p *program) token(clientID, code string) string {
	p.t.Helper()
	r, err := http.PostForm("http://"+p.n.addr+"/oauth/token", url.Values{"grant_type": {"authorization_code"},
		"client_id": {clientID}, "code": {code}, "redirect_uri": {p.redirect}, "code_verifier": {oauthVerifier}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Access string `json:"access_token"`
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.Access == "" {
		p.t.Fatalf("%s %v", r.Status, err)
	}
	return answer.Access
}

// status makes an API request with a token and returns the response status.
func (p *program) status(token, path string) int {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.n.addr+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	w.Body.Close()
	return w.StatusCode
}

// TestConsentInABrowser: a user reads the consent page in a browser and allows or refuses access. The browser follows
// the redirect to the client, which the page's Content-Security-Policy must allow.
func TestConsentInABrowser(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	p := newProgram(t, n)
	r := &reader{t: t, url: "http://" + n.addr, tab: chromium(t)}
	r.signsIn(n)

	r.open(authorizePath(p.redirect, grants.CLI, "full_access"))
	r.sees("Let Resend CLI act for Development?")
	r.sees("this computer (" + strings.TrimSuffix(strings.TrimPrefix(p.redirect, "http://"), "/oauth/callback") + ")")
	r.presses("Allow")
	r.sees("You can close this window.")
	got := <-p.sent
	if got.Get("state") != "s" || got.Get("iss") != "http://"+n.addr {
		t.Errorf("the browser came back with %v", got)
	}
	token := p.token(grants.CLI, got.Get("code"))
	if status := p.status(token, "/domains"); status != http.StatusOK {
		t.Errorf("the token is answered with %d", status)
	}

	registered, err := http.Post("http://"+n.addr+"/oauth/register", "application/json",
		strings.NewReader(`{"client_name":"Resend CLI","redirect_uris":["`+p.redirect+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer registered.Body.Close()
	var client struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(registered.Body).Decode(&client); err != nil {
		t.Fatal(err)
	}
	r.open(authorizePath(p.redirect, client.ID, "emails:send"))
	r.sees("This app is not verified")
	r.presses("Refuse")
	r.sees("You can close this window.")
	if got := <-p.sent; got.Get("error") != "access_denied" || got.Has("code") {
		t.Errorf("the browser came back with %v", got)
	}

	var list struct{ Data []struct{ ID string } }
	n.must(http.MethodGet, "/oauth/grants", "", &list)
	if len(list.Data) != 1 {
		t.Fatalf("%d grants", len(list.Data))
	}
	n.must(http.MethodDelete, "/oauth/grants/"+list.Data[0].ID, "", nil)
	if status := p.status(token, "/domains"); status != http.StatusUnauthorized {
		t.Errorf("the revoked token is answered with %d", status)
	}
}
