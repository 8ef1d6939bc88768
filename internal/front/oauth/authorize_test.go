package oauth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
)

// When a person consents to a request on the consent page, the client gets valid tokens and can refresh and revoke
// them.
func TestConsent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		q := query(grants.CLI, "http://127.0.0.1:51234/oauth/callback", "full_access")
		w := f.ask("GET", "/oauth/authorize?"+q.Encode(), nil, "Accept", "text/html")
		signIn := "/sign-in?" + url.Values{"next": {"/oauth/authorize?" + q.Encode()}}.Encode()
		if to := w.Header().Get("Location"); w.Code != 303 || to != signIn {
			t.Fatalf("%d to %q", w.Code, to)
		}
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Admin})
		w = f.ask("GET", "/oauth/authorize?"+q.Encode(), nil, "Accept", "text/html")
		csp := w.Header().Get("Content-Security-Policy")
		if w.Code != 200 || w.Header().Get("X-Frame-Options") != "DENY" || !strings.Contains(csp,
			"frame-ancestors 'none'") ||
			!strings.Contains(csp, "form-action 'self' http://127.0.0.1:51234") || strings.Contains(csp, "https:") {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
		p := readPage(t, w)
		for _, want := range []string{"Let Resend CLI act for Acme?", "this computer (127.0.0.1:51234)", "Full access",
			"Send emails"} {
			if !strings.Contains(p.text, want) {
				t.Errorf("the page does not say %q: %s", want, p.text)
			}
		}
		if strings.Contains(p.text, "not verified") || strings.Contains(p.text, "will not get") {
			t.Errorf("the page: %s", p.text)
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
			t.Error("to look at the page is to consent")
		}
		form := p.form(t, "post", "/oauth/authorize")
		form.fields.Set("decision", "allow")
		form.fields.Del("approval") // browsers omit unchecked boxes
		w = f.ask("POST", "/oauth/authorize", form.fields, "Sec-Fetch-Site", "same-origin", "Accept", "text/html")
		if w.Code != 303 {
			t.Errorf("after a form the browser is told %d", w.Code)
		}
		code := f.sentTo(w, "http://127.0.0.1:51234/oauth/callback").Get("code")
		tokens := f.tokens(grants.CLI, "http://127.0.0.1:51234/oauth/callback", code)
		if tokens.Type != "Bearer" || tokens.Life != 900 || tokens.Scope != "full_access" || tokens.Refresh == "" {
			t.Errorf("%+v", tokens)
		}
		by, err := f.Node.Teams.Authenticate(t.Context(), tokens.Access)
		if err != nil || by.Kind != teams.GrantActor || by.TeamID != f.Acme.TeamID {
			t.Errorf("%+v, error %v", by, err)
		}
		w = f.ask("POST", "/oauth/token",
			`{"grant_type":"refresh_token","client_id":"`+grants.CLI+`","refresh_token":"`+tokens.Refresh+`","scope":null}`)
		if w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Body.String(),
			`"token_type":"Bearer"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		w = f.ask("POST", "/oauth/revoke", url.Values{"token": {tokens.Refresh}, "client_id": {grants.CLI}})
		if w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if _, err := f.Node.Teams.Authenticate(t.Context(), tokens.Access); err == nil {
			t.Error("the token works after it was revoked")
		}
		if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE action = 'grant.created' AND actor_kind = 'user'
			AND actor_name = 'ann@acme.example' AND address = '192.0.2.1'`); n != 1 {
			t.Errorf("recorded %d times", n)
		}
	})
}

