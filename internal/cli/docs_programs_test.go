package cli

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node"
)

// programs says how a program in a guide runs: the name of its file, and the command that gets this file's path.
var programs = map[string]struct {
	file    string
	command []string
}{
	"js":     {"main.mjs", []string{"node"}},
	"go":     {"main.go", []string{"go", "run"}}, // in this module, which requires the official client
	"python": {"main.py", []string{"python3", "-B"}},
	"ruby":   {"main.rb", []string{"ruby"}},
	"php":    {"main.php", []string{"php"}},
}

// The programs in the guides run as they are in the guides, against a node in development. A program that other tests
// run or no test runs is recognized by the line before it, or by the port that it listens on.
func TestDocPrograms(t *testing.T) {
	t.Parallel()
	n, _ := docsNode(t)
	receiveQuestion(t, n)
	publishReceipt(t, n)
	ran := map[string]int{}
	for _, page := range docPages(t) {
		if !strings.HasPrefix(page, "guides/") {
			continue
		}
		for _, b := range programBlocks(t, page) {
			if strings.Contains(b.text, ".listen(") {
				continue
			}
			if variable := b.missingClient(); variable != "" {
				t.Logf("%s: a program in %s was checked for syntax and not run, because %s names no folder of its client",
					page, b.language, variable)
				continue
			}
			if out, err := b.prepare(t, n).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", page, err, b.text, out)
			}
			ran[b.language]++
		}
	}
	for language := range programs {
		if ran[language] == 0 {
			t.Errorf("no program in %s was run", language)
		}
	}
	_, list := n.ask(devTestKey, "GET", "/emails?limit=100", "")
	if !strings.Contains(list, `"subject":"Re: My order"`) {
		t.Errorf("the program that replies has sent no reply: %s", list)
	}
	for _, framework := range []string{"Nodemailer", "Go", "Python", "Django", "Rails", "PHP"} {
		if !strings.Contains(list, `"subject":"Sent with `+framework+`"`) {
			t.Errorf("the program for %s has sent no email: %s", framework, list)
		}
	}
}

// receiveQuestion lets the node receive the email that the guide about receiving answers.
func receiveQuestion(t *testing.T, n *started) {
	t.Helper()
	id := n.made(devTestKey, "/domains", `{"name":"help.acme.example","capabilities":{"receiving":"enabled"}}`)
	if status, body := n.ask(devTestKey, "POST", "/domains/"+id+"/verify", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	eventually(t, "the domain receives mail", func() bool {
		_, body := n.ask(devTestKey, "GET", "/domains/"+id, "")
		return strings.Contains(body, `"status":"verified","created_at"`)
	})
	const message = "From: Ann <ann@example.org>\r\nTo: support@help.acme.example\r\nSubject: My order\r\n" +
		"Message-ID: <order-1@example.org>\r\n\r\nWhere is my order?\r\n"
	c := exec.CommandContext(t.Context(), "curl", "-sS", "smtp://"+n.Port(node.PortInbound),
		"--mail-from", "ann@example.org", "--mail-rcpt", "support@help.acme.example", "--upload-file", "-")
	c.Stdin = strings.NewReader(message)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// publishReceipt publishes the template that the guide about templates sends, as the guide creates it.
func publishReceipt(t *testing.T, n *started) {
	t.Helper()
	create := curlBlocks(t, "guides/templates.md")[0]
	_, body, found := strings.Cut(create, " -d '")
	body, _, ended := strings.Cut(body, "'\n")
	if !found || !ended {
		t.Fatalf("the guide creates no template: %s", create)
	}
	n.made(devTestKey, "/templates", body)
	if status, answer := n.ask(devTestKey, "POST", "/templates/receipt/publish", ""); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
}

// The program that takes webhooks, in the guide about them, accepts the events of a node, and refuses others.
func TestDocProgramForWebhooks(t *testing.T) {
	t.Parallel()
	n, _ := docsNode(t)
	blocks := programBlocks(t, "guides/webhooks.md")
	if len(blocks) != 1 {
		t.Fatalf("the guide has %d programs, want one", len(blocks))
	}
	// The program needs the secret when it starts, and says only then where it listens.
	_, body := n.ask(devTestKey, "POST", "/webhooks",
		`{"endpoint":"http://127.0.0.1:1/","events":["email.sent","email.bounced"]}`)
	var webhook struct {
		ID     string `json:"id"`
		Secret string `json:"signing_secret"`
	}
	if err := json.Unmarshal([]byte(body), &webhook); err != nil || webhook.Secret == "" {
		t.Fatalf("%v in %s", err, body)
	}
	c := blocks[0].prepare(t, n)
	c.Env = append(c.Env, "PORT=0", "SECRET="+webhook.Secret)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	lines := bufio.NewScanner(out)
	next := func() string {
		if !lines.Scan() {
			t.Fatalf("the program ended: %v", lines.Err())
		}
		return lines.Text()
	}
	port, ok := strings.CutPrefix(next(), "listening on port ")
	if !ok {
		t.Fatalf("the program does not say its port: %s", lines.Text())
	}
	url := "http://127.0.0.1:" + port + "/"

	post := func(signed string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(`{"type":"email.sent","data":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("webhook-id", "msg_1")
		r.Header.Set("webhook-timestamp", strconv.FormatInt(time.Now().Unix(), 10))
		r.Header.Set("webhook-signature", signed)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if status := post("v1,d3Jvbmc="); status != http.StatusUnauthorized {
		t.Errorf("an event with a wrong signature is answered with %d", status)
	}

	if status, body := n.ask(devTestKey, "PATCH", "/webhooks/"+webhook.ID, `{"endpoint":"`+url+`"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	id := n.made(devTestKey, "/emails", `{"from":"hello@acme.example","to":"bounced@resend.dev","subject":"s","text":"t"}`)
	for _, want := range []string{"email.sent " + id, "email.bounced " + id} {
		if got := next(); got != want {
			t.Errorf("the program says %q, want %q", got, want)
		}
	}
}

// programBlock is a program in a page.
type programBlock struct{ language, text string }

// prepare writes the program into a folder and returns the command that runs it with the variables of the guides.
func (b programBlock) prepare(t *testing.T, n *started) *exec.Cmd {
	t.Helper()
	packages, err := filepath.Abs("../../compat/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(packages, "resend")); err != nil {
		t.Fatalf("the official clients are not installed; make deps installs them: %v", err)
	}
	how := programs[b.language]
	dir := t.TempDir()
	file := filepath.Join(dir, how.file)
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), how.command[0], append(slices.Clone(how.command[1:]), file)...)
	further := b.addLibraries(t, c, dir)
	host, port, _ := strings.Cut(n.Port(node.PortSubmit), ":")
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "POSTRIDER_") }),
		"URL="+n.url, "KEY="+devTestKey, "SMTP_HOST="+host, "SMTP_PORT="+port)
	c.Env = append(c.Env, further...)
	return c
}

// programBlocks returns the programs in a page that the tests run.
func programBlocks(t *testing.T, page string) (blocks []programBlock) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^([^\n]*)\n\n```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if _, ok := programs[m[2]]; ok && !strings.Contains(m[1], "not run by our tests") {
			blocks = append(blocks, programBlock{m[2], m[3]})
		}
	}
	return blocks
}
