package teams_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestScopesOfPermissions lists the scopes of each permission, so that no new scope is added to a permission by
// accident.
func TestScopesOfPermissions(t *testing.T) {
	t.Parallel()
	for permission, want := range map[teams.Permission]string{
		teams.FullAccess: "emails:send emails:read emails:write emails:share receiving:read domains:read domains:write " +
			"api_keys:read api_keys:write suppressions:read suppressions:write webhooks:read webhooks:write logs:read " +
			"usage:read templates:read templates:write contacts:read contacts:write segments:read segments:write " +
			"topics:read topics:write broadcasts:read broadcasts:write events:read events:write events:send " +
			"automations:read automations:write members:read members:write audit:read grants:read grants:write " +
			"approvals:read approvals:request approvals:write",
		teams.SendingAccess: "emails:send usage:read grants:write",
		"":                  "",
		"unknown":           "",
	} {
		if got := permission.Scopes().String(); got != want {
			t.Errorf("%q has %q, want %q", permission, got, want)
		}
	}
}

// TestScopesOfRoles lists the scopes that each role lacks.
func TestScopesOfRoles(t *testing.T) {
	t.Parallel()
	for role, want := range map[teams.Role]string{
		teams.Owner:  "",
		teams.Admin:  "owners:write",
		teams.Member: "members:write owners:write audit:read",
		teams.Viewer: "emails:send emails:write emails:share domains:write api_keys:write suppressions:write " +
			"webhooks:write templates:write contacts:write segments:write topics:write broadcasts:write events:write " +
			"events:send automations:write members:write owners:write audit:read grants:write approvals:request " +
			"approvals:write",
	} {
		if got := (teams.Owner.Scopes() &^ role.Scopes()).String(); got != want {
			t.Errorf("%q lacks %q, want %q", role, got, want)
		}
	}
	if got := teams.Role("unknown").Scopes(); got != 0 {
		t.Errorf("an unknown role has %q", got)
	}
}

func TestScopesHaveNames(t *testing.T) {
	t.Parallel()
	n, seen := 0, map[string]bool{}
	for s := teams.Scope(0); ; s++ {
		resource, action, ok := strings.Cut(s.String(), ":")
		has := teams.Owner.Scopes().Has(s)
		if has != ok || has && (resource == "" || action == "" || seen[s.String()]) {
			t.Errorf("scope %d is called %q; owners have it: %v", s, s, has)
		}
		if parsed, ok := teams.ParseScope(s.String()); ok != has || has && parsed != s {
			t.Errorf("%q is read as %v, %v", s, parsed, ok)
		}
		if has {
			n++
			seen[s.String()] = true
		}
		if s == 255 {
			break
		}
	}
	if n < 15 {
		t.Errorf("only %d scopes", n)
	}
}

