package grants_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// An app that a user connected can renew its tokens until the team revokes the grant.
func TestGrant(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		by := f.member("ann@acme.example", teams.Admin)
		first := f.granted(by, "full_access")
		if first.Life != 900 || first.Scopes.String() != "full_access" || strings.Count(first.Access, ".") != 2 ||
			strings.Contains(first.Refresh, ".") {
			t.Errorf("%+v", first)
		}
		g := f.only()
		if g.UserID != by.ID || g.ClientID != f.client.ID || g.ClientName != "Notes" ||
			g.Scopes.String() != "full_access" ||
			g.ExpiresAt.Sub(g.CreatedAt) != 60*24*time.Hour || !g.RevokedAt.IsZero() || g.RevokedReason != "" {
			t.Errorf("%+v", g)
		}
		a := f.works(first.Access, true)
		want := teams.FullAccess.Scopes()
		if a.Kind != teams.GrantActor || a.ID != g.ID || a.TeamID != f.Acme.TeamID || a.Scopes != want ||
			a.Name != "Notes" {
			t.Errorf("%+v", a)
		}
		second, err := f.refresh(first.Refresh)
		f.Must(err)
		f.works(first.Access, true)
		f.works(second.Access, true)
		if ok, err := f.Node.Teams.Active(t.Context(), f.DB.Reader, f.Acme.TeamID, a.Ref()); !ok || err != nil {
			t.Errorf("active: %v, error %v", ok, err)
		}
		if _, err := f.Revoke(t.Context(), f.Other.TeamID, g.ID, grants.FromAPI); fault.KindOf(err) != fault.NotFound {
			t.Errorf("revoked by another team: %v", err)
		}
		gone, err := f.Revoke(t.Context(), f.Acme.TeamID, g.ID, grants.FromAPI)
		f.Must(err)
		if gone.RevokedAt.IsZero() || gone.RevokedReason != grants.FromAPI || f.only().RevokedAt != gone.RevokedAt {
			t.Errorf("%+v", gone)
		}
		f.works(second.Access, false)
		_, err = f.refresh(second.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		if _, err := f.Revoke(t.Context(), f.Acme.TeamID, g.ID, grants.FromAPI); fault.KindOf(err) != fault.NotFound {
			t.Errorf("revoked twice: %v", err)
		}
		if ok, err := f.Node.Teams.Active(t.Context(), f.DB.Reader, f.Acme.TeamID, a.Ref()); ok || err != nil {
			t.Errorf("active after it was revoked: %v, error %v", ok, err)
		}
		for action, n := range map[string]int{audit.ClientRegistered: 1, audit.GrantCreated: 1, audit.GrantRevoked: 1} {
			if got := f.recorded(action); got != n {
				t.Errorf("%s is recorded %d times, want %d", action, got, n)
			}
		}
	})
}

// An app's scheduled email is not sent if the app's grant has been revoked.
func TestScheduledByGrant(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ids := map[bool]string{}
		for _, revoked := range []bool{true, false} {
			by := f.works(f.granted(f.Acme, "emails:send").Access, true)
			s := testnode.Hello("a@one.example")
			s.ScheduledAt = "in 1 hour"
			id, err := f.Emails.Send(t.Context(), by, s, emails.Idempotency{})
			f.Must(err)
			if ids[revoked] = id; revoked {
				_, err := f.Revoke(t.Context(), f.Acme.TeamID, by.ID, grants.FromAPI)
				f.Must(err)
			}
			f.Must(f.Emails.Reschedule(t.Context(), f.Acme.TeamID, id,
				time.Now().Add(-time.Second).Format(time.RFC3339)))
		}
		stop := f.Node.Run(f.Emails.Kinds()...)
		defer stop()
		for revoked, id := range ids {
			testnode.Until(t, "the email is released", func() bool { return f.Email(id).LastEvent != emails.Scheduled })
			if got := f.Email(id).LastEvent; (got == emails.Failed) != revoked {
				t.Errorf("revoked: %v, and the email is %s", revoked, got)
			}
		}
	})
}

