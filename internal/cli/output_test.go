package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/partitions"
)

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// badNames returns the names of members of a JSON value that are not in snake case. Members of events and of answers
// that the API defines too are not looked at.
func badNames(v any) (bad []string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			bad = append(bad, badNames(item)...)
		}
	case map[string]any:
		for name, member := range v {
			if !snakeCase.MatchString(name) {
				bad = append(bad, name)
			}
			bad = append(bad, badNames(member)...)
		}
	}
	return bad
}

// object is a JSON object.
type object map[string]any

// text returns a member that is a text, or "".
func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

// row returns a member of the list called data.
func (o object) row(i int) object {
	list, _ := o["data"].([]any)
	if i >= len(list) {
		return nil
	}
	row, _ := list[i].(map[string]any)
	return row
}

// printer runs commands with --json, and notes which ones.
type printer struct {
	*installation
	printed map[string]bool
}

// json runs a command that prints one JSON object, and nothing else, and returns it.
func (p *printer) json(args ...string) object {
	p.t.Helper()
	all := p.lines(args...)
	if len(all) != 1 {
		p.t.Fatalf("postrider %q prints %d documents", args, len(all))
	}
	return all[0]
}

// lines runs a command that prints JSON objects.
func (p *printer) lines(args ...string) (all []object) {
	p.t.Helper()
	out, errOut, code := p.command(append(args, "--json")...)
	if code != 0 {
		p.t.Fatalf("postrider %q: exit code %d\n%s%s", args, code, out, errOut)
	}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var o object
		if err := dec.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			p.t.Fatalf("postrider %q: %v in\n%s", args, err, out)
		}
		if bad := badNames(map[string]any(o)); bad != nil && args[0] != "export" && args[0] != "automations" {
			p.t.Errorf("postrider %q names %q", args, bad)
		}
		all = append(all, o)
	}
	eachCommand(func(path []string, d *command) {
		if words := strings.Join(args, " ") + " "; d.define != nil && strings.HasPrefix(words, strings.Join(path, " ")+" ") {
			p.printed[strings.Join(path, " ")] = true
		}
	})
	return all
}

