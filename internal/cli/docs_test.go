package cli

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// docExamples are the pages with curl examples, in the order in which the examples are run. Further pages with such
// examples fail the test.
var docExamples = []string{"README.md", "contacts.md", "broadcasts.md", "checks.md", "idempotency.md", "imports.md",
	"receiving.md", "templates.md", "search.md", "explain.md", "tracking.md", "webhooks.md", "export.md",
	"testing-emails.md", "guides/first-email.md", "guides/dns-providers.md", "guides/smtp.md", "guides/webhooks.md",
	"guides/receiving.md", "guides/attachments.md", "guides/deliverability.md", "guides/scheduling.md",
	"guides/react-email.md", "guides/idempotency.md", "guides/templates.md", "guides/broadcasts.md",
	"guides/automations.md", "guides/privacy.md", "guides/agents.md"}

// prelude defines curl so that a failed request ends the script, and so that the id in the response of each request
// that creates an object is stored in the variable that the docs use for it. At the end, the script prints the
// variables.
const prelude = `set -eu
curl() {
	fail=--fail-with-body
	case " $* " in *" -f "*) fail=-f ;; esac
	answer=$(command curl -sS $fail "$@") || { printf '%s\n' "curl $*" "$answer" >&2; exit 1; }
	made=$(printf %s "$answer" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
	case "$1" in
	*/segments) SEGMENT_ID=$made ;;
	*/topics) TOPIC_ID=$made ;;
	*/emails) EMAIL_ID=$made ;;
	*/broadcasts) BROADCAST_ID=$made ;;
	*/webhooks) WEBHOOK_ID=$made ;;
	*/emails/receiving\?limit=1) RECEIVED_ID=$made ;;
	*/automations) AUTOMATION_ID=$made ;;
	*/runs\?limit=1) RUN_ID=$made ;;
	*/erase) ERASURE_ID=$made ;;
	*/domains) DOMAIN_ID=$(printf %s "$answer" | sed 's/^{"object":"domain","id":"\([^"]*\)".*/\1/') ;;
	esac
}
postrider() { :; }
trap 'set | grep -E "^(SEGMENT|TOPIC|BROADCAST|DOMAIN|EMAIL|WEBHOOK|RECEIVED|AUTOMATION|RUN|ERASURE)_ID="' EXIT
`

// The curl examples in the docs work with a node in development, one after another.
func TestDocExamples(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("the examples in the docs need curl: install it")
	}
	n, verified := docsNode(t)
	verified("acme.net")
	work := t.TempDir()
	people := "Email,First name,Plan\nann@example.org,Ann,pro\n"
	if err := os.WriteFile(filepath.Join(work, "people.csv"), []byte(people), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"URL": n.url, "KEY": devTestKey, "INBOUND": n.Port(node.PortInbound)}
	vars["SMTP_HOST"], vars["SMTP_PORT"], _ = strings.Cut(n.Port(node.PortSubmit), ":")
	run := func(name, block string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-c", prelude+block)
		c.Dir = work
		for _, key := range []string{"PATH", "HOME"} {
			c.Env = append(c.Env, key+"="+os.Getenv(key))
		}
		for key, value := range vars {
			c.Env = append(c.Env, key+"="+value)
		}
		out, err := c.Output()
		if err != nil {
			said := ""
			if e, ok := err.(*exec.ExitError); ok {
				said = string(e.Stderr)
			}
			t.Errorf("%s: %v\n%s\n%s%s", name, err, block, out, said)
		}
		for _, m := range regexp.MustCompile(`(?m)^(\w+)='?([^'\n]*)'?$`).FindAllStringSubmatch(string(out), -1) {
			vars[m[1]] = m[2]
		}
	}
	// has waits until the response to a GET request contains a text.
	has := func(path, text string) {
		t.Helper()
		eventually(t, path+" has "+text, func() bool {
			_, body := n.ask(devTestKey, "GET", path, "")
			return strings.Contains(body, text)
		})
	}
	// Before some examples, the object must be in the state that the text describes.
	before := map[string]func(){
		"broadcasts.md 2": func() { vars["BROADCAST_ID"] = waitingForItsDomain(n, verified, vars["SEGMENT_ID"]) },
		"guides/receiving.md 3": func() {
			has("/domains/"+vars["DOMAIN_ID"], `"status":"verified","created_at"`)
		},
		"guides/automations.md 7": func() {
			has("/automations/"+vars["AUTOMATION_ID"]+"/runs/"+vars["RUN_ID"], `"waiting":{"step":"order"`)
		},
		"guides/automations.md 8": func() {
			path := "/automations/" + vars["AUTOMATION_ID"] + "/runs/" + vars["RUN_ID"]
			has(path, `"id":"`+vars["RUN_ID"]+`","status":"completed"`)
			if _, body := n.ask(devTestKey, "GET", path, ""); strings.Contains(body, `"key":"remind"`) {
				t.Errorf("the run has sent the reminder: %s", body)
			}
		},
		"guides/privacy.md 6": func() { has("/contacts/erasures/"+vars["ERASURE_ID"], `"status":"completed"`) },
	}
	ran := 0
	for _, page := range docExamples {
		for i, block := range curlBlocks(t, page) {
			name := page + " " + string(rune('1'+i))
			if f := before[name]; f != nil {
				f()
			}
			run(name, block)
			ran++
		}
	}
	if ran < 13 {
		t.Errorf("only %d examples were run", ran)
	}
	eventually(t, "the contact is imported", func() bool {
		return n.count(`SELECT COUNT(*) FROM contacts WHERE address = 'ann@example.org'`) == 1
	})
	for _, page := range docPages(t) {
		if strings.HasPrefix(page, "operating/") {
			continue // make packages-test runs its commands on a whole machine
		}
		if len(curlBlocks(t, page)) > 0 && !slices.Contains(docExamples, page) {
			t.Errorf("the examples of %s are not run: list it in docExamples", page)
		}
	}
}