// A grant to which an API key consented acts for the key's team, and ends when the team is deleted.
func TestGrantOfKey(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		tokens := f.granted(f.Acme, "emails:send domains:read")
		if a := f.works(tokens.Access, true); a.Scopes != teams.NewScopes(teams.EmailsSend, teams.DomainsRead) {
			t.Errorf("%+v", a)
		}
		if f.only().UserID != "" {
			t.Errorf("%+v", f.only())
		}
		f.Must(f.Node.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true))
		if a := f.works(tokens.Access, true); !a.Suspended {
			t.Error("the team's suspension is not known")
		}
		f.Must(f.Node.Teams.Delete(t.Context(), f.Queue, f.Acme.TeamID))
		f.works(tokens.Access, false)
		_, err := f.refresh(tokens.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		f.Must(f.EraseTeam(t.Context(), f.Acme.TeamID))
		if n := f.Count(`SELECT (SELECT COUNT(*) FROM oauth_grants) + (SELECT COUNT(*) FROM oauth_codes)`); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// Changing a user's role immediately changes the scopes of the user's grants. The scopes of a grant never exceed the
// scopes to which the user consented.
func TestRoles(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		owner := f.member("owner@acme.example", teams.Owner)
		ann := f.member("ann@acme.example", teams.Viewer)
		tokens := f.granted(ann, "full_access")
		if tokens.Scopes.Full || !tokens.Scopes.Each.Has(teams.EmailsRead) || tokens.Scopes.Each.Has(teams.EmailsSend) {
			t.Errorf("a viewer has granted %v", tokens.Scopes)
		}
		a := f.works(tokens.Access, true)
		if a.Scopes&^teams.Viewer.Scopes() != 0 || a.Scopes == 0 {
			t.Errorf("%v", a.Scopes)
		}
		for _, role := range []teams.Role{teams.Admin, teams.Owner} {
			_, err := f.Node.Members.SetRole(t.Context(), owner, ann.ID, role)
			f.Must(err)
			if now := f.works(tokens.Access, true); now.Scopes != a.Scopes {
				t.Errorf("it has grown with the role to %v", now.Scopes)
			}
		}
		full := f.granted(owner, "full_access")
		if a := f.works(full.Access, true); a.Scopes != teams.FullAccess.Scopes() || a.Scopes.Has(teams.OwnersWrite) {
			t.Errorf("%v", a.Scopes)
		}
		_, err := f.Node.Members.SetRole(t.Context(), owner, ann.ID, teams.Viewer)
		f.Must(err)
		f.Must(f.Node.Members.Remove(t.Context(), owner, ann.ID))
		f.works(tokens.Access, false)
		_, err = f.refresh(tokens.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		all, _, err := f.List(t.Context(), f.Acme.TeamID, page.Page{})
		f.Must(err)
		if all[1].RevokedReason != grants.UserLeft || all[0].RevokedReason != "" {
			t.Errorf("%+v", all)
		}
		f.works(full.Access, true)
		f.Must(f.Users.SetDisabled(t.Context(), owner.ID, true))
		f.works(full.Access, false)
		most := f.member("most@acme.example", teams.Member)
		if a := f.works(f.granted(most, "full_access").Access, true); a.Scopes.Has(teams.ApprovalsWrite) {
			t.Errorf("less than full access decides: %v", a.Scopes)
		}
	})
}