// If the person refuses, the client gets access_denied and no code.
func TestRefuse(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		client := f.register("Notes", "https://notes.example/cb?x=1")
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Owner})
		q := query(client, "https://notes.example/cb?x=1", "emails:send")
		p := readPage(t, f.ask("GET", "/oauth/authorize?"+q.Encode(), nil))
		if !strings.Contains(p.text, "This app is not verified") || !strings.Contains(p.text,
			"notes.example") {
			t.Errorf("the page: %s", p.text)
		}
		form := p.form(t, "post", "/oauth/authorize")
		form.fields.Set("decision", "deny")
		got := f.sentTo(f.ask("POST", "/oauth/authorize", form.fields), "https://notes.example/cb?x=1")
		if got.Get("error") != "access_denied" || got.Has("code") {
			t.Errorf("%v", got)
		}
		form.fields.Set("decision", "")
		if w := f.ask("POST", "/oauth/authorize", form.fields); w.Code != 422 {
			t.Errorf("without a decision: %d", w.Code)
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
			t.Errorf("%d codes were made", n)
		}
	})
}

// A person who is in several teams chooses a team on the consent page. The consent page also lists the requested scopes
// that the person's role in the chosen team does not allow.
func TestChooseTeam(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		client := f.register("Notes", redirect)
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Viewer, f.Other.TeamID: teams.Owner})
		q := query(client, redirect, "emails:send emails:read")
		p := readPage(t, f.ask("GET", "/oauth/authorize?"+q.Encode(), nil))
		choice := p.form(t, "get", "/oauth/authorize")
		if !slices.Contains(choice.buttons, f.Acme.TeamID) || !slices.Contains(choice.buttons, f.Other.TeamID) {
			t.Fatalf("%+v", choice)
		}
		choice.fields.Set("team", f.Acme.TeamID)
		p = readPage(t, f.ask("GET", "/oauth/authorize?"+choice.fields.Encode(), nil))
		may, left, ok := strings.Cut(p.text, "will not get")
		if !ok || !strings.Contains(may, "Read the emails") || strings.Contains(may, "Send emails") ||
			!strings.Contains(left, "Send emails") {
			t.Errorf("as a viewer: %s", p.text)
		}
		form := p.form(t, "post", "/oauth/authorize")
		form.fields.Set("decision", "allow")
		code := f.sentTo(f.ask("POST", "/oauth/authorize", form.fields), redirect).Get("code")
		if tokens := f.tokens(client, redirect, code); tokens.Scope != "emails:read" {
			t.Errorf("%+v", tokens)
		}
		choice.fields.Set("team", f.Other.TeamID)
		form = ptr(readPage(t, f.ask("GET", "/oauth/authorize?"+choice.fields.Encode(), nil))).form(t, "post",
			"/oauth/authorize")
		if form.fields.Get("team") != f.Other.TeamID {
			t.Errorf("%+v", form)
		}
		// The server does not trust the team that the browser sends.
		stranger, _ := f.Team("Third")
		form.fields.Set("team", stranger.TeamID)
		form.fields.Set("decision", "allow")
		if w := f.ask("POST", "/oauth/authorize", form.fields); w.Code != 403 || w.Header().Get("Location") != "" {
			t.Errorf("for a team of others: %d to %q", w.Code, w.Header().Get("Location"))
		}
		form.fields.Set("team", f.Other.TeamID)
		form.fields.Set("redirect_uri", "https://evil.example/")
		if w := f.ask("POST", "/oauth/authorize", form.fields); w.Code != 400 || w.Header().Get("Location") != "" {
			t.Errorf("to another address: %d to %q", w.Code, w.Header().Get("Location"))
		}
	})
}

func ptr[T any](v T) *T { return &v }

