//go:build chaos

package e2e

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// oldProgram returns the path of an earlier release's program. The command "make upgrade OLD=path" passes the path in
// an environment variable.
func oldProgram(t *testing.T) string {
	t.Helper()
	path := os.Getenv("POSTRIDER_OLD_PROGRAM")
	if path == "" {
		t.Fatal("POSTRIDER_OLD_PROGRAM must be the path of the program that is upgraded; use make upgrade OLD=path")
	}
	return path
}

var setupAt = regexp.MustCompile(`/setup\?token=[\w-]+`)

// TestUpgrade creates objects of every kind with an old program, and then runs the new program on the same database.
func TestUpgrade(t *testing.T) {
	old := oldProgram(t)
	for _, engine := range both {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			env := []string{"POSTRIDER_SECRET_KEY=" + sharedSecret,
				"POSTRIDER_BLOB_URL=" + filepath.Join(t.TempDir(), "blobs")}
			if engine == "postgres" {
				env = append(env, "POSTRIDER_DATABASE_URL="+dbtest.PostgresURL(t))
			}
			n := prepare(t, old, env)
			n.tail = 4000
			n.launch()
			b := n.fill()
			n.stop()
			n.program = binary
			n.owner()
			n.launch()
			n.has(b)

			n.must(http.MethodPatch, "/emails/"+b.ScheduledID, `{"scheduled_at":"in 1 second"}`, nil)
			n.must(http.MethodPost, "/events/send", `{"event": "paid", "email": "c0@example.net"}`, nil)
			n.captured("later@example.net")
			eventually(t, 30*time.Second, "the run is completed", func() bool {
				var runs struct{ Data []struct{ Status string } }
				n.must(http.MethodGet, "/automations/"+b.Automation+"/runs", "", &runs)
				return len(runs.Data) == 1 && runs.Data[0].Status == "completed"
			})

			run := func(args ...string) string {
				t.Helper()
				out, errOut, err := command(t, append(env, "POSTRIDER_DATA_DIR="+n.dir()), args...)
				if err != nil {
					t.Errorf("postrider %s: %v %s", strings.Join(args, " "), err, errOut)
				}
				return out
			}
			run("teams", "limit", "Development", "--daily", "100")
			var usage struct {
				Emails struct{ Daily struct{ Used, Sent int } }
			}
			n.must(http.MethodGet, "/usage", "", &usage)
			// The count includes the emails from before the upgrade and one email sent with each key.
			if d := usage.Emails.Daily; d.Used != d.Sent || d.Sent < 9 {
				t.Errorf("of the quota %d are used, and %d were sent", d.Used, d.Sent)
			}
			for _, args := range [][]string{{"teams", "list"}, {"keys", "list", "--team", "Development"}, {"jobs"},
				{"users", "list"}, {"teams", "show", "Development"}, {"migrate"}} {
				if out := run(args...); out == "" {
					t.Errorf("%v says nothing", args)
				}
			}
		})
	}
}

// owner starts the node in production mode, creates the first account as the existing team's owner, and stops the node.
func (n *node) owner() {
	n.t.Helper()
	defer func(args []string) { n.args = args }(n.args)
	n.args = []string{"serve", "--data-dir", n.dir(), "--http-listen", n.addr, "--public-url", "http://" + n.addr,
		"--roles", "api"}
	n.launch()
	defer n.stop()
	var link string
	eventually(n.t, 20*time.Second, "the log has the link", func() bool {
		link = setupAt.FindString(n.out.String())
		return link != ""
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		n.t.Fatal(err)
	}
	_, token, _ := strings.Cut(link, "token=")
	c := caller{addr: n.addr, jar: jar}
	a, err := c.ask(n.t.Context(), http.MethodGet, link, nil)
	if err != nil || !strings.Contains(a.text, "Development") {
		n.t.Errorf("the page of the link: %d %v %s", a.status, err, a.text)
	}
	at := strings.Index(a.text, `<option value="`)
	team := a.text[at+len(`<option value="`):][:36]
	a, err = c.ask(n.t.Context(), http.MethodPost, "/setup", url.Values{"token": {token}, "email": {"ada@acme.example"},
		"password": {password}, "team": {team}})
	if err != nil || a.status != http.StatusSeeOther {
		n.t.Fatalf("the first account: %d %v %s", a.status, err, a.text)
	}
	a, err = c.ask(n.t.Context(), http.MethodGet, "/app/people", nil)
	if err != nil || !strings.Contains(a.text, "ada@acme.example") {
		n.t.Errorf("the people of the team: %d %v", a.status, err)
	}
}

// TestRollingUpgrade runs the new program and an old one on the same database at the same time.
func TestRollingUpgrade(t *testing.T) {
	old := oldProgram(t)
	env := []string{"POSTRIDER_SECRET_KEY=" + sharedSecret,
		"POSTRIDER_BLOB_URL=" + filepath.Join(t.TempDir(), "blobs"),
		"POSTRIDER_DATABASE_URL=" + dbtest.PostgresURL(t)}
	a := prepare(t, old, env)
	a.tail = 4000
	a.launch()
	had := a.fill()
	b := prepare(t, binary, env)
	b.tail = 4000
	b.launch()
	b.has(had)
	for i := range 20 {
		for _, n := range []*node{a, b} {
			id := n.made(t.Context(), "/emails", map[string]any{"from": "hello@acme.example",
				"to": fmt.Sprintf("rolling%d@example.net", i), "subject": "Rolling", "text": "Hello"})
			eventually(t, 30*time.Second, "it is delivered", func() bool {
				var e struct {
					Last string `json:"last_event"`
				}
				for _, by := range []*node{a, b} {
					by.must(http.MethodGet, "/emails/"+id, "", &e)
				}
				return e.Last == "delivered"
			})
		}
	}
	var made struct{ Token string }
	a.must(http.MethodPost, "/api-keys", `{"name":"by the old one"}`, &made)
	newer := caller{addr: b.addr, bearer: made.Token}
	if r, err := newer.ask(t.Context(), http.MethodGet, "/domains", nil); err != nil || r.status != http.StatusOK {
		t.Errorf("a key of the old program is answered with %d %v", r.status, err)
	}
	p, err := granted(t.Context(), b.addr, key, "full_access")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		n    *node
		want []int
	}{{a, []int{401, 403}}, {b, []int{200}}} {
		r, err := caller{addr: x.n.addr, bearer: p.Access}.ask(t.Context(), http.MethodGet, "/domains", nil)
		if err != nil || !slices.Contains(x.want, r.status) {
			t.Errorf("a program's token is answered with %d %v", r.status, err)
		}
	}
	// A connected app schedules this email through the new node; either node may send the email.
	r, err := caller{addr: b.addr, bearer: p.Access}.ask(t.Context(), http.MethodPost, "/emails", map[string]any{
		"from": "hello@acme.example", "to": "program@example.net", "subject": "Of a program", "text": "Hello",
		"scheduled_at": time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)})
	if err != nil || r.status != http.StatusOK {
		t.Fatalf("a program schedules: %d %v %s", r.status, err, r.text)
	}
	eventually(t, 30*time.Second, "it is in an outbox", func() bool {
		for _, n := range []*node{a, b} {
			var text string
			n.must(http.MethodGet, "/dev/outbox", "", &text)
			if strings.Contains(text, "program@example.net") {
				return true
			}
		}
		return false
	})
	// For the downgrade, the old program starts on the migrated database.
	for _, program := range []string{old, binary} {
		a.stop()
		a.program = program
		a.launch()
		a.has(had)
	}
}
