package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
)

const hello = `{"from":"a@resend.dev","to":"b@one.example","subject":"s","text":"t"}`

// An API key belongs to the team that is named in `keys create`, even if several teams exist.
func TestKeysAreOfTheTeamThatIsNamed(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		first := p.key("A", "--email", "owner@a.example")
		n := p.start()
		second := p.key("B")
		again := p.key("A", "--name", "another", "--email", "Owner@a.example")
		if status, body := n.ask(first, http.MethodPost, "/emails", hello); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		for key, want := range map[string]int{first: 1, second: 0, again: 1} {
			var list struct{ Data []struct{ ID string } }
			_, body := n.ask(key, http.MethodGet, "/emails", "")
			if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Data) != want {
				t.Errorf("a key sees %d emails and not %d: %s", len(list.Data), want, body)
			}
		}
		if teams := p.must("teams", "list"); strings.Count(teams, "\n") != 2 || !strings.Contains(teams, "owner@a.example") {
			t.Errorf("teams:\n%s", teams)
		}
		if keys := p.must("keys", "list", "--team", "B"); strings.Count(keys, "\n") != 1 ||
			!strings.Contains(keys, second[:11]) {
			t.Errorf("B's keys:\n%s", keys)
		}
		p.refused("--team is missing", "keys", "create")
		p.refused("--team is missing", "keys", "list")
		p.refused("exists, with owner@a.example as its owner's address", "keys", "create", "--create-team", "--team", "A",
			"--email", "other@a.example")
	})
}

// teamOf returns the columns of a team's row in the output of `teams list`.
func (p *installation) teamOf(name string) (columns []string) {
	p.t.Helper()
	for line := range strings.Lines(p.must("teams", "list")) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == name {
			columns = f
		}
	}
	return columns
}

// A running node enforces a quota immediately after a command sets it. Every new team except the first gets the
// configured trial quota.
func TestQuotaCommand(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		first := p.key("A", "--trial-daily", "1", "--trial-monthly", "3")
		trial := p.key("B", "--trial-daily", "1", "--trial-monthly", "3")
		n := p.start()
		mustAnswer := func(key string, want int) {
			t.Helper()
			if status, body := n.ask(key, http.MethodPost, "/emails", hello); status != want {
				t.Fatalf("%d and not %d: %s", status, want, body)
			}
		}
		mustAnswer(first, 200)
		mustAnswer(first, 200)
		mustAnswer(trial, 200)
		mustAnswer(trial, 429)
		if got := fmt.Sprint(p.teamOf("A")[3:6], p.teamOf("B")[3:6]); got != "[configured none none] [configured 1 3]" {
			t.Errorf("the list shows %s", got)
		}
		p.must("teams", "limit", "B", "--daily", "2")
		mustAnswer(trial, 200)
		mustAnswer(trial, 429)
		if got := p.must("teams", "show", "B"); !strings.Contains(got, "2 of 2 used") ||
			!strings.Contains(got, "2 of 3 used") {
			t.Errorf("the team is shown as\n%s", got)
		}
		p.must("teams", "limit", "A", "--monthly", "1")
		testnode.Until(t, "the node knows of the first quota", func() bool {
			status, _ := n.ask(first, http.MethodPost, "/emails", hello)
			return status == 429
		})
		p.must("teams", "limit", "B", "--daily", "0", "--monthly", "0")
		mustAnswer(trial, 200)
		p.refused("must be a number", "teams", "limit", "B", "--daily", "1", "--rate", "-1")
		p.refused("must be a number", "teams", "limit", "B", "--daily", "-1", "--rate", "3")
		if got := fmt.Sprint(p.teamOf("B")[3:6]); got != "[configured none none]" {
			t.Errorf("what was refused in part has changed the limits: %s", got)
		}
	})
}

