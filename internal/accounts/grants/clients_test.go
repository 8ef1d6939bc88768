package grants_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

func TestRegisterRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		many := make([]string, 11)
		for i := range many {
			many[i] = "https://a.example/" + strings.Repeat("x", i)
		}
		right := grants.NewClient{Name: "Notes", RedirectURIs: []string{redirect}}
		for name, c := range map[string]struct {
			wrong func(n *grants.NewClient)
			want  grants.Code
		}{
			"no name": {func(n *grants.NewClient) { n.Name = " " }, grants.InvalidRequest},
			"a long name": {func(n *grants.NewClient) { n.Name = strings.Repeat("é", 201) },
				grants.InvalidMetadata},
			"hidden letters": {func(n *grants.NewClient) { n.Name = "Resend\u202e CLI" }, grants.InvalidMetadata},
			"lines":          {func(n *grants.NewClient) { n.Name = "a\nb" }, grants.InvalidMetadata},
			"no redirect":    {func(n *grants.NewClient) { n.RedirectURIs = nil }, grants.InvalidRequest},
			"many redirects": {func(n *grants.NewClient) { n.RedirectURIs = many }, grants.InvalidRedirectURI},
			"a wrong redirect": {func(n *grants.NewClient) { n.RedirectURIs = []string{redirect, "javascript:x"} },
				grants.InvalidRedirectURI},
			"another flow": {func(n *grants.NewClient) { n.GrantTypes = []string{"client_credentials"} },
				grants.InvalidMetadata},
			"implicit": {func(n *grants.NewClient) { n.ResponseTypes = []string{"token"} },
				grants.InvalidMetadata},
			"a secret": {func(n *grants.NewClient) { n.AuthMethod = "client_secret_basic" },
				grants.InvalidMetadata},
			"no such scope": {func(n *grants.NewClient) { n.Scope = "emails:all" }, grants.InvalidScope},
			"owners":        {func(n *grants.NewClient) { n.Scope = "owners:write" }, grants.InvalidScope},
			"approvals":     {func(n *grants.NewClient) { n.Scope = "approvals:write" }, grants.InvalidScope},
			"a picture": {func(n *grants.NewClient) { n.LogoURI = "http://a.example/x.png" },
				grants.InvalidMetadata},
			"a home page": {func(n *grants.NewClient) { n.URI = "javascript:alert(1)" }, grants.InvalidMetadata},
		} {
			n := right
			c.wrong(&n)
			t.Run(name, func(t *testing.T) {
				_, err := f.Register(f.T.Context(), n)
				wantCode(t, err, c.want)
			})
		}
		if c := f.register(right); c.Scopes.String() != "full_access" || !c.Registered {
			t.Errorf("%+v", c)
		}
	})
}

// One IP address may register 20 clients an hour, and an IPv6 /64 counts as one address.
func TestRegistrationFlood(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		from := func(address string) error {
			_, err := f.Register(t.Context(), grants.NewClient{Name: "x", RedirectURIs: []string{redirect},
				Address: address})
			return err
		}
		for i := range 20 {
			f.Must(from("2001:db8::" + string(rune('a'+i%6))))
		}
		wantCode(t, from("2001:db8::9"), grants.TooManyRequests)
		// A registration over the limit is refused without waiting for the database's write lock.
		f.Update(func(tx *db.Tx) error {
			f.Must(tx.Serialize(context.Background(), "oauth clients"))
			refused := make(chan error, 1)
			go func() { refused <- from("2001:db8::9") }()
			select {
			case err := <-refused:
				wantCode(t, err, grants.TooManyRequests)
			case <-time.After(5 * time.Second):
				t.Error("a refusal waits for others that write")
			}
			return nil
		})
		f.Must(from("192.0.2.1"))
		f.Must(from("2001:db8:0:1::1"))
		f.exec(`UPDATE oauth_clients SET created_at = created_at - 3600000000 WHERE address <> ''`)
		f.Must(from("2001:db8::9"))
		f.exec(`INSERT INTO oauth_clients SELECT CAST(made AS UUID), name, redirect_uris, scope,
			client_uri, logo_uri, 'a' || n,
			$1, 0 FROM (SELECT * FROM oauth_clients ORDER BY id LIMIT 1) c, (WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL
			SELECT n + 1 FROM numbers WHERE n < 500)
			SELECT n, '00000000-0000-7000-8000-00000000' || (n + 1000) AS made FROM numbers) x`, time.Now().UnixMicro())
		wantCode(t, from("192.0.2.2"), grants.TooManyRequests)
	})
}