// Each command that prints data prints it as JSON too.
func TestJSON(t *testing.T) {
	t.Parallel()
	p := &printer{newInstallation(t), map[string]bool{"listen": true, "doctor": true}} // other tests run these
	for _, x := range products() {
		p.printed["import-from "+x.name] = true
	}
	p.secretKey()
	want := func(got object, name string, value any) {
		t.Helper()
		if got[name] != value {
			t.Errorf("%s is %v, want %v, in %v", name, got[name], value, got)
		}
	}
	team := p.json("teams", "create", "Acme", "--email", "owner@acme.example")
	id := team.text("id")
	want(team, "owner_email", "owner@acme.example")
	want(p.json("teams", "list").row(0), "id", id)
	want(p.json("teams", "show", "Acme"), "used_today", 0.0)
	want(p.json("teams", "rename", "Acme", "Acme Ltd"), "name", "Acme Ltd")
	want(p.json("teams", "suspend", id), "suspended", true)
	want(p.json("teams", "resume", id), "suspended", false)
	want(p.json("teams", "limit", id, "--rate", "5"), "rate_limit", 5.0)
	want(p.json("teams", "limit", id, "--daily", "100"), "daily_quota", 100.0)
	kept, _ := p.json("teams", "retention", id, "--emails", "720h")["emails"].(map[string]any)
	want(kept, "seconds", 720*3600.0)
	key := p.json("keys", "create", "--team", id, "--name", "backend")
	if !strings.HasPrefix(key.text("token"), "re_") {
		t.Errorf("keys create prints %v", key)
	}
	spare := p.json("keys", "create", "--team", id)
	listed := p.json("keys", "list", "--team", id)
	if listed.row(0)["token"] != nil || listed.row(1) == nil {
		t.Errorf("keys list prints %v", listed)
	}
	want(p.json("keys", "delete", "--team", id, spare.text("id")), "deleted", true)

	user := p.json("users", "create", "ada@example.com", "--name", "Ada")
	if !strings.Contains(user.text("link"), "://") {
		t.Errorf("users create prints %v", user)
	}
	want(p.json("users", "list").row(0), "email", "ada@example.com")
	want(p.json("users", "invite", "eve@example.com", "--team", id), "team_id", id)
	want(p.json("users", "reset", "ada@example.com"), "id", user.text("id"))
	want(p.json("users", "disable", "ada@example.com"), "disabled", true)
	want(p.json("users", "enable", "ada@example.com"), "disabled", false)
	want(p.json("users", "delete", "ada@example.com", "--yes"), "deleted", true)
	if members := p.json("teams", "members", id); members["data"] == nil || members.row(0) != nil {
		t.Errorf("teams members prints %v", members)
	}
	want(p.json("audit", "list", "--team", id, "--action", "team.renamed").row(0), "target", id)
	if entries := p.lines("audit", "export", "--team", id, "--action", "team.renamed"); len(entries) != 1 {
		t.Errorf("audit export prints %v", entries)
	}
	p.jsonOfEmails(id, key.text("token"))
	p.jsonOfOperating()
	p.printed["apply"] = true                                           // by TestApplyJSON
	p.printed["policy show"], p.printed["policy forget"] = true, true   // by TestPolicyCommands
	p.printed["policy tlsa"], p.printed["policy next-key"] = true, true // by TestTLSACommands
	p.printed["domains rotate-keys"] = true                             // by TestRotateKeysCommand
	p.printed["domain-connect key"] = true                              // by TestDomainConnectCommands
	want(p.json("teams", "create", "Beta"), "name", "Beta")
	want(p.json("teams", "delete", "Beta", "--yes"), "deleted", true)

	eachCommand(func(path []string, d *command) {
		if name := strings.Join(path, " "); d.define != nil && !d.plain && !p.printed[name] {
			t.Errorf("this test does not run postrider %s --json", name)
		}
	})
}