// Commands accept a team's id or exact name. Invalid commands change nothing.
func TestTeamsCommand(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		operator, acme := p.must("teams", "create", "Operator"), p.must("teams", "create", "Acme", "--email",
			"owner@acme.example")
		twin := p.must("teams", "create", "--email", "Owner@Twin.example", "Acme")
		p.refused(acme+", "+twin, "keys", "create", "--create-team", "--team", "Acme")
		p.refused(acme+", "+twin, "teams", "suspend", "Acme")
		key := p.key(strings.ToUpper(twin), "--name", "by id")
		if keys := p.must("keys", "list", "--team", twin); !strings.Contains(keys, key[:11]) {
			t.Errorf("the twin's keys:\n%s", keys)
		}
		p.must("teams", "rename", twin, "Twin")
		p.must("teams", "limit", "Twin", "--rate", "7")
		p.must("teams", "suspend", "Twin")
		if got := fmt.Sprint(p.teamOf("Twin")[:7]); got != "["+twin+" Twin owner@twin.example 7/s none none suspended]" {
			t.Errorf("the list shows %s", got)
		}
		before := p.must("teams", "list")
		for _, x := range []struct {
			say  string
			args []string
		}{
			{"the subcommand is missing", []string{"teams"}},
			{"use one of", []string{"teams", "nonsense"}},
			{"use one of", []string{"keys", "nonsense"}},
			{"NAME is missing", []string{"teams", "create"}},
			{"unexpected argument", []string{"teams", "create", "Two", "words"}},
			{"unexpected argument", []string{"keys", "create", "Acme"}},
			{"TEAM is missing", []string{"teams", "delete", "--yes"}},
			{"unknown flag --limit", []string{"teams", "create", "X", "--limit", "5"}},
			{"Missing `name`", []string{"teams", "create", " "}},
			{"at most 100 characters", []string{"teams", "create", strings.Repeat("x", 101)}},
			{"no control characters", []string{"teams", "create", "a\nb"}},
			{"must not look like an id", []string{"teams", "create", acme}},
			{"must not look like an id", []string{"teams", "rename", "Twin", acme}},
			{"owner's address must be", []string{"teams", "create", "X", "--email", "nobody"}},
			{"owner's address must be", []string{"keys", "create", "--create-team", "--team", "X", "--email", "nobody"}},
			{"at most 50 characters", []string{"keys", "create", "--create-team", "--team", "X", "--name",
				strings.Repeat("x", 51)}},
			{"no team with the name", []string{"keys", "list", "--team", "acme"}},
			{"no team has the name or id", []string{"keys", "create", "--team", "01990000-0000-7000-8000-000000000001"}},
			{"no team with the id", []string{"keys", "create", "--create-team", "--team",
				"01990000-0000-7000-8000-000000000001"}},
			{"API key not found", []string{"keys", "delete", "--team", "Operator", "01990000-0000-7000-8000-000000000001"}},
			{"give a limit", []string{"teams", "limit", "Twin"}},
			{"is not a whole number", []string{"teams", "limit", "Twin", "--rate", "many"}},
			{"must be a number", []string{"teams", "limit", "Twin", "--rate", "99999999999"}},
			{"must be a number", []string{"teams", "limit", "Twin", "--rate", "-1"}},
			{"must be a number", []string{"teams", "limit", "Twin", "--daily", "-1"}},
			{"must be a number", []string{"teams", "limit", "Twin", "--daily", "5", "--monthly", "9999999999999"}},
			{"add --yes", []string{"teams", "delete", "Twin"}},
			{"is the operator's", []string{"teams", "delete", operator, "--yes"}},
			{"is the operator's", []string{"teams", "delete", twin, "--yes", "--operator-team", twin}},
			{"unexpected", []string{"migrate", "now", "--log-level", "debug"}},
			{"unknown flag --log-level", []string{"version", "--log-level", "debug"}},
			{"ID is missing", []string{"jobs", "retry"}},
		} {
			_, errOut, code := p.command(x.args...)
			if code == 0 || !strings.Contains(errOut, x.say) {
				t.Errorf("postrider %q: exit code %d, said %q; want %q", x.args, code, errOut, x.say)
			}
		}
		if after := p.must("teams", "list"); after != before {
			t.Errorf("refused commands changed\n%s\nto\n%s", before, after)
		}
		p.must("teams", "resume", "Twin")
		p.must("teams", "limit", "--rate", "0", "Twin")
		if got := fmt.Sprint(p.teamOf("Twin")[3:7]); got != "[configured none none active]" {
			t.Errorf("the list shows %s", got)
		}
		p.must("teams", "delete", "Twin", "--yes")
		p.refused("no team with the name", "keys", "list", "--team", "Twin")
		p.refused("no team with the id", "teams", "resume", twin)
	})
}