// When a scope is missing, keys and OAuth clients get different error names. A successful Require allocates no memory.
func TestRequire(t *testing.T) {
	sending := teams.NewScopes(teams.EmailsSend)
	for _, c := range []struct {
		actor teams.Actor
		scope teams.Scope
		kind  fault.Kind // fault.Internal means that no error is expected
		says  string
	}{
		{teams.Actor{Kind: teams.KeyActor, Scopes: sending}, teams.EmailsSend, fault.Internal, ""},
		{teams.Actor{Kind: teams.KeyActor, Scopes: sending}, teams.EmailsRead, fault.Restricted, "restricted to only send"},
		{teams.Actor{Kind: teams.KeyActor}, teams.EmailsSend, fault.Restricted, "emails:send"},
		{teams.Actor{Kind: teams.UserActor, Scopes: sending}, teams.EmailsSend, fault.Internal, ""},
		{teams.Actor{Kind: teams.UserActor, Scopes: sending}, teams.DomainsWrite, fault.OutOfScope, "domains:write"},
		{teams.Actor{Kind: teams.GrantActor, Scopes: sending}, teams.LogsRead, fault.OutOfScope, "logs:read"},
		{teams.Actor{}, teams.EmailsSend, fault.OutOfScope, "emails:send"},
		{teams.System(dbtest.ID("team")), teams.KeysWrite, fault.Internal, ""},
		{teams.System(dbtest.ID("team")), 0, fault.OutOfScope, ""},
		{teams.System(dbtest.ID("team")), 255, fault.OutOfScope, ""},
	} {
		err := c.actor.Require(c.scope)
		switch {
		case c.kind == fault.Internal && err == nil:
			if n := testing.AllocsPerRun(100, func() { c.actor.Require(c.scope) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		case c.kind == fault.Internal || err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s with %q, scope %q: %v", c.actor.Kind, c.actor.Scopes, c.scope, err)
		}
	}
}

// An actor cannot create a key with more rights than its own.
func TestKeysGiveNoMoreThanTheirMakerHas(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		all, sends := teams.FullAccess.Scopes(), teams.SendingAccess.Scopes()
		full, sending := teams.NewKey{Name: "k"}, teams.NewKey{Name: "k", Permission: teams.SendingAccess}
		ofDomain := sending
		ofDomain.DomainID = ownDomain
		for name, c := range map[string]struct {
			scopes teams.Scopes
			domain string
			give   teams.NewKey
			kind   fault.Kind // fault.Internal means that no error is expected
			field  string
		}{
			"all of it":               {all, "", full, fault.Internal, ""},
			"a part of it":            {all, "", ofDomain, fault.Internal, ""},
			"just as much":            {sends, "", sending, fault.Internal, ""},
			"more":                    {teams.NewScopes(teams.KeysWrite), "", sending, fault.OutOfScope, "permission"},
			"more by leaving it out":  {all &^ teams.NewScopes(teams.LogsRead), "", full, fault.OutOfScope, "permission"},
			"from the same domain":    {all, ownDomain, ofDomain, fault.Internal, ""},
			"from other domains, too": {all, ownDomain, sending, fault.Forbidden, "domain_id"},
		} {
			by := teams.Actor{Kind: teams.GrantActor, ID: dbtest.ID("g"), TeamID: team.ID, Scopes: c.scopes, DomainID: c.domain}
			k, token, err := s.CreateKey(t.Context(), by, c.give)
			if c.kind == fault.Internal && err == nil {
				continue
			}
			e, ok := err.(*fault.Error)
			if !ok || e.Kind != c.kind || e.Field != c.field || k.ID != "" || token != "" {
				t.Errorf("%s: %+v, %v", name, k, err)
			}
		}
	})
}

// For a key or grant, Active returns true only if it exists; for other actors, Active always returns true.
func TestActive(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		k, _ := newKey(t, s, team.ID, "k")
		for by, want := range map[teams.ActorRef]bool{
			{Kind: teams.KeyActor, ID: k.ID}:            true,
			{Kind: teams.KeyActor, ID: dbtest.ID("x")}:  false,
			{Kind: teams.UserActor, ID: dbtest.ID("x")}: true,
			{Kind: teams.GrantActor, ID: k.ID}:          false, // the service in this test has no grants
			{Kind: teams.SystemActor}:                   true,
		} {
			if got, err := s.Active(t.Context(), s.DB.Reader, team.ID, by); got != want || err != nil {
				t.Errorf("%+v: %v, %v", by, got, err)
			}
		}
		for _, kind := range []teams.ActorKind{"", "robot"} {
			if got, err := s.Active(t.Context(), s.DB.Reader, team.ID, teams.ActorRef{Kind: kind}); got || err == nil {
				t.Errorf("an actor of the unknown kind %q: %v, %v", kind, got, err)
			}
		}
	})
}

// The numbers of the kinds in the database never change, because rows keep them.
func TestActorKindNumbers(t *testing.T) {
	t.Parallel()
	for kind, want := range map[teams.ActorKind]int16{"key": 1, "user": 2, "grant": 3, "system": 4} {
		if got := teams.ActorKinds.Number(kind); got != want {
			t.Errorf("%s has the number %d, want %d", kind, got, want)
		}
	}
}
