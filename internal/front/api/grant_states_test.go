package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A grantState is what happened to a grant after the user consented.
type grantState string

const (
	fresh    grantState = "fresh"
	limited  grantState = "limited"  // a member limited the recipients of an email
	approval grantState = "approval" // a member demanded that a person approves each email
	demoted  grantState = "demoted"  // the limits are gone, and the user who consented is only a viewer now
	revoked  grantState = "revoked"
)

// Scopes that limits take away (docs/oauth.md, "Limits"). The lists are written out, so that a change of the rules must
// change this test.
var (
	lostByLimits = teams.NewScopes(teams.KeysWrite, teams.MembersWrite, teams.GrantsWrite, teams.ApprovalsWrite,
		teams.WebhooksWrite, teams.AutomationsWrite, teams.EventsSend)
	lostByApproval    = lostByLimits | teams.NewScopes(teams.EmailsSend, teams.EmailsWrite)
	insteadOfSending  = teams.NewScopes(teams.ApprovalsRequest, teams.ApprovalsRead)
	neverAskedByScope = teams.NewScopes(teams.OwnersWrite, teams.ApprovalsWrite)
)

// notWithLimits holds operations that a grant with limits cannot use, whatever its scopes are.
var notWithLimits = map[string]bool{"POST /broadcasts/{broadcast_id}/test": true,
	"POST /broadcasts/{broadcast_id}/resume": true, "POST /broadcasts/{broadcast_id}/winner": true,
	"POST /templates/{template}/publish": true}

// effective returns the scopes that a grant must have, given what the client asked for and the role of the user who
// consented.
func (s grantState) effective(asked teams.Scopes, role teams.Role) teams.Scopes {
	if s == demoted {
		asked &= role.Scopes()
		role = teams.Viewer
	}
	set := asked & role.Scopes()
	switch s {
	case limited:
		set &^= lostByLimits
	case approval:
		sends := set.Has(teams.EmailsSend)
		set &^= lostByApproval
		if sends {
			set |= insteadOfSending
		}
	}
	return set
}

// granted is a grant whose client asked for exactly one scope, for all scopes but one, or for full access.
type granted struct {
	about   teams.Scope
	asked   teams.Scopes
	role    teams.Role
	id      string // the grant's id
	user    string // id of the user who consented
	address string // of the client
	http.Handler
}

// Every operation is requested with grants that have exactly the operation's scope, and with grants that have all other
// scopes, for each role of the user who consented and in each state of the grant.
func TestScopesInEachStateOfAGrant(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		f := newFixture(t, d, Options{})
		f.Services.Live.Close()
		owner := f.Member(f.Acme.TeamID, "first@acme.example", teams.Owner)
		all := f.grantsOfEachScope(t)
		for _, s := range []grantState{fresh, limited, approval, demoted, revoked} {
			for i := range all {
				f.advance(t, owner, s, &all[i])
			}
			refusals := 0
			for _, o := range f.Operations() {
				about := o.Scope
				if about == wire.Open {
					if o.Path != "/usage" {
						continue // the other operations without a scope do not look at the token
					}
					about = teams.EmailsRead
				}
				for i := range all {
					if all[i].about == about {
						refusals += all[i].check(t, s, o)
					}
				}
			}
			if refusals == 0 {
				t.Errorf("%s: no request was refused", s)
			}
		}
	})
}

// grantsOfEachScope makes the grants for each scope of an operation and each role. A client cannot ask for some scopes
// by name, but only for full access.
func (f *fixture) grantsOfEachScope(t *testing.T) (made []granted) {
	t.Helper()
	app := f.app()
	var scopes teams.Scopes
	for _, o := range f.Operations() {
		if o.Scope != wire.Open {
			scopes |= teams.NewScopes(o.Scope)
		}
	}
	named := teams.FullAccess.Scopes() &^ neverAskedByScope
	for _, role := range teams.Roles {
		by := f.Member(f.Acme.TeamID, "grants-as-"+string(role)+"@acme.example", role)
		for _, name := range strings.Fields(scopes.String()) {
			one, _ := teams.ParseScope(name)
			for _, asked := range []teams.Scopes{teams.NewScopes(one), named &^ teams.NewScopes(one)} {
				text := asked.String()
				switch {
				case one == teams.ApprovalsRequest && asked != teams.NewScopes(one):
					asked &^= teams.NewScopes(teams.EmailsSend) // which implies the right to request approvals
					text = asked.String()
				case asked&neverAskedByScope != 0:
					asked, text = teams.FullAccess.Scopes(), "full_access"
				}
				tokens, err := f.grantBy(by, app, text)
				if asked&role.Scopes() == 0 {
					if fault.KindOf(err) != fault.OutOfScope {
						t.Errorf("a grant of %s by a %s: %v", asked, role, err)
					}
					continue
				}
				f.Must(err)
				a, err := f.Services.Teams.Authenticate(t.Context(), tokens.Access)
				f.Must(err)
				made = append(made, granted{about: one, asked: asked, role: role, id: a.ID, user: by.ID,
					Handler: f.bearing(tokens.Access), address: fmt.Sprintf("192.0.2.%d:1234", len(made)%250)})
			}
		}
	}
	return made
}

// advance brings a grant into the next state.
func (f *fixture) advance(t *testing.T, owner teams.Actor, s grantState, g *granted) {
	t.Helper()
	limit := func(to grants.Limits) {
		_, err := f.Services.Grants.SetLimits(t.Context(), owner, g.id, func(l *grants.Limits) error { *l = to; return nil })
		f.Must(err)
	}
	switch s {
	case limited:
		limit(grants.Limits{Recipients: 1})
	case approval:
		limit(grants.Limits{Approval: true})
	case demoted:
		limit(grants.Limits{})
		_, err := f.Members.SetRole(t.Context(), owner, g.user, teams.Viewer)
		f.Must(err)
	case revoked:
		_, err := f.Services.Grants.Revoke(t.Context(), f.Acme.TeamID, g.id, grants.FromAPI)
		f.Must(err)
	}
}

// check requests an operation and compares the result with the rules. The result is 1 if the request was refused.
func (g *granted) check(t *testing.T, s grantState, o wire.Operation) (refused int) {
	t.Helper()
	set, name := s.effective(g.asked, g.role), o.Method+" "+o.Path
	limits, further := s == limited || s == approval, teams.NewScopes(o.Further...)
	want := 0
	switch {
	case s == revoked:
		want = http.StatusUnauthorized
	case o.RefusesApps, limits && notWithLimits[name], set&further != further,
		o.Scope != wire.Open && !set.Has(o.Scope) && !(o.Scope == teams.ApprovalsRequest && set.Has(teams.EmailsSend)):
		want = http.StatusForbidden
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), o.Method, withIDs(o.Path), strings.NewReader("{}"))
	r.RemoteAddr = g.address // requests with unknown tokens are limited per address
	g.ServeHTTP(w, r)
	got := 0
	if w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden || w.Code >= 500 {
		got = w.Code
	}
	if got != want {
		t.Errorf("%s with %s of a %s, %s: %d %s, want %d", name, describe(g), g.role, s, w.Code, w.Body, want)
	}
	if want == 0 {
		return 0
	}
	return 1
}

func describe(g *granted) string {
	switch {
	case !g.asked.Has(g.about):
		return fmt.Sprintf("all scopes but %s", g.about)
	case g.asked == teams.NewScopes(g.about):
		return fmt.Sprintf("exactly %s", g.about)
	}
	return "full access"
}
