package grants_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/audit"
)

// Using an old refresh token revokes the grant for everyone who holds one of its tokens.
func TestRefreshTokenReused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.granted(f.Acme, "full_access")
		second, err := f.refresh(first.Refresh)
		f.Must(err)
		third, err := f.refresh(second.Refresh)
		f.Must(err)
		_, err = f.refresh(first.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		f.works(third.Access, false)
		_, err = f.refresh(third.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		if g := f.only(); g.RevokedReason != grants.TokenReused || f.recorded(audit.GrantReused) != 1 {
			t.Errorf("%+v", g)
		}
	})
}

// A client that did not receive the response to a refresh may retry for ten seconds. The retry replaces the lost
// tokens, and a later use of the lost refresh token revokes the grant.
func TestRefreshRetried(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.granted(f.Acme, "full_access")
		lost, err := f.refresh(first.Refresh)
		f.Must(err)
		second, err := f.refresh(first.Refresh)
		f.Must(err)
		third, err := f.refresh(second.Refresh)
		f.Must(err)
		f.works(third.Access, true)
		_, err = f.refresh(lost.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		f.works(third.Access, false)

		late := f.granted(f.Acme, "full_access")
		next, err := f.refresh(late.Refresh)
		f.Must(err)
		f.exec(`UPDATE oauth_grants SET rotated_at = rotated_at - 10000000`)
		_, err = f.refresh(late.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		f.works(next.Access, false)
	})
}

// After many concurrent refreshes, each of which may be a retry, exactly one refresh token is valid.
func TestRefreshManyTimesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.granted(f.Acme, "full_access")
		got := atOnce(6, func() (grants.Tokens, error) {
			return f.Refresh(context.Background(), grants.RefreshParams{ClientID: f.client.ID, Token: first.Refresh})
		})
		if len(got) != 6 {
			t.Fatalf("%d of 6 got tokens", len(got))
		}
		seen := map[string]bool{}
		for _, g := range got {
			seen[g.Refresh] = true
		}
		if len(seen) != 6 {
			t.Error("two got the same refresh token")
		}
		again := atOnce(6, func() (grants.Tokens, error) {
			return f.Refresh(context.Background(), grants.RefreshParams{ClientID: f.client.ID, Token: take(seen)})
		})
		if len(again) > 1 {
			t.Errorf("%d lines of tokens went on", len(again))
		}
		if g := f.only(); g.RevokedReason != grants.TokenReused {
			t.Errorf("%+v", g)
		}
	})
}

// take removes a token from the set and returns it.
func take(tokens map[string]bool) string {
	taking.Lock()
	defer taking.Unlock()
	for token := range tokens {
		delete(tokens, token)
		return token
	}
	return ""
}

func TestRefreshRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other := f.register(grants.NewClient{})
		tokens := f.granted(f.Acme, "emails:send domains:read")
		f.exec(`UPDATE oauth_grants SET resource = $1`, testnode.PublicURL)
		foreign, err := f.Node.Keys.JWT("x", map[string]any{}, time.Now(), time.Hour)
		f.Must(err)
		for name, c := range map[string]struct {
			x    grants.RefreshParams
			want grants.Code
		}{
			"no client":       {grants.RefreshParams{ClientID: "x", Token: tokens.Refresh}, grants.InvalidClient},
			"no token":        {grants.RefreshParams{ClientID: f.client.ID}, grants.InvalidRequest},
			"another client":  {grants.RefreshParams{ClientID: other.ID, Token: tokens.Refresh}, grants.InvalidGrant},
			"an access token": {grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Access}, grants.InvalidGrant},
			"another token":   {grants.RefreshParams{ClientID: f.client.ID, Token: foreign}, grants.InvalidGrant},
			"altered": {grants.RefreshParams{ClientID: f.client.ID, Token: "A" + tokens.Refresh},
				grants.InvalidGrant},
			"another purpose": {grants.RefreshParams{ClientID: f.client.ID, Token: f.Node.Keys.Sign("other", time.Time{},
				f.Acme.TeamID, f.only().ID, "1")}, grants.InvalidGrant},
			"more scopes": {grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Refresh, Scope: "emails:read"},
				grants.InvalidScope},
			"full access": {grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Refresh, Scope: "full_access"},
				grants.InvalidScope},
			"no such scope": {grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Refresh, Scope: "x"},
				grants.InvalidScope},
			"another resource": {grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Refresh, Resource: mcp},
				grants.InvalidTarget},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := f.Refresh(context.Background(), c.x)
				wantCode(t, err, c.want)
			})
		}
		less, err := f.Refresh(t.Context(), grants.RefreshParams{ClientID: f.client.ID, Token: tokens.Refresh,
			Scope: "domains:read"})
		f.Must(err)
		if a := f.works(less.Access, true); a.Scopes != teams.NewScopes(teams.DomainsRead) {
			t.Errorf("a narrower token has %v", a.Scopes)
		}
		again, err := f.refresh(less.Refresh)
		f.Must(err)
		if a := f.works(again.Access, true); a.Scopes != teams.NewScopes(teams.DomainsRead, teams.EmailsSend) {
			t.Errorf("the next one has %v", a.Scopes)
		}
	})
}