// No network uses up the registrations of all others: networks of each size have a limit below the limit of all
// addresses.
func TestRegistrationsOfNetworks(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		from := func(address string) error {
			_, err := f.Register(t.Context(), grants.NewClient{Name: "x", RedirectURIs: []string{redirect},
				Address: address})
			return err
		}
		// fill registers clients with different addresses until the limit of their network refuses one.
		fill := func(address func(i int) string, want int) {
			t.Helper()
			for i := range want {
				if err := from(address(i)); err != nil {
					t.Fatalf("%s, client %d: %v", address(i), i, err)
				}
			}
			wantCode(t, from(address(want)), grants.TooManyRequests)
		}
		fill(func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i/10) }, 60) // a /56
		f.Must(from("2001:db8:0:100::1"))                                             // in the same /48
		f.exec(`DELETE FROM oauth_clients WHERE address <> ''`)
		fill(func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i*0x80) }, 200) // a /48
		f.Must(from("2001:db8:1::1"))                                                    // in the same /32
		f.exec(`DELETE FROM oauth_clients WHERE address <> ''`)
		fill(func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }, 350) // a /32
		f.Must(from("2001:db9::1"))
		f.exec(`DELETE FROM oauth_clients WHERE address <> ''`)
		fill(func(i int) string { return fmt.Sprintf("192.0.2.%d", i/4) }, 60) // a /24
		f.Must(from("198.51.100.1"))

		// Clients that people use do not count toward the limits of networks.
		f.exec(`UPDATE oauth_clients SET used_at = created_at WHERE address LIKE '192.0.2.%'`)
		f.Must(from("192.0.2.200"))
	})
}

func TestAskRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.client = f.register(grants.NewClient{Scope: "emails:send emails:read", RedirectURIs: []string{redirect,
			"https://a.example/cb?x=1"}})
		for name, c := range map[string]struct {
			wrong    func(p *grants.Params)
			want     grants.Code
			redirect bool
		}{
			"no client": {func(p *grants.Params) { p.ClientID = "" }, grants.InvalidRequest, false},
			"no such client": {func(p *grants.Params) { p.ClientID = "0198c3f2-0000-7000-8000-000000000000" },
				grants.InvalidClient, false},
			"no redirect": {func(p *grants.Params) { p.RedirectURI = "" }, grants.InvalidRequest, false},
			"another redirect": {func(p *grants.Params) { p.RedirectURI = "https://b.example/cb?x=1" },
				grants.InvalidRequest, false},
			"a longer redirect": {func(p *grants.Params) { p.RedirectURI = "https://a.example/cb?x=1&y" },
				grants.InvalidRequest, false},
			"a fragment": {func(p *grants.Params) { p.RedirectURI = redirect + "#x" }, grants.InvalidRequest,
				false},
			"a long state": {func(p *grants.Params) { p.State = strings.Repeat("x", 1025) },
				grants.InvalidRequest, true},
			"no type": {func(p *grants.Params) { p.ResponseType = "" }, grants.InvalidRequest, true},
			"implicit": {func(p *grants.Params) { p.ResponseType = "token" }, grants.UnsupportedResponseType,
				true},
			"no PKCE": {func(p *grants.Params) { p.Challenge, p.ChallengeMethod = "", "" },
				grants.InvalidRequest, true},
			"plain PKCE":        {func(p *grants.Params) { p.ChallengeMethod = "plain" }, grants.InvalidRequest, true},
			"no method":         {func(p *grants.Params) { p.ChallengeMethod = "" }, grants.InvalidRequest, true},
			"a short challenge": {func(p *grants.Params) { p.Challenge = "x" }, grants.InvalidRequest, true},
			"no such scope":     {func(p *grants.Params) { p.Scope = "x" }, grants.InvalidScope, true},
			"more than its own": {func(p *grants.Params) { p.Scope = "emails:send domains:read" }, grants.InvalidScope,
				true},
			"all":    {func(p *grants.Params) { p.Scope = "full_access" }, grants.InvalidScope, true},
			"owners": {func(p *grants.Params) { p.Scope = "owners:write" }, grants.InvalidScope, true},
			"a foreign resource": {func(p *grants.Params) { p.Resource = "https://a.example" }, grants.InvalidTarget,
				true},
		} {
			p := f.params()
			c.wrong(&p)
			t.Run(name, func(t *testing.T) {
				r, err := f.CheckRequest(f.T.Context(), p)
				wantCode(t, err, c.want)
				if (r.RedirectURI != "") != c.redirect || len(r.State) > 1024 {
					t.Errorf("redirected to %q", r.RedirectURI)
				}
			})
		}
		p := f.params()
		for resource, want := range map[string]string{"http://127.0.0.1:3000/": testnode.PublicURL,
			"http://127.0.0.1:3000/mcp": mcp, "http://127.0.0.1:30001": "", "http://127.0.0.1:3000mcp": ""} {
			p.Resource = resource
			if r, err := f.CheckRequest(t.Context(), p); r.Resource != want || (err == nil) != (want != "") {
				t.Errorf("%s: %q, %v", resource, r.Resource, err)
			}
		}
		p.Scope, p.Resource, p.State = "", mcp+"/", strings.Repeat("x", 1024)
		r, err := f.CheckRequest(t.Context(), p)
		if err != nil || r.Scopes.String() != "emails:send emails:read" || r.Resource != mcp {
			t.Errorf("%+v, error %v", r, err)
		}
		code, _, err := f.Approve(t.Context(), r, f.Acme)
		f.Must(err)
		tokens, err := f.Exchange(t.Context(), grants.ExchangeParams{ClientID: f.client.ID, Code: code,
			RedirectURI: redirect,
			Verifier:    verifier, Resource: mcp})
		f.Must(err)
		f.works(tokens.Access, true)
		if f.only().Resource != mcp {
			t.Errorf("%+v", f.only())
		}
	})
}

// The official command-line client needs no registration and may use any loopback port in its redirect URI.
func TestCLI(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		p := f.params()
		p.ClientID, p.Scope = grants.CLI, "full_access"
		for uri, ok := range map[string]bool{"http://127.0.0.1:51234/oauth/callback": true,
			"http://127.0.0.1/oauth/callback":       true,
			"http://localhost:51234/oauth/callback": false, "http://127.0.0.1:51234/oauth": false,
			"https://127.0.0.1:51234/oauth/callback": false, "http://127.0.0.1.a.example/oauth/callback": false} {
			p.RedirectURI = uri
			if r, err := f.CheckRequest(t.Context(), p); (err == nil) != ok || ok && (r.Client.Name != "Resend CLI" ||
				r.Client.Registered) {
				t.Errorf("%s: %+v, error %v", uri, r.Client, err)
			}
		}
	})
}