// When a user leaves a team and later rejoins it, the user's earlier grants stay revoked and unused codes stay invalid.
func TestJoinsAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		owner, ann := f.member("owner@acme.example", teams.Owner), f.member("ann@acme.example", teams.Admin)
		tokens := f.granted(ann, "full_access")
		code := f.code(ann, "full_access")
		f.Must(f.Node.Members.Remove(t.Context(), owner, ann.ID))
		if g := f.only(); g.RevokedReason != grants.UserLeft {
			t.Errorf("once its user has left, the grant is %+v", g)
		}
		f.Update(func(tx *db.Tx) error {
			return f.Node.Members.AddIn(context.Background(), tx, f.Acme.TeamID, ann.ID, teams.Admin)
		})
		f.works(tokens.Access, false)
		_, err := f.refresh(tokens.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		_, err = f.Exchange(t.Context(), code)
		wantCode(t, err, grants.InvalidGrant)
		if g := f.only(); g.RevokedReason != grants.UserLeft {
			t.Errorf("%+v", g)
		}
	})
}

// A user who has none of the requested scopes cannot consent.
func TestNothingToGrant(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		p := f.params()
		p.Scope = "emails:send members:write"
		r, err := f.CheckRequest(t.Context(), p)
		f.Must(err)
		if _, _, err := f.Approve(t.Context(), r, f.member("ann@acme.example",
			teams.Viewer)); fault.KindOf(err) != fault.OutOfScope {
			t.Errorf("error %v", err)
		}
		if _, granted, err := f.Approve(t.Context(), r, f.member("bob@acme.example", teams.Member)); err != nil ||
			granted.String() != "emails:send" {
			t.Errorf("%v, error %v", granted, err)
		}
	})
}

// An authorization code works once, and a second use of the code revokes the grant.
func TestCodeTwice(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		x := f.code(f.Acme, "full_access")
		tokens, err := f.Exchange(t.Context(), x)
		f.Must(err)
		f.works(tokens.Access, true)
		_, err = f.Exchange(t.Context(), x)
		wantCode(t, err, grants.InvalidGrant)
		f.works(tokens.Access, false)
		if g := f.only(); g.RevokedReason != grants.CodeReused {
			t.Errorf("%+v", g)
		}
		if f.recorded(audit.GrantReused) != 1 {
			t.Error("it is not recorded")
		}
	})
}

// If an authorization code is used by several requests concurrently, at most one of them gets tokens, and these tokens
// are revoked.
func TestCodeManyTimesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		x := f.code(f.Acme, "full_access")
		got := atOnce(8, func() (grants.Tokens, error) { return f.Exchange(context.Background(), x) })
		if len(got) != 1 {
			t.Fatalf("%d uses of a code gave tokens", len(got))
		}
		f.works(got[0].Access, false)
		if g := f.only(); g.RevokedReason != grants.CodeReused {
			t.Errorf("%+v", g)
		}
	})
}

// atOnce makes n concurrent calls to the function f and returns the issued tokens.
func atOnce(n int, f func() (grants.Tokens, error)) (all []grants.Tokens) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := make(chan bool)
	for range n {
		wg.Go(func() {
			<-begin
			if t, err := f(); err == nil {
				mu.Lock()
				all = append(all, t)
				mu.Unlock()
			}
		})
	}
	close(begin)
	wg.Wait()
	return all
}