// docsNode starts a node like that of postrider dev, with the key devTestKey and the domain acme.example. The function
// verified adds another domain that may send.
func docsNode(t *testing.T) (n *started, verified func(name string)) {
	t.Helper()
	p := &installation{t: t, dir: filepath.Join(t.TempDir(), "data")}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir,
		"POSTRIDER_ROLES": "api,delivery,jobs,submission,receiving"}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	n = p.start(func(n *node.Node) {
		if err := n.ListenInboundDev("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	})
	if err := n.Teams.EnsureKey(t.Context(), "Development", "development", devTestKey); err != nil {
		t.Fatal(err)
	}
	by, err := n.Teams.Authenticate(t.Context(), devTestKey)
	if err != nil {
		t.Fatal(err)
	}
	verified = func(name string) {
		t.Helper()
		if _, err := n.Domains.AddVerified(t.Context(), by.TeamID, domains.NewDomain{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	verified("acme.example")
	return n, verified
}

// docPages returns the paths of all pages for users and operators, relative to docs.
func docPages(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "guides/*.md", "operating/*.md"} {
		all, err := fs.Glob(os.DirFS("../../docs"), pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, all...)
	}
	return pages
}

// curlBlocks returns the code blocks of a page of the docs that contain curl commands.
func curlBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(m[2], "curl ") {
			continue
		}
		if m[1] != "sh" {
			t.Errorf("%s: a block with curl is not marked as sh:\n%s", page, m[2])
		}
		before, _, _ := strings.Cut(string(text), m[0])
		if page != "README.md" && !strings.Contains(string(text), "(README.md#examples)") &&
			(!strings.Contains(before, "URL=") || !strings.Contains(before, "KEY=")) {
			t.Errorf("%s neither sets URL and KEY before its examples nor links to their definition", page)
		}
		blocks = append(blocks, m[2])
	}
	return blocks
}

// waitingForItsDomain sends a broadcast slowly, deletes its sender's domain, and returns the broadcast's id when the
// broadcast waits for the domain.
func waitingForItsDomain(n *started, verified func(name string), segmentID string) string {
	n.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		n.made(devTestKey, "/contacts", `{"email":"`+name+`@reader.example","segments":["`+segmentID+`"]}`)
	}
	verified("former.example")
	broadcastID := n.made(devTestKey, "/broadcasts", `{"from":"news@former.example","subject":"Hi","text":"t",
		"segment_id":"`+segmentID+`","pace":60,"send":true}`)
	var domainID string
	if err := n.look.QueryRow(n.t.Context(), `SELECT id FROM domains WHERE name = 'former.example'`).
		Scan((*db.ID)(&domainID)); err != nil {
		n.t.Fatal(err)
	}
	if status, body := n.ask(devTestKey, "DELETE", "/domains/"+domainID, ""); status != 200 {
		n.t.Fatalf("%d %s", status, body)
	}
	eventually(n.t, "the broadcast waits for its domain", func() bool {
		return n.count(`SELECT COUNT(*) FROM broadcasts WHERE id = $1 AND status = 'paused'`, db.ID(broadcastID)) == 1
	})
	return broadcastID
}