// Unauthenticated clients can create only a bounded number of rows. The sweep keeps the 2,000 newest unused clients,
// and a client appears in the audit log only after its first consent.
func TestStrangersWriteLittle(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.code(f.Acme, "full_access")
		f.exec(`INSERT INTO oauth_clients SELECT CAST(made AS UUID), name, redirect_uris, scope,
			client_uri, logo_uri, 'a' || n, n, 0
			FROM (SELECT * FROM oauth_clients ORDER BY id LIMIT 1) c, (WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL
			SELECT n + 1 FROM numbers WHERE n < 2100)
			SELECT n, '00000000-0000-7000-8000-00000000' || (n + 1000) AS made FROM numbers) x`)
		f.exec(`UPDATE oauth_clients SET created_at = created_at + $1 WHERE used_at = 0`, time.Now().UnixMicro())
		f.Must(f.Sweep(t.Context()))
		if n, old := f.Count(`SELECT COUNT(*) FROM oauth_clients WHERE used_at = 0`),
			f.Count(`SELECT COUNT(*) FROM oauth_clients WHERE address IN ('a1', 'a99')`); n < 2000 || n > 2001 || old != 0 {
			t.Errorf("%d clients are kept that nobody uses, %d of the oldest", n, old)
		}
		f.code(f.Acme, "full_access")
		if n := f.recorded(audit.ClientRegistered); n != 1 {
			t.Errorf("%d registrations are recorded", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE action = $1 AND target = $2 AND actor_id IS NULL`,
			audit.ClientRegistered, f.client.ID); n != 1 {
			t.Error("the registration is recorded as somebody's, or another one")
		}
	})
}

// Sweep deletes expired codes and clients that have been unused for 30 days, and expires grants whose clients did not
// renew their tokens.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		day := (24 * time.Hour).Microseconds()
		unused := f.register(grants.NewClient{})
		young := f.register(grants.NewClient{})
		tokens := f.granted(f.Acme, "full_access")
		f.code(f.Acme, "full_access")
		f.Must(f.Sweep(t.Context()))
		f.works(tokens.Access, true)
		f.exec(`UPDATE oauth_clients SET created_at = created_at - $1 WHERE id <> $2`, 31*day, db.ID(young.ID))
		f.exec(`UPDATE oauth_codes SET expires_at = expires_at - $1`, day)
		f.exec(`UPDATE oauth_grants SET expires_at = expires_at - $1`, 61*day)
		f.Must(f.Sweep(t.Context()))
		_, err := f.Client(t.Context(), unused.ID)
		wantCode(t, err, grants.InvalidClient)
		for _, kept := range []string{young.ID, f.client.ID, grants.CLI} {
			if _, err := f.Client(t.Context(), kept); err != nil {
				t.Errorf("client %s: %v", kept, err)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
			t.Errorf("%d codes are left", n)
		}
		if g := f.only(); g.RevokedReason != grants.GrantExpired {
			t.Errorf("%+v", g)
		}
		_, err = f.refresh(tokens.Refresh)
		wantCode(t, err, grants.InvalidGrant)
	})
}

func TestScopeNames(t *testing.T) {
	t.Parallel()
	names := grants.ScopeNames()
	if names[0] != "full_access" || names[1] != "emails:send" || len(names) < 30 {
		t.Errorf("%v", names)
	}
	seen := map[string]bool{}
	for _, name := range names {
		set, ok := grants.ParseScopes(name)
		if !ok || set.Empty() || set.String() != name || seen[name] {
			t.Errorf("%q: %v, %v", name, set, ok)
		}
		seen[name] = true
		if all := set.All(); all.Has(teams.OwnersWrite) || all.Has(teams.ApprovalsWrite) && !set.Full {
			t.Errorf("%q allows %v", name, all)
		}
	}
	for _, wrong := range []string{"owners:write", "approvals:write", "x", "emails", "emails:", "full_access x",
		"FULL_ACCESS"} {
		if set, ok := grants.ParseScopes(wrong); ok {
			t.Errorf("%q is %v", wrong, set)
		}
	}
	if set, ok := grants.ParseScopes(" emails:send  full_access emails:send"); !ok ||
		set.String() != "full_access emails:send" {
		t.Errorf("%v, %v", set, ok)
	}
}
