package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMetadata(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		get := func(path string) map[string]any {
			t.Helper()
			w := f.ask("GET", path, nil)
			var m map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 ||
				w.Header().Get("Cache-Control") != "public, max-age=300" ||
				w.Header().Get("Access-Control-Allow-Origin") != "*" {
				t.Fatalf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
			}
			return m
		}
		m := get("/.well-known/oauth-authorization-server")
		for name, want := range map[string]string{"issuer": "", "authorization_endpoint": "/oauth/authorize",
			"token_endpoint": "/oauth/token", "registration_endpoint": "/oauth/register",
			"revocation_endpoint": "/oauth/revoke", "jwks_uri": "/.well-known/jwks.json"} {
			if m[name] != testnode.PublicURL+want {
				t.Errorf("%s: %v", name, m[name])
			}
			if want != "" && !f.Serves(want) {
				t.Errorf("%s is not served", want)
			}
		}
		for name, want := range map[string]string{"response_types_supported": "code",
			"response_modes_supported":              "query",
			"grant_types_supported":                 "authorization_code refresh_token",
			"token_endpoint_auth_methods_supported": "none",
			"code_challenge_methods_supported":      "S256"} {
			var got []string
			for _, v := range m[name].([]any) {
				got = append(got, v.(string))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v", name, got)
			}
		}
		if scopes := m["scopes_supported"].([]any); scopes[0] != "full_access" || scopes[1] != "emails:send" {
			t.Errorf("%v", scopes)
		}
		for path, resource := range map[string]string{"": testnode.PublicURL, "/mcp": mcp} {
			m := get("/.well-known/oauth-protected-resource" + path)
			if m["resource"] != resource || !slices.Contains(m["authorization_servers"].([]any),
				any(testnode.PublicURL)) {
				t.Errorf("%v", m)
			}
		}
		keys := get("/.well-known/jwks.json")["keys"].([]any)
		if len(keys) != 1 {
			t.Fatalf("%v", keys)
		}
		if k := keys[0].(map[string]any); k["kty"] != "EC" || k["crv"] != "P-256" || k["alg"] != "ES256" ||
			k["kid"] == "" || k["d"] != nil {
			t.Errorf("%v", k)
		}
	})
}

func TestRegister(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		w := f.ask("POST", "/oauth/register", `{"client_name":"Notes","redirect_uris":["https://a.example/cb"],
			"logo_uri":"https://a.example/x.png","grant_types":["authorization_code"],
			"contacts":["a@a.example"],"software_id":1}`)
		if w.Code != 201 || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var got clientWire
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Name != "Notes" || got.AuthMethod != "none" ||
			got.Scope != "full_access" || got.IssuedAt == 0 || got.LogoURI == "" || strings.Contains(w.Body.String(),
			"client_secret") {
			t.Errorf("%s, error %v", w.Body, err)
		}
		for name, c := range map[string]struct {
			body string
			want grants.Code
		}{
			"nothing": {"", grants.InvalidRequest}, "a list": {"[]", grants.InvalidRequest}, "null": {"null",
				grants.InvalidRequest},
			"half":            {`{"client_name":`, grants.InvalidRequest},
			"a number":        {`{"client_name":1}`, grants.InvalidRequest},
			"a text":          {`{"client_name":"x","redirect_uris":"https://a.example"}`, grants.InvalidRequest},
			"a wrong address": {`{"client_name":"x","redirect_uris":["http://a.example"]}`, grants.InvalidRedirectURI},
			"a secret": {
				`{"client_name":"x","redirect_uris":["https://a.example"],"token_endpoint_auth_method":"x"}`,
				grants.InvalidMetadata},
			"too much": {`{"client_name":"` + strings.Repeat("x", 70_000) + `"}`, grants.InvalidRequest},
			"an unknown scope": {`{"client_name":"x","redirect_uris":["https://a.example"],"scope":"x"}`,
				grants.InvalidScope},
		} {
			t.Run(name, func(t *testing.T) {
				wantRefusal(t, f.ask("POST", "/oauth/register", c.body), 400, c.want)
			})
		}
		for range 19 {
			f.register("x", redirect)
		}
		w = f.ask("POST", "/oauth/register", `{"client_name":"x","redirect_uris":["https://a.example"]}`)
		wantRefusal(t, w, 429, grants.TooManyRequests)
		if w.Header().Get("Retry-After") != "3600" {
			t.Error("no Retry-After of an hour")
		}
	})
}

func TestTokenRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		client := f.register("Notes", redirect)
		for name, c := range map[string]struct {
			body   any
			status int
			want   grants.Code
		}{
			"nothing":       {nil, 400, grants.InvalidRequest},
			"no client":     {url.Values{"grant_type": {"refresh_token"}}, 400, grants.InvalidRequest},
			"no grant type": {url.Values{"client_id": {client}}, 400, grants.InvalidRequest},
			"another": {url.Values{"client_id": {client}, "grant_type": {"password"}}, 400,
				grants.UnsupportedGrantType},
			"no such client": {url.Values{"client_id": {"x"}, "grant_type": {"refresh_token"},
				"refresh_token": {"x"}}, 401, grants.InvalidClient},
			"a wrong token": {url.Values{"client_id": {client}, "grant_type": {"refresh_token"},
				"refresh_token": {"x"}}, 400, grants.InvalidGrant},
			"parameters twice": {url.Values{"client_id": {client, client}, "grant_type": {"refresh_token"}}, 400,
				grants.InvalidRequest},
			"JSON, a number": {`{"client_id":1}`, 400, grants.InvalidRequest},
			"JSON, twice":    {`{"client_id":"` + client + `","client_id":"x"}`, 400, grants.InvalidRequest},
			"JSON, a list":   {`[]`, 400, grants.InvalidRequest},
			"a wrong code": {`{"client_id":"` + client +
				`","grant_type":"authorization_code","code":"x","redirect_uri":"` + redirect + `","code_verifier":"` +
				verifier + `"}`, 400, grants.InvalidGrant},
			"without verifier": {`{"client_id":"` + client +
				`","grant_type":"authorization_code","code":"x","redirect_uri":"` + redirect + `"}`, 400,
				grants.InvalidRequest},
			"a foreign address": {`{"client_id":"` + client +
				`","grant_type":"authorization_code","code":"x","redirect_uri":"` + redirect + `","code_verifier":"` +
				verifier + `","resource":"https://a.example"}`, 400, grants.InvalidTarget},
		} {
			t.Run(name, func(t *testing.T) {
				wantRefusal(t, f.ask("POST", "/oauth/token", c.body), c.status, c.want)
			})
		}
		wantRefusal(t, f.ask("POST", "/oauth/revoke", url.Values{"client_id": {client}, "token": {"eyJ.e30.x"}}), 400,
			grants.UnsupportedTokenType)
		if w := f.ask("GET", "/oauth/token", nil); w.Code != 405 || w.Header().Get("Allow") != "POST, OPTIONS" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

// After many refused requests, a client must wait, but other clients do not have to wait.
func TestGuessing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.refusals.Now = func() time.Time { return time.Unix(1_800_000_000, 0) }
		client := f.register("Notes", redirect)
		body := url.Values{"client_id": {client}, "grant_type": {"refresh_token"}, "refresh_token": {"x"}}
		for range refusalsPerSecond {
			wantRefusal(t, f.ask("POST", "/oauth/token", body), 400, grants.InvalidGrant)
		}
		w := f.ask("POST", "/oauth/token", body)
		wantRefusal(t, w, 429, grants.TooManyRequests)
		if wait := w.Header().Get("Retry-After"); wait != "1" {
			t.Errorf("wait %q seconds", wait)
		}
		// Refused requests from IPv6 clients are counted per network, not per address.
		from := func(address string) int {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/oauth/token", strings.NewReader(body.Encode()))
			r.RemoteAddr = address
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r)
			return w.Code
		}
		for i := range refusalsPerSecond {
			if status := from(fmt.Sprintf("[2001:db8::%x]:1", i)); status != 400 {
				t.Errorf("refusal %d: %d", i, status)
			}
		}
		if one, other := from("[2001:db8::ffff]:1"), from("[2001:db8:0:1::1]:1"); one != 429 || other != 400 {
			t.Errorf("%d from the same network, %d from another", one, other)
		}
	})
}

// Requests that fail because the database is unavailable do not count as refused requests, so clients do not have to
// wait after an outage.
func TestOutageIsNoGuessing(t *testing.T) {
	t.Parallel()
	d, p := dbtest.Proxied(t, time.Second)
	f := newFixture(t, d)
	f.refusals.Now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	client := f.register("Notes", redirect)
	p.Refuse()
	for _, path := range []string{"/oauth/token", "/oauth/revoke"} {
		body := url.Values{"client_id": {client}, "grant_type": {"refresh_token"}, "refresh_token": {"x"},
			"token": {"x"}}
		for range refusalsPerSecond + 1 {
			wantRefusal(t, f.ask("POST", path, body), 503, "temporarily_unavailable")
		}
	}
	f.Must(p.Pass())
	body := url.Values{"client_id": {client}, "grant_type": {"refresh_token"}, "refresh_token": {"x"}}
	wantRefusal(t, f.ask("POST", "/oauth/token", body), 400, grants.InvalidGrant)
}

// Web pages from any origin may send requests without cookies to the OAuth endpoints.
func TestOrigins(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, path := range paths {
			w := f.ask("OPTIONS", path, nil, "Origin", "https://a.example", "Access-Control-Request-Method", "POST")
			if path == "/oauth/authorize" {
				if w.Header().Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s: %v", path, w.Header())
				}
				continue
			}
			if h := w.Header(); w.Code != 204 || h.Get("Access-Control-Allow-Origin") != "*" ||
				h.Get("Access-Control-Allow-Credentials") != "" || h.Get("Access-Control-Allow-Headers") == "" {
				t.Errorf("%s: %d %v", path, w.Code, w.Header())
			}
		}
	})
}

// Any request body is either parsed or refused with invalid_request.
func FuzzReadParams(f *testing.F) {
	for _, s := range []string{"a=b&c=d", "a=%zz", "a=1&a=2", `{"a":"b"}`, `{"a":null}`, `{"a":1}`, `{"a":"b","a":"c"}`,
		"[]", "", "\xff"} {
		f.Add("application/x-www-form-urlencoded", s)
		f.Add("application/json; charset=utf-8", s)
	}
	f.Fuzz(func(t *testing.T, media, text string) {
		p, err := readParams(media, []byte(text))
		if e, ok := errors.AsType[*grants.Error](err); err != nil && (!ok || e.Code != grants.InvalidRequest ||
			p != nil) {
			t.Errorf("%v, error %v", p, err)
		}
		var in clientIn
		if err := readJSON([]byte(text), &in); err != nil {
			if e, ok := errors.AsType[*grants.Error](err); !ok || e.Code != grants.InvalidRequest {
				t.Errorf("error %v", err)
			}
		}
	})
}
