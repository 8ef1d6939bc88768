package cli

import (
	"encoding/csv"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// Changes and exports made by operator commands appear in the affected team's audit log.
func TestCommandsAreRecorded(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("teams", "create", "Operator")
		id := strings.TrimSpace(p.must("teams", "create", "Acme"))
		p.key("Acme")
		p.must("teams", "suspend", "Acme")
		p.must("teams", "resume", id)
		p.must("teams", "limit", "Acme", "--daily", "100", "--rate", "7")
		p.must("teams", "retention", "Acme") // only reads the retention periods, so it is not recorded
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

// `teams members` lists the members of a team. Removing a member with a command takes effect immediately on a running
// node.
func TestMembers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		p.key("Other")
		n := p.start()
		ctx := t.Context()
		team, err := n.Teams.Find(ctx, "Acme")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for email, role := range map[string]teams.Role{"owner@acme.example": teams.Owner,
			"ann@acme.example": teams.Member} {
			u, err := n.Users.Create(ctx, users.NewUser{Email: email})
			if err != nil {
				t.Fatal(err)
			}
			if err := n.DB.Update(ctx, func(tx *db.Tx) error {
				return n.Members.AddIn(ctx, tx, team.ID, u.ID, role)
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
		if _, err := n.Members.Actor(ctx, ids[0], team.ID); err != nil {
			t.Fatal(err)
		}
		// The command `teams suspend` notifies the node, which reloads the team before the node's next regular check.
		p.must("teams", "suspend", "Acme")
		eventually(t, "the node knows that the team is suspended", func() bool {
			by, err := n.Members.Actor(ctx, ids[0], team.ID)
			return err == nil && by.Suspended
		})
		p.must("teams", "resume", "Acme")
		eventually(t, "the key works again", func() bool {
			status, _ := n.ask(key, http.MethodDelete, "/team/members/"+ids[0], "")
			return status == 200
		})
		if _, err := n.Members.Actor(ctx, ids[0], team.ID); err == nil {
			t.Error("a member who was removed is one still")
		}
	})
}

// A change made by a command is recorded in the audit log of the team that the command names. Changes that concern no
// team are recorded in an audit log that only the operator can read.
func TestChangesByCommandsAreRecorded(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		id := n.made(key, "/emails", hello)
		n.made(key, "/suppressions", `{"email":"s@one.example"}`)
		eventually(t, "the email is delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1
		})
		p.must("emails", "delete", id, "--team", "Acme")
		p.must("emails", "erase", "s@one.example", "--team", "Acme", "--suppressions", "--dry-run")
		p.must("emails", "erase", "nobody@one.example", "--suppressions")
		p.must("emails", "erase", "s@one.example", "--team", "Acme", "--suppressions")
		read := func(args ...string) (lines []string) {
			t.Helper()
			said := strings.TrimSpace(p.must(append([]string{"audit", "list"}, args...)...))
			for line := range strings.Lines(said) {
				f := strings.Fields(line)
				lines = append(lines, strings.Join(f[min(2, len(f)):], " "))
			}
			return slices.DeleteFunc(lines[1:], func(line string) bool { return !strings.Contains(line, "system") })
		}
		want := []string{"address.erased system - command -", "email.content_deleted system " + id + " command -"}
		if got := read("--team", "Acme", "--limit", "2"); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		got := read("--team", "Acme", "--action", "email.content_deleted", "--target-id", id)
		if !slices.Equal(got, want[1:]) {
			t.Errorf("selected %q", got)
		}

		p.must("users", "create", "ada@example.com")
		job := ""
		if err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
			n.Queue.Insert(t.Context(), tx, jobs.New{Kind: "none"})
			return tx.QueryRow(t.Context(), `UPDATE jobs SET parked = $1 WHERE kind = 'none' RETURNING id`, true).
				Scan((*db.ID)(&job))
		}); err != nil {
			t.Fatal(err)
		}
		p.must("jobs", "retry", job)
		p.refused("no parked job", "jobs", "retry", job)
		got = read()
		if len(got) != 3 || got[0] != "job.retried system "+job+" command -" ||
			!strings.HasPrefix(got[1], "user.reset_asked system ") || !strings.HasPrefix(got[2], "user.created system ") {
			t.Errorf("of no team: %q", got)
		}
		said := p.must("audit", "export", "--format", "ndjson", "--action", "job.retried")
		if strings.Contains(said, "\n") || !strings.Contains(said, job) {
			t.Errorf("exported %q", said)
		}
		if got := read("--limit", "1"); !slices.Equal(got, []string{"audit.exported system - command -"}) {
			t.Errorf("the export: %q", got)
		}
		p.refused("the subcommand is missing: list, export", "audit")
		p.refused("must be a number", "audit", "list", "--limit", "-1")
		p.refused("no team", "audit", "list", "--team", "Nobody")
		p.refused("--team is missing", "export", "audit")
	})
}

// Control characters in values that users choose, such as the names of connected apps, are not printed to the terminal.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "-", " Notes ": "Notes", "a\x1b[2Jb\tc\n": "a?[2Jb?c?", "Ünï 7": "Ünï 7",
		"\u202e": "?"} {
		if got := printable(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