// Consent fails if there is no session, if the request comes from another site, if the person has no team, or if none
// of the requested scopes is allowed.
func TestNoConsent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		client := f.register("Notes", redirect)
		form := query(client, redirect, "members:write")
		form.Set("team", f.Acme.TeamID)
		form.Set("decision", "allow")
		if w := f.ask("POST", "/oauth/authorize", form); w.Code != 303 || w.Header().Get("Location") != "/sign-in" {
			t.Errorf("without a session: %d to %q", w.Code, w.Header().Get("Location"))
		}
		if w := f.ask("GET", "/oauth/authorize?"+query(client, redirect, "").Encode(), nil, "Authorization",
			"Bearer "+f.Token); w.Code != 303 {
			t.Errorf("a key outside of development: %d", w.Code)
		}
		f.signIn("bob@acme.example", nil)
		if w := f.ask("GET", "/oauth/authorize?"+query(client, redirect, "").Encode(), nil); w.Code != 403 {
			t.Errorf("without a team: %d", w.Code)
		}
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Viewer})
		for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 403} {
			if w := f.ask("POST", "/oauth/authorize", form, "Sec-Fetch-Site", site); w.Code != status ||
				w.Header().Get("Location") != "" {
				t.Errorf("%s: %d to %q", site, w.Code, w.Header().Get("Location"))
			}
		}
		form.Set("scope", "emails:read")
		if w := f.ask("POST", "/oauth/authorize", form, "Sec-Fetch-Site", "cross-site"); w.Code != 403 {
			t.Errorf("from another site: %d", w.Code)
		}
		if w := f.ask("POST", "/oauth/authorize", form, "Origin", "https://evil.example"); w.Code != 403 {
			t.Errorf("from another origin: %d", w.Code)
		}
		p := readPage(t, f.ask("GET", "/oauth/authorize?"+query(client, redirect, "members:write").Encode(), nil))
		if post := p.form(t, "post", "/oauth/authorize"); slices.Contains(post.buttons, "allow") {
			t.Error("nothing can be allowed, and there is a button for it")
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
			t.Errorf("%d codes were made", n)
		}
	})
}

// The response to an invalid authorization request does not redirect to untrusted addresses. If the redirect URI is not
// registered for the client, the response is JSON or a page. If the redirect URI is a web page of an unverified client,
// the response is a page with a link. All other responses are redirects.
func TestWrongRequests(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		local, site := f.register("Notes", redirect), f.register("Evil", "https://evil.example/cb")
		change := func(q url.Values, name string, values ...string) url.Values {
			if q[name] = values; values == nil {
				q.Del(name)
			}
			return q
		}
		for name, c := range map[string]struct {
			q    url.Values
			want grants.Code
			to   string
		}{
			"no client": {change(query(local, redirect, ""), "client_id"), grants.InvalidRequest, ""},
			"another client": {query("0198c3f2-0000-7000-8000-000000000000", redirect, ""), grants.InvalidClient,
				""},
			"no address":        {change(query(local, redirect, ""), "redirect_uri"), grants.InvalidRequest, ""},
			"another's address": {query(local, "https://evil.example/cb", ""), grants.InvalidRequest, ""},
			"parameters twice": {change(query(local, redirect, ""), "scope", "emails:send", "emails:read"),
				grants.InvalidRequest, ""},
			"no PKCE": {change(query(local, redirect, ""), "code_challenge"), grants.InvalidRequest,
				redirect},
			"another type": {change(query(local, redirect, ""), "response_type", "token"),
				grants.UnsupportedResponseType, redirect},
			"no such scope": {query(local, redirect, "everything"), grants.InvalidScope, redirect},
			"owners":        {query(local, redirect, "owners:write"), grants.InvalidScope, redirect},
			"a foreign resource": {change(query(local, redirect, ""), "resource", "https://evil.example"),
				grants.InvalidTarget, redirect},
			"a known web program": {query(site, "https://evil.example/cb", "everything"), grants.InvalidScope,
				"https://evil.example/cb"},
		} {
			t.Run(name, func(t *testing.T) {
				w := f.ask("GET", "/oauth/authorize?"+c.q.Encode(), nil, "Accept", "application/json")
				if c.to == "" {
					wantRefusal(t, w, 400, c.want)
				} else if got := f.sentTo(w, c.to); got.Get("error") != string(c.want) ||
					got.Get("error_description") == "" {
					t.Errorf("%v", got)
				}
				w = f.ask("GET", "/oauth/authorize?"+c.q.Encode(), nil, "Accept", "text/html,*/*;q=0.8")
				if c.to == redirect {
					f.sentTo(w, c.to)
				} else if w.Code != 400 || w.Header().Get("Location") != "" || !strings.Contains(w.Body.String(),
					"cannot be granted") {
					t.Errorf("a person: %d to %q %s", w.Code, w.Header().Get("Location"), w.Body)
				}
			})
		}
		long := change(query(local, redirect, ""), "state", strings.Repeat("x", 1025))
		w := f.ask("GET", "/oauth/authorize?"+long.Encode(), nil)
		if to := w.Header().Get("Location"); w.Code != 302 || strings.Contains(to, "state=") || !strings.Contains(to,
			"error=invalid_request") {
			t.Errorf("a long state: %d to %q", w.Code, to)
		}
	})
}

