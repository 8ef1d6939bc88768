package signin

import (
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Removing a member and leaving a team need a typed confirmation, which the server checks.
func TestTypedConfirmation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		owner, bob := x.person("ada@acme.example", teams.Owner), x.person("bob@acme.example", teams.Member)
		ann := x.person("ann@acme.example", teams.Member)
		team := url.Values{"team": {x.Acme.TeamID}}
		isMember := func(userID string, want bool) {
			t.Helper()
			if _, err := x.members.Get(t.Context(), x.Acme.TeamID, userID); (err == nil) != want {
				t.Errorf("the membership: %v, want %v", err, want)
			}
		}
		b := x.browser(t).signIn(owner.Email).get("/app/people")
		remove := "/app/people/" + bob.ID + "/remove"
		b.post(remove, team).want(422, "The text differs from bob@acme.example")
		isMember(bob.ID, true)
		b.get("/app/people").submit(remove, "confirm", bob.Email).want(200, "removed")
		isMember(bob.ID, false)

		a := x.browser(t).signIn(ann.Email).get("/app/people")
		a.submit("/app/people/leave", "confirm", "acme").want(422, "The text differs from Acme")
		isMember(ann.ID, true)
		a.get("/app/people").submit("/app/people/leave", "confirm", "Acme").want(200)
		isMember(ann.ID, false)
	})
}

// Typed confirmations hold against wrong values, lesser roles, members of other teams and repeated requests.
func TestConfirmationsUnderAttack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		owner, admin := x.person("ada@acme.example", teams.Owner), x.person("adam@acme.example", teams.Admin)
		bob, viewer := x.person("bob@acme.example", teams.Member), x.person("vera@acme.example", teams.Viewer)
		stranger := x.person("zoe@acme.example", teams.Member)
		x.Must(x.DB.Update(t.Context(), func(tx *db.Tx) error {
			return x.members.AddIn(t.Context(), tx, x.Other.TeamID, stranger.ID, teams.Owner)
		}))
		isMember := func(userID string) {
			t.Helper()
			if _, err := x.members.Get(t.Context(), x.Acme.TeamID, userID); err != nil {
				t.Errorf("the membership ended: %v", err)
			}
		}
		remove := func(userID string) string { return "/app/people/" + userID + "/remove" }
		form := func(team string, confirm ...string) url.Values {
			return url.Values{"team": {team}, "confirm": confirm}
		}
		o := x.browser(t).signIn(owner.Email)
		for _, wrong := range []string{"", " ", "BOB@acme.example", "bob@acme.example\x00", "bob@acme.example\u202e",
			"bob@acme.examp1e", strings.Repeat("bob@acme.example", 3000), owner.Email, "\xff"} {
			if o.post(remove(bob.ID), form(x.Acme.TeamID, wrong, bob.Email)); o.status != 422 && o.status != 400 {
				t.Errorf("%.40q confirms: %d", wrong, o.status)
			}
			isMember(bob.ID)
		}
		o.post(remove(bob.ID), form(x.Other.TeamID, bob.Email)).want(403) // a team of others
		o.post(remove(bob.ID), form("", bob.Email)).want(403)             // no team
		o.post(remove("%00"), form(x.Acme.TeamID, bob.Email)).want(404)   // nobody
		o.post(remove(id.New()), form(x.Acme.TeamID, "x")).want(404)      // nobody
		o.post(remove(owner.ID), form(x.Acme.TeamID, owner.Email))        // the last owner
		o.post("/app/people/leave", form(x.Acme.TeamID, "Acme"))          // the last owner
		isMember(owner.ID)

		x.browser(t).signIn(viewer.Email).post(remove(bob.ID), form(x.Acme.TeamID, bob.Email)).want(403)
		x.browser(t).signIn(bob.Email).post(remove(bob.ID), form(x.Acme.TeamID, bob.Email)).want(403)
		x.browser(t).signIn(admin.Email).post(remove(owner.ID), form(x.Acme.TeamID, owner.Email)).want(403)
		z := x.browser(t).signIn(stranger.Email)
		z.post(remove(bob.ID), form(x.Other.TeamID, bob.Email)).want(404) // bob is in another team
		for _, id := range []string{bob.ID, owner.ID} {
			isMember(id)
		}

		o.post(remove(bob.ID), form(x.Acme.TeamID, bob.Email)).want(200, "removed")
		o.post(remove(bob.ID), form(x.Acme.TeamID, bob.Email)).want(404)
		z.post("/app/people/leave", form(x.Acme.TeamID, "Acme")).want(200)
		z.post("/app/people/leave", form(x.Acme.TeamID, "Acme")).want(403)
	})
}