// soon checks that the running node notices a command's change before the node's next regular check. A notification may
// be lost, so soon calls change and undo repeatedly.
func soon(t *testing.T, change, undo func(), noticed func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 10 {
		change()
		for start := time.Now(); time.Since(start) < 2*time.Second; <-tick.C {
			if noticed() {
				return
			}
		}
		undo()
	}
	t.Error("the node does not hear of it")
}

// submit sends a message over SMTP and returns the error.
func (n *started) submit(key string) error {
	c, err := smtp.Dial(n.Port(node.PortSubmit))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Auth(smtp.PlainAuth("", "postrider", key, "127.0.0.1")); err != nil {
		return err
	}
	return c.Mail("a@resend.dev")
}

// A running node immediately enforces the suspension of a team for HTTP requests, SMTP submissions and scheduled
// emails.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key, other := p.key("Acme"), p.key("Other")
		n := p.start()
		if err := n.submit(key); err != nil {
			t.Fatal(err)
		}
		var sent struct{ ID string }
		at := time.Now().Add(time.Hour).Format(time.RFC3339)
		_, body := n.ask(key, http.MethodPost, "/emails", strings.Replace(hello, "{", `{"scheduled_at":"`+at+`",`, 1))
		if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.ID == "" {
			t.Fatalf("%s: %v", body, err)
		}
		suspend, resume := func() { p.must("teams", "suspend", "Acme") }, func() { p.must("teams", "resume", "Acme") }
		refused := func() bool {
			status, _ := n.ask(key, http.MethodGet, "/domains", "")
			return status == http.StatusForbidden
		}
		soon(t, suspend, resume, refused)
		if err := n.submit(key); err == nil || !strings.HasPrefix(err.Error(), "550") {
			t.Errorf("SMTP submission of a suspended team: %v", err)
		}
		if status, body := n.ask(other, http.MethodGet, "/domains", ""); status != 200 {
			t.Errorf("another team: %d %s", status, body)
		}
		// Make the scheduled email due.
		n.due("emails.release")
		eventually(t, "the scheduled email fails", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE id = $1 AND last_event = 9 /* failed */`, db.ID(sent.ID)) == 1
		})
		if n.count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1 AND data LIKE '%account_suspended%'`,
			db.ID(sent.ID)) != 1 {
			t.Error("the timeline does not say why")
		}
		soon(t, resume, suspend, func() bool { return !refused() })
		if err := n.submit(key); err != nil {
			t.Errorf("SMTP submission when resumed: %v", err)
		}

		keys := strings.Fields(p.must("keys", "list", "--team", "Acme"))
		id := keys[8] // the first word after the eight words of the heading
		if len(id) != 36 {
			t.Fatalf("%q is no id: %q", id, keys)
		}
		gone := func() bool {
			status, _ := n.ask(key, http.MethodGet, "/domains", "")
			return status == http.StatusUnauthorized
		}
		p.must("keys", "delete", "--team", "Acme", id)
		eventually(t, "the key is unknown", gone)
	})
}

// due makes the job of the given kind and the job's scheduled email due immediately, and notifies the node.
func (n *started) due(kind string) {
	n.t.Helper()
	var lane, dedupe, teamID string
	if err := n.look.QueryRow(n.t.Context(), `SELECT lane, dedupe, team_id FROM jobs WHERE kind = $1`, kind).Scan(&lane,
		&dedupe, (*db.ID)(&teamID)); err != nil {
		n.t.Fatal(err)
	}
	err := n.DB.Update(n.t.Context(), func(tx *db.Tx) error {
		if id.Valid(dedupe) {
			tx.Queue(n.t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1 AND team_id = $2
				AND scheduled_at > 1`, db.ID(dedupe), db.ID(teamID))
		}
		_, err := n.Queue.Move(n.t.Context(), tx, kind, teamID, lane, dedupe, tx.Now().Add(-time.Minute))
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}