// jsonOfEmails runs the commands that concern emails and contacts.
func (p *printer) jsonOfEmails(teamID, key string) {
	t := p.t
	t.Helper()
	n := p.start()
	defer n.end()
	sent := n.made(key, "/emails", hello)
	eventually(t, "the email is captured", func() bool {
		return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1
	})
	if got := p.json("emails", "list", "--team", teamID).row(0); got.text("id") != sent || got.text("subject") != "s" {
		t.Errorf("emails list prints %v", got)
	}
	p.json("emails", "index", "--team", teamID)
	if got := p.json("explain", sent); got.text("email_id") != sent {
		t.Errorf("explain prints %v", got)
	}
	if got := p.json("emails", "erase", "b@one.example", "--dry-run"); got["dry_run"] != true || got.row(0) == nil {
		t.Errorf("emails erase prints %v", got)
	}
	for list, rows := range map[string]int{"contacts": 0, "emails": 1, "suppressions": 0, "logs": 1, "audit": 1} {
		if got := p.lines("export", list, "--team", teamID); len(got) < rows {
			t.Errorf("export %s prints %v", list, got)
		}
	}
	if got := p.json("emails", "delete", sent, "--team", teamID); got.text("deleted") != "content" {
		t.Errorf("emails delete prints %v", got)
	}
	file := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(file, []byte("email\na@example.org\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.vars["RESEND_BASE_URL"], p.vars["RESEND_API_KEY"] = n.url, key
	if got := p.json("contacts", "import", file); got["created"] != 1.0 {
		t.Errorf("contacts import prints %v", got)
	}
	manual, err := os.ReadFile("../../docs/automations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(manual), "\n## Simulation\n")
	_, example, _ = strings.Cut(example, "```json\n")
	example, _, _ = strings.Cut(example, "```")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.json("automations", "simulate", file); got.text("status") != "completed" {
		t.Errorf("automations simulate prints %v", got)
	}
	job := ""
	if err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
		n.Queue.Insert(t.Context(), tx, jobs.New{Kind: "none"})
		return tx.QueryRow(t.Context(), `UPDATE jobs SET parked = $1 WHERE kind = 'none' RETURNING id`, true).
			Scan((*db.ID)(&job))
	}); err != nil {
		t.Fatal(err)
	}
	got := p.json("jobs")
	if parked, _ := got["parked"].([]any); len(parked) != 1 || got["kinds"] == nil {
		t.Errorf("jobs prints %v", got)
	}
	if got := p.json("jobs", "retry", job); got.text("id") != job {
		t.Errorf("jobs retry prints %v", got)
	}
}

// jsonOfOperating runs the commands for the installation.
func (p *printer) jsonOfOperating() {
	t := p.t
	t.Helper()
	if got := p.json("version"); got.text("version") != Version || got.text("os") == "" {
		t.Errorf("version prints %v", got)
	}
	if got, _ := p.json("migrate")["applied"].([]any); got == nil || len(got) > 0 {
		t.Errorf("migrate applied %v", got)
	}
	if got, _ := p.json("storage")["tables"].([]any); len(got) < 10 {
		t.Errorf("storage prints %v", got)
	}
	if got := p.json("config", "check"); got["valid"] != true || got["features"] == nil {
		t.Errorf("config check prints %v", got)
	}
	if got := p.json("config", "show", "--changed"); got.row(0).text("setting") != "data_dir" ||
		got.row(0).text("place") != "POSTRIDER_DATA_DIR" {
		t.Errorf("config show prints %v", got)
	}
	folder := t.TempDir()
	saved := filepath.Join(folder, "saved.tar")
	if got := p.json("support", filepath.Join(folder, "support.tar.gz")); got["has_log"] != false {
		t.Errorf("support prints %v", got)
	}
	if got := p.json("backup", saved); got.text("to") != saved || got["encrypted"] != false {
		t.Errorf("backup prints %v", got)
	}
	if got := p.json("backup", "--done-elsewhere"); got.text("last_backup_at") == "" {
		t.Errorf("backup --done-elsewhere prints %v", got)
	}
	if err := dbtest.Open(t, filepath.Join(p.dir, "postrider.db")).SetFact(t.Context(), db.FactMoveID, "x y"); err != nil {
		t.Fatal(err)
	}
	if got := p.json("promote", "--cancel"); got["canceled"] != true {
		t.Errorf("promote --cancel prints %v", got)
	}
	restored := emptyInstallation(t)
	restored.secretKey()
	q := &printer{restored, p.printed}
	if got := q.json("restore", saved); got.text("data_dir") != restored.dir {
		t.Errorf("restore prints %v", got)
	}
	if got := q.json("promote", "--to", dbtest.EmptyPostgresURL(t)); got["tables"].(float64) < 10 {
		t.Errorf("promote prints %v", got)
	}
	if got := p.json("keys", "rotate-master"); got["restart_needed"] != true {
		t.Errorf("keys rotate-master prints %v", got)
	}
}

// With PostgreSQL, the sizes include the partitions, those that are missing, and the next drops.
func TestJSONOfPartitions(t *testing.T) {
	t.Parallel()
	p := &printer{migratedInstallation(t, "postgres"), map[string]bool{}}
	p.vars["POSTRIDER_LOG_RETENTION"] = "48h"
	d := dbtest.Open(t, p.vars["POSTRIDER_DATABASE_URL"])
	if err := partitions.New(d, "month", slog.New(slog.DiscardHandler)).Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := func(got object, name string) (all []object) {
		t.Helper()
		items, ok := got[name].([]any)
		if !ok {
			t.Fatalf("%s is no list in %v", name, got)
		}
		for _, item := range items {
			all = append(all, item.(map[string]any))
		}
		return all
	}
	got := p.json("storage")
	parts, drops := list(got, "partitions"), list(got, "next_drops")
	dated, other := 0, 0
	for _, x := range parts {
		if x["from"] == nil && x["to"] == nil {
			other++
			continue
		}
		from, err := time.Parse(time.RFC3339, x.text("from"))
		to, errTo := time.Parse(time.RFC3339, x.text("to"))
		if dated++; err != nil || errTo != nil || !from.Before(to) || x.text("name") == "" || x["bytes"] == nil {
			t.Errorf("partition %v", x)
		}
	}
	if dated < 3 || other < 3 || len(list(got, "missing_partitions")) != 0 {
		t.Errorf("%d partitions, %d default partitions, missing %v", dated, other, got["missing_partitions"])
	}
	settings := map[string]bool{}
	for _, x := range drops {
		settings[x.text("setting")] = true
		if at, err := time.Parse(time.RFC3339, x.text("drops_at")); x.text("setting") == "log_retention" &&
			(err != nil || at.IsZero() || x.text("partition") == "") {
			t.Errorf("drop %v", x)
		}
		if x.text("setting") == "email_retention" && (x["drops_at"] != nil || x["partition"] != nil) {
			t.Errorf("a drop of emails that are kept forever: %v", x)
		}
	}
	if len(settings) != 3 {
		t.Errorf("next drops %v", drops)
	}
	dbtest.DropPartitions(t, d)
	if missing := list(p.json("storage"), "missing_partitions"); len(missing) == 0 || missing[0].text("from") == "" {
		t.Errorf("missing partitions %v", missing)
	}
}

// Errors are JSON with --json: a kind, the command and the message.
func TestJSONErrors(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	p.secretKey()
	for _, c := range []struct {
		args, kind, message string
		code                int
	}{
		{"teams show Nobody", "not_found", "no team with the name", 1},
		{"teams show", "usage", "TEAM is missing", 2},
		{"teams list --colour", "usage", "unknown flag --colour", 2},
		{"teams lst", "usage", "did you mean list?", 2},
		{"serve --transport pigeon", "usage", "unknown flag --json", 2},
		{"config show --transport pigeon", "settings", `"pigeon" is not known`, 1},
		{"support /dev/null", "failed", "exists; choose another name", 1},
	} {
		out, errOut, code := p.command(append(strings.Fields(c.args), "--json")...)
		var got struct {
			Kind, Command, Message string
			Problems               []struct{ Setting, Place, Message string }
		}
		if err := json.Unmarshal([]byte(errOut), &got); err != nil || got.Kind != c.kind || code != c.code || out != "" ||
			!strings.Contains(got.Message, c.message) || !strings.HasPrefix("postrider "+c.args, got.Command) {
			t.Errorf("postrider %s: %v, exit code %d, %+v, printed %q", c.args, err, code, got, out)
		}
		if c.kind == "settings" && (len(got.Problems) != 1 || got.Problems[0].Setting != "transport" ||
			got.Problems[0].Place != "--transport") {
			t.Errorf("problems %+v", got.Problems)
		}
	}
}

// The events of listen are lines of JSON.
func TestListenJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := newEnv(nil, &out, io.Discard)
	e.json = true
	l, _, err := newListener(e, listenOptions{base: "http://127.0.0.1:1", key: "re_x"})
	if err != nil {
		t.Fatal(err)
	}
	l.handle(t.Context(), "1", "email.sent", `{"type":"email.sent"}`)
	l.handle(t.Context(), "", "gap", "")
	l.handle(t.Context(), "1", "email.sent", `{"type":"email.sent"}`) // shown already
	var got []string
	for dec := json.NewDecoder(&out); dec.More(); {
		var o object
		if err := dec.Decode(&o); err != nil {
			t.Fatal(err)
		}
		payload, _ := o["payload"].(map[string]any)
		got = append(got, o.text("object")+" "+o.text("type")+" "+object(payload).text("type"))
	}
	if want := "event email.sent email.sent,gap  "; strings.Join(got, ",") != want {
		t.Errorf("the lines are %q", got)
	}
}