// An attempt to exchange an authorization code with wrong parameters invalidates the code.
func TestWrongCodes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other := f.register(grants.NewClient{RedirectURIs: []string{redirect, "https://a.example/"}})
		for name, wrong := range map[string]func(x *grants.ExchangeParams){
			"another client":   func(x *grants.ExchangeParams) { x.ClientID = other.ID },
			"another redirect": func(x *grants.ExchangeParams) { x.RedirectURI = "http://127.0.0.1:4712/callback" },
			"another verifier": func(x *grants.ExchangeParams) { x.Verifier = strings.Repeat("x", 43) },
			"another resource": func(x *grants.ExchangeParams) {
				f.exec(`UPDATE oauth_codes SET resource = $1`, testnode.PublicURL)
				x.Resource = mcp
			},
			"too late": func(x *grants.ExchangeParams) {
				f.exec(`UPDATE oauth_codes SET expires_at = $1`, time.Now().Add(-time.Second).UnixMicro())
			},
		} {
			x := f.code(f.Acme, "full_access")
			y := x
			wrong(&y)
			_, err := f.Exchange(t.Context(), y)
			wantCode(t, err, grants.InvalidGrant)
			if _, err := f.Exchange(t.Context(), x); err == nil {
				t.Errorf("%s: the code works afterwards", name)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_grants`); n != 0 {
			t.Errorf("%d grants were made", n)
		}
		x := f.code(f.Acme, "full_access")
		for name, c := range map[string]struct {
			wrong func(x *grants.ExchangeParams)
			want  grants.Code
		}{
			"no client":   {func(x *grants.ExchangeParams) { x.ClientID = "x" }, grants.InvalidClient},
			"no code":     {func(x *grants.ExchangeParams) { x.Code = "" }, grants.InvalidRequest},
			"no redirect": {func(x *grants.ExchangeParams) { x.RedirectURI = "" }, grants.InvalidRequest},
			"no verifier": {func(x *grants.ExchangeParams) { x.Verifier = "" }, grants.InvalidRequest},
			"short verifier": {func(x *grants.ExchangeParams) { x.Verifier = strings.Repeat("x", 42) },
				grants.InvalidRequest},
			"long verifier": {func(x *grants.ExchangeParams) { x.Verifier = strings.Repeat("x", 129) },
				grants.InvalidRequest},
			"foreign target":  {func(x *grants.ExchangeParams) { x.Resource = "https://a.example" }, grants.InvalidTarget},
			"a made-up code":  {func(x *grants.ExchangeParams) { x.Code = "x" }, grants.InvalidGrant},
			"made-up, others": {func(x *grants.ExchangeParams) { x.Code = f.Token }, grants.InvalidGrant},
		} {
			y := x
			c.wrong(&y)
			t.Run(name, func(t *testing.T) {
				_, err := f.Exchange(context.Background(), y)
				wantCode(t, err, c.want)
			})
		}
		if _, err := f.Exchange(t.Context(), x); err != nil {
			t.Errorf("requests that could not be read have spent the code: %v", err)
		}
	})
}

var taking sync.Mutex

// A team with the maximum number of active grants must revoke a grant before it can create another grant.
func TestTooManyGrants(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.granted(f.Acme, "full_access")
		f.exec(`INSERT INTO oauth_grants SELECT CAST(copied AS UUID), team_id, user_id, client_id, scope, resource,
			created_at, used_at, expires_at, generation, retried, rotated_at, revoked_at, revoked_reason, 0, 0, FALSE, key_id, 0
			FROM oauth_grants, (WITH RECURSIVE
			numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999)
			SELECT '00000000-0000-7000-8000-00000000' || (n + 1000) AS copied FROM numbers) x`)
		r, err := f.CheckRequest(t.Context(), f.params())
		f.Must(err)
		if _, _, err := f.Approve(t.Context(), r, f.Acme); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("the grant after 1,000 active ones: %v", err)
		}
		f.Must(f.RevokeToken(t.Context(), f.client.ID, g.Refresh, ""))
		// After the revocation, the team may have one more grant. Four codes are exchanged concurrently; only one exchange
		// may succeed.
		var codes [4]grants.ExchangeParams
		for i := range codes {
			codes[i] = f.code(f.Acme, "full_access")
		}
		var made atomic.Int64
		var wg sync.WaitGroup
		for _, x := range codes {
			wg.Go(func() {
				if _, err := f.Exchange(context.WithoutCancel(t.Context()), x); err == nil {
					made.Add(1)
				} else {
					wantCode(t, err, grants.InvalidGrant)
				}
			})
		}
		wg.Wait()
		if n := f.Count(`SELECT COUNT(*) FROM oauth_grants WHERE revoked_at = 0`); n != 1000 || made.Load() != 1 {
			t.Errorf("%d tokens were given, and %d grants are active", made.Load(), n)
		}
	})
}

// A team's suspension applies even to tokens that are being authenticated at that moment, regardless of the order in
// which the packages clear their caches.
func TestSuspendedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var use func()
		tokens := f.granted(f.member("ann@acme.example", teams.Admin), "")
		f.Node.Teams = testnode.Must(teams.New(teams.Config{}, f.Node.Teams.Deps))
		f.Node.DB.OnHint(teams.HintTopic, func(string) {
			if use != nil {
				use()
			}
		})
		f.Node.Members = testnode.Must(members.New(f.Node.Members.Deps))
		serve(f.Node)
		use = func() { f.works(tokens.Access, true) }
		use()
		f.Must(f.Node.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true))
		if a := f.works(tokens.Access, true); !a.Suspended {
			t.Error("the token's team is not suspended")
		}
	})
}

// An authorization code or refresh token stays valid if signing the new tokens fails.
func TestNothingIsSigned(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		code := f.code(f.Acme, "full_access")
		without := func(use func(s *grants.Service) error) {
			t.Helper()
			f.exec(`ALTER TABLE oauth_keys RENAME TO lost_keys`)
			if err := use(serve(f.Node)); err == nil {
				t.Error("signed without a key")
			}
			f.exec(`ALTER TABLE lost_keys RENAME TO oauth_keys`)
		}
		without(func(s *grants.Service) error {
			_, err := s.Exchange(t.Context(), code)
			return err
		})
		tokens, err := f.Exchange(t.Context(), code)
		f.Must(err)
		without(func(s *grants.Service) error {
			_, err := s.Refresh(t.Context(), grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Refresh})
			return err
		})
		f.exec(`UPDATE oauth_grants SET rotated_at = rotated_at - 60000000 WHERE rotated_at > 0`)
		_, err = f.refresh(tokens.Refresh)
		f.Must(err)
	})
}

// Even if the cache-invalidation hint for a role change is lost and the old role is cached, the next look-up of the
// token uses the new role.
func TestLostHintOfARole(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		by := f.member("ada@acme.example", teams.Admin)
		access := f.granted(by, "full_access").Access
		f.exec(`UPDATE memberships SET role = 'viewer' WHERE user_id = $1`, db.ID(by.ID))
		if got := f.works(access, true); got.Scopes.Has(teams.DomainsWrite) {
			t.Error("the program may still do what its user may not")
		}
	})
}

// If the clock was ahead when a user joined, the membership seems to be newer than the user's grant. A grant that seems
// older than its user's membership must stay active.
func TestJoinedByAWrongClock(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		by := f.member("ada@acme.example", teams.Admin)
		f.exec(`UPDATE memberships SET created_at = created_at + $2 WHERE user_id = $1`, db.ID(by.ID),
			time.Hour.Microseconds())
		given := f.granted(by, "full_access")
		if _, err := f.refresh(given.Refresh); err != nil {
			t.Errorf("the tokens are not renewed: %v", err)
		}
		if g := f.only(); g.RevokedReason != "" {
			t.Errorf("the grant is revoked: %s", g.RevokedReason)
		}
	})
}

// A user who was removed from the team on another node cannot consent, even if this node has not received the
// cache-invalidation hint.
func TestConsentAfterLeaving(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ann := f.member("ann@acme.example", teams.Admin)
		f.Must(f.Node.Members.Remove(t.Context(), teams.System(f.Acme.TeamID), ann.ID))
		r, err := f.CheckRequest(t.Context(), f.params())
		f.Must(err)
		_, _, err = f.Approve(t.Context(), r, ann)
		if fault.KindOf(err) != fault.Forbidden {
			t.Errorf("consented: %v", err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 || f.recorded(audit.GrantCreated) != 0 {
			t.Errorf("%d codes, %d consents in the audit log", n, f.recorded(audit.GrantCreated))
		}
	})
}