// In development, a request with a full-access API key gives consent on behalf of the key's team without a consent
// page.
func TestConsentByKey(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.KeysConsent = true
		_, sending := f.Key(f.Acme.TeamID, teams.NewKey{Name: "x", Permission: teams.SendingAccess})
		path := "/oauth/authorize?" + query(grants.CLI, "http://127.0.0.1:1/oauth/callback", "full_access").Encode()
		for name, token := range map[string]string{"no such key": "re_x", "a sending key": sending} {
			if w := f.ask("GET", path, nil, "Authorization", "Bearer "+token); w.Code != 403 && w.Code != 401 ||
				w.Header().Get("Location") != "" {
				t.Errorf("%s: %d to %q", name, w.Code, w.Header().Get("Location"))
			}
		}
		code := f.sentTo(f.ask("GET", path, nil, "Authorization", "Bearer "+f.Token),
			"http://127.0.0.1:1/oauth/callback").Get("code")
		tokens := f.tokens(grants.CLI, "http://127.0.0.1:1/oauth/callback", code)
		if by, err := f.Node.Teams.Authenticate(t.Context(), tokens.Access); err != nil || by.TeamID != f.Acme.TeamID {
			t.Errorf("%+v, error %v", by, err)
		}
		if w := f.ask("GET", path, nil, "Authorization", "Bearer "+tokens.Access); w.Code != 403 {
			t.Errorf("a program consents to itself: %d", w.Code)
		}
	})
}

