package grants_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A client can revoke its own grant with its refresh token, but not the grant of another client.
func TestRevokeToken(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other := f.register(grants.NewClient{})
		tokens := f.granted(f.Acme, "full_access")
		for _, c := range []struct {
			client, token, hint string
			want                grants.Code
		}{
			{"x", tokens.Refresh, "", grants.InvalidClient},
			{f.client.ID, "", "", grants.InvalidRequest},
			{f.client.ID, tokens.Access, "", grants.UnsupportedTokenType},
			{f.client.ID, tokens.Refresh, "access_token", grants.UnsupportedTokenType},
		} {
			wantCode(t, f.RevokeToken(t.Context(), c.client, c.token, c.hint), c.want)
		}
		f.Must(f.RevokeToken(t.Context(), other.ID, tokens.Refresh, "refresh_token"))
		f.Must(f.RevokeToken(t.Context(), f.client.ID, "x", ""))
		f.works(tokens.Access, true)
		f.Must(f.RevokeToken(t.Context(), f.client.ID, tokens.Refresh, "refresh_token"))
		f.works(tokens.Access, false)
		if g := f.only(); g.RevokedReason != grants.ByClient {
			t.Errorf("%+v", g)
		}
		f.Must(f.RevokeToken(t.Context(), f.client.ID, tokens.Refresh, "refresh_token"))
	})
}

// When one node revokes a grant, another node refuses the grant as soon as the cache-invalidation hint arrives, before
// its cache expires.
func TestRevokedOnAnotherNode(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	f := newFixture(t, dbtest.Open(t, url))
	far := testnode.Bare(t, dbtest.Open(t, url), testnode.Options{})
	other := &fixture{Node: far, Service: serve(far)}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Node.DB.Run(ctx) })
	wg.Go(func() { far.DB.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })

	// A cache-invalidation hint that is sent before the other node listens is lost. The test first deletes an API key to
	// find out when the other node has begun to listen.
	key, token := f.Key(f.Acme.TeamID, teams.NewKey{Name: "x"})
	_, err := far.Teams.Authenticate(t.Context(), token)
	f.Must(err)
	f.Must(f.Node.Teams.DeleteKey(t.Context(), f.Acme.TeamID, key.ID))
	testnode.Until(t, "the nodes tell each other", func() bool {
		_, err := far.Teams.Authenticate(t.Context(), token)
		return err != nil
	})
	tokens := f.granted(f.Acme, "full_access")
	other.works(tokens.Access, true)
	if !far.Teams.IsCached(tokens.Access) {
		t.Fatal("the other node does not remember the token, so the test shows nothing")
	}
	_, err = f.Revoke(t.Context(), f.Acme.TeamID, f.only().ID, grants.FromAPI)
	f.Must(err)
	begun := time.Now()
	testnode.Until(t, "the other node refuses the token", func() bool {
		_, err := far.Teams.Authenticate(t.Context(), tokens.Access)
		return err != nil
	})
	t.Logf("refused after %v", time.Since(begun))
}

// Deleting a key revokes the grants to which it consented, and deletes its unused codes.
func TestKeyDeleted(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		key, token := f.Key(f.Acme.TeamID, teams.NewKey{Name: "dev"})
		by, err := f.Node.Teams.Authenticate(ctx, token)
		f.Must(err)
		tokens, others, code := f.granted(by, ""), f.granted(f.Acme, ""), f.code(by, "")
		f.works(tokens.Access, true)
		request := audit.With(ctx, audit.Entry{TeamID: f.Acme.TeamID, ActorKind: string(teams.UserActor),
			ActorID: dbtest.ID("ann"), Action: "api_key.deleted"})
		f.Must(f.Node.Teams.DeleteKey(request, f.Acme.TeamID, key.ID))
		f.works(tokens.Access, false)
		f.works(others.Access, true)
		if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE actor_id = $3 AND target = $1
			AND (action = 'api_key.deleted' OR action = $2)`, key.ID, audit.GrantRevoked, db.ID(dbtest.ID("ann"))); n != 2 {
			t.Errorf("%d entries tell of the key and of what ended with it", n)
		}
		_, err = f.refresh(tokens.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		_, err = f.Exchange(ctx, code)
		wantCode(t, err, grants.InvalidGrant)
		if n := f.Count(`SELECT COUNT(*) FROM oauth_grants WHERE revoked_reason = $1`, string(grants.KeyDeleted)); n != 1 {
			t.Errorf("%d grants ended with the key", n)
		}
		// If a node with an older release, which does not support grants, deletes an API key, the grants to which that key
		// consented stop working.
		key, token = f.Key(f.Acme.TeamID, teams.NewKey{Name: "dev"})
		by, err = f.Node.Teams.Authenticate(ctx, token)
		f.Must(err)
		tokens = f.granted(by, "")
		f.Must(testnode.Must(teams.New(teams.Config{}, f.Node.Teams.Deps)).DeleteKey(ctx, f.Acme.TeamID, key.ID))
		f.works(tokens.Access, false)
		_, err = f.refresh(tokens.Refresh)
		wantCode(t, err, grants.InvalidGrant)
		if n := f.Count(`SELECT COUNT(*) FROM oauth_grants WHERE revoked_reason = $1`, string(grants.KeyDeleted)); n != 2 {
			t.Errorf("%d grants ended with their keys", n)
		}
	})
}

// RevokeUser revokes the grants of one user in one team.
func TestRevokeUser(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ann, bob := f.member("ann@acme.example", teams.Owner), f.member("bob@acme.example", teams.Admin)
		of := map[string]grants.Tokens{"ann": f.granted(ann, ""), "bob": f.granted(bob, "")}
		f.Update(func(tx *db.Tx) error { return f.RevokeUser(context.Background(), tx, f.Acme.TeamID, ann.ID) })
		f.works(of["ann"].Access, false)
		f.works(of["bob"].Access, true)
	})
}
