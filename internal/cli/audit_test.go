package cli

import (
	"encoding/csv"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/teams"
	"github.com/postrider/postrider/internal/users"
)

// What the operator's commands change is in the audit log of the team that they are about, and so are exports.
func TestCommandsAreRecorded(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p *place) {
		p.must("teams", "create", "Operator")
		id := strings.TrimSpace(p.must("teams", "create", "Acme"))
		p.must("keys", "create", "--team", "Acme")
		p.must("teams", "suspend", "Acme")
		p.must("teams", "resume", id)
		p.must("teams", "limit", "Acme", "--daily", "100", "--rate", "7")
		p.must("teams", "retention", "Acme") // only shows
		p.must("teams", "retention", "Acme", "--emails", "48h")
		p.must("teams", "show", "Acme")
		p.must("teams", "rename", "Acme", "Acme Ltd")
		p.refused("no team", "teams", "suspend", "Nobody")
		p.must("export", "contacts", "--team", id)
		rows, err := csv.NewReader(strings.NewReader(p.must("export", "audit", "--team", id))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range slices.Backward(rows[1:]) {
			if row[4] != "system" || row[3] != "command" || row[2] == "" ||
				(row[2] == id) == (row[1] == "api_key.created") {
				t.Errorf("%q", row)
			}
			got = append(got, row[1])
		}
		want := []string{"team.created", "api_key.created", "team.suspended", "team.resumed", "team.limited",
			"team.retention_changed", "team.renamed", "contacts.exported", "audit.exported"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		said := p.must("export", "audit", "--team", id, "--action", "team.limited", "--target-id", id, "--format",
			"ndjson")
		if strings.Contains(said, "\n") || !strings.Contains(said, `"action":"team.limited"`) {
			t.Errorf("%q", said)
		}
		if said := p.must("export", "audit", "--team", "Operator", "--action", "team.suspended"); strings.Contains(said,
			"\n") {
			t.Errorf("the operator's team: %q", said)
		}
	})
}

// The members of a team are listed, and what is withdrawn from them is known to other nodes at once.
func TestMembers(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p *place) {
		key := p.must("keys", "create", "--team", "Acme")
		p.must("keys", "create", "--team", "Other")
		n := p.start()
		ctx := t.Context()
		team, err := n.teams.Find(ctx, "Acme")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for email, role := range map[string]teams.Role{"owner@acme.example": teams.Owner,
			"ann@acme.example": teams.Member} {
			u, err := n.users.Create(ctx, users.NewUser{Email: email})
			if err != nil {
				t.Fatal(err)
			}
			if err := n.db.Update(ctx, func(tx *db.Tx) error {
				return n.members.AddIn(ctx, tx, team.ID, u.ID, role)
			}); err != nil {
				t.Fatal(err)
			}
			if role == teams.Member {
				ids = append(ids, u.ID)
			}
		}
		if said := p.must("teams", "members", "Acme"); strings.Count(said, "\n") != 2 ||
			!strings.Contains(said, "ann@acme.example") || !strings.Contains(said, "owner") {
			t.Errorf("%q", said)
		}
		if said := p.must("teams", "members", "Other"); strings.Contains(said, "acme.example") {
			t.Errorf("%q", said)
		}
		if _, err := n.members.Actor(ctx, ids[0], team.ID); err != nil {
			t.Fatal(err)
		}
		// A command is another process for the node: it hears of it by a hint, before it would look again by itself.
		p.must("teams", "suspend", "Acme")
		eventually(t, "the node knows that the team is suspended", func() bool {
			by, err := n.members.Actor(ctx, ids[0], team.ID)
			return err == nil && by.Suspended
		})
		p.must("teams", "resume", "Acme")
		eventually(t, "the key works again", func() bool {
			status, _ := n.ask(key, http.MethodDelete, "/team/members/"+ids[0], "")
			return status == 200
		})
		if _, err := n.members.Actor(ctx, ids[0], team.ID); err == nil {
			t.Error("a member who was removed is one still")
		}
	})
}
