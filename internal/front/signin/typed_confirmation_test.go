package signin

import (
	"net/url"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
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