func TestPaths(t *testing.T) {
	t.Parallel()
	s := &Server{}
	for path, want := range map[string]bool{"/oauth/token": true, "//oauth/token/": true, "/oauth/grants": false,
		"/oauth": false, "/.well-known/oauth-protected-resource/mcp": true, "/.well-known/security.txt": false,
		"/": false} {
		if got := s.Serves(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestHostOf(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{"https://a.example:8443/cb": "a.example:8443",
		"http://127.0.0.1:1/": "this computer (127.0.0.1:1)",
		"vscode://x/cb":       "the app that opens links with vscode:"} {
		if got := hostOf(uri); got != want {
			t.Errorf("%s: %q", uri, got)
		}
	}
}

// For every combination of scopes that allow emails to be sent, the consent page lists the ways of sending, offers
// limits, and lists the permissions that the limits remove.
func TestConsentToSend(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		client := f.register("Notes", redirect)
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Owner})
		sends := []struct{ scope, sending, lost string }{
			{"emails:send", "by sending them", "Send, resume or test broadcasts"},
			{"broadcasts:write", "by resuming broadcasts", "; it can still write them"},
			{"automations:write", "by automations that it makes", "Make and change automations"},
			{"events:send", "by events that start automations", "Send custom events"},
		}
		for set := range 1 << len(sends) {
			scopes := "contacts:write"
			for i, x := range sends {
				if set&(1<<i) != 0 {
					scopes += " " + x.scope
				}
			}
			p := readPage(t, f.ask("GET", "/oauth/authorize?"+query(client, redirect, scopes).Encode(), nil))
			if !strings.Contains(p.text, "contacts, for which automations of the team may send emails") {
				t.Errorf("%s: nothing is said of what contacts begin", scopes)
			}
			_, limits, offered := strings.Cut(p.text, "It can cause emails to be sent for the team:")
			fields := p.form(t, "post", "/oauth/authorize").fields
			if offered != (set != 0) || fields.Has("emails_per_day") != offered || fields.Has("approval") != offered {
				t.Errorf("%s: limits are offered: %v, by %v", scopes, offered, fields)
			}
			for i, x := range sends {
				if has := set&(1<<i) != 0; strings.Contains(limits, x.sending) != has ||
					strings.Contains(limits, x.lost) != (has || i == 0 && set&2 != 0) {
					t.Errorf("%s: the page says of limits: %s", scopes, limits)
				}
			}
			// If the client does not request permission to send, the page proposes no limit, because a limit would only remove
			// requested permissions.
			if proposed := fields.Get("emails_per_day") != ""; proposed != (set&1 != 0) {
				t.Errorf("%s: %v is proposed", scopes, fields)
			}
		}

		// A limit that the person sets is stored, even if the client can send emails only through automations.
		p := readPage(t, f.ask("GET", "/oauth/authorize?"+
			query(client, redirect, "automations:write automations:read").Encode(), nil))
		form := p.form(t, "post", "/oauth/authorize")
		form.fields.Set("decision", "allow")
		form.fields.Set("emails_per_day", "10")
		form.fields.Del("approval") // browsers omit unchecked boxes
		code := f.sentTo(f.ask("POST", "/oauth/authorize", form.fields), redirect).Get("code")
		tokens := f.tokens(client, redirect, code)
		if tokens.Scope != "automations:read" {
			t.Errorf("the token response names the scopes %q", tokens.Scope)
		}
		by, err := f.Node.Teams.Authenticate(t.Context(), tokens.Access)
		if err != nil || !by.Limited || by.Scopes != teams.NewScopes(teams.AutomationsRead) {
			t.Errorf("%v may %v, %v", by.Limited, by.Scopes, err)
		}
		form.fields.Set("emails_per_day", "many")
		if w := f.ask("POST", "/oauth/authorize", form.fields); w.Code != 422 || w.Header().Get("Location") != "" {
			t.Errorf("a limit that is no number: %d %s", w.Code, w.Body)
		}
	})
}

// If a client starts at another of this installation's addresses, the authorization response names that address as the
// issuer, even though the person consented at the public address. An unknown host never becomes the issuer.
func TestIssuerOfAnotherAddress(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		const host = "127.0.0.1:3000"
		f.Address = func(r *http.Request) string {
			if r.Host == host {
				return "http://" + host
			}
			return testnode.PublicURL
		}
		get := httptest.NewRequestWithContext(t.Context(), "GET", "http://"+host+"/oauth/authorize?"+
			query(grants.CLI, "http://127.0.0.1:4711/oauth/callback", "full_access").Encode(), nil)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, get)
		to, err := url.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != 303 || to.Path != "/sign-in" {
			t.Fatalf("%d to %q", w.Code, w.Header().Get("Location"))
		}
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Admin})
		shown := readPage(t, f.ask("GET", to.Query().Get("next"), nil, "Accept", "text/html"))
		form := shown.form(t, "post", "/oauth/authorize")
		form.fields.Set("decision", "deny")
		for asked, want := range map[string]string{form.fields.Get("asked_at"): "http://" + host,
			"evil.example": testnode.PublicURL, "": testnode.PublicURL} {
			form.fields.Set("asked_at", asked)
			w := f.ask("POST", "/oauth/authorize", form.fields, "Sec-Fetch-Site", "same-origin")
			to, err := url.Parse(w.Header().Get("Location"))
			if err != nil || to.Query().Get("error") != "access_denied" || to.Query().Get("iss") != want {
				t.Errorf("asked at %q: %d to %s, want the issuer %s", asked, w.Code, to, want)
			}
		}
	})
}
