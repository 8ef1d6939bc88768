package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node"
)

// snippet is a part of a program in a document that is not a guide, with what a whole program has around it.
type snippet struct {
	before, after string
	prints        string // a pattern of the output, in which anyUUID stands for the ID of an email
}

// anyUUID is the pattern of an ID.
const anyUUID = `[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`

// snippets has the parts of programs by the page, the language, and the number in the page. In Go, each is a function
// of one program.
var snippets = map[string]snippet{
	"../README.md js 1": {before: `import { Resend } from "resend";
const sent = [];
const call = globalThis.fetch;
globalThis.fetch = async (...of) => {
  const response = await call(...of);
  sent.push(await response.clone().json());
  return response;
};
`, after: "console.log(sent[0].id);\n", prints: anyUUID},
	"../README.md go 1": {before: "func readme1() {\n", after: `if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sent.Id)
}
`, prints: anyUUID},
	"submission.md js 1": {before: `import nodemailer from "nodemailer";
`, after: `
const sent = await mail.sendMail({ from: "hello@acme.example", to: "ann@example.org", subject: "s", text: "t" });
console.log(sent.response.split(" ").at(-1));
`, prints: anyUUID},
	"webhooks.md js 1": {before: webhookProgram, after: "console.log(event.type);\nprocess.exit();\n",
		prints: "email.sent"},
	"forwarding.md js 1": {before: webhookProgram + "process.env.SIGNING_SECRET = secret;\n", after: "process.exit();\n",
		prints: "email.sent hello@acme.example"},
	"go-client.md go 1": {prints: anyUUID},
	"go-client.md go 2": {before: "func goClient2() { call(func(ctx context.Context, c *client.Client) error {\n",
		after: "return nil\n})}\n", prints: "acme.example verified"},
	"go-client.md go 3": {before: `func goClient3() { call(func(ctx context.Context, c *client.Client) error {
	_, err := c.Domains.Get(ctx, "019a4c1e-0000-7000-8000-000000000000")
`, after: "return nil\n})}\n", prints: "404 not_found "},
}

// webhookProgram receives an event of a node before the part of a program that verifies it.
const webhookProgram = `import { createServer } from "node:http";

const post = async (path, body) => {
  const headers = { Authorization: "Bearer " + process.env.KEY, "Content-Type": "application/json" };
  return (await fetch(process.env.URL + path, { method: "POST", headers, body: JSON.stringify(body) })).json();
};
const server = createServer();
const arrived = new Promise((done) => server.on("request", async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  response.end();
  done([request, body]);
}));
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const webhook = await post("/webhooks",
  { endpoint: "http://127.0.0.1:" + server.address().port + "/", events: ["email.sent"] });
const secret = webhook.signing_secret;
await post("/emails", { from: "hello@acme.example", to: "delivered@resend.dev", subject: "s", text: "t" });
const [request, rawBody] = await arrived;
`

// goSnippets is the program around the parts in Go.
const goSnippets = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/resend/resend-go/v3"

	"github.com/postrider/postrider/client"
)

func call(f func(ctx context.Context, c *client.Client) error) {
	c, err := client.New(os.Getenv("URL"), os.Getenv("KEY"))
	if err == nil {
		err = f(context.Background(), c)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	readme1()
	goClient1()
	goClient2()
	goClient3()
}

`

// The parts of programs in the documents that are not guides do what the documents say, against a node in development.
// The module for tests in testing-emails.md has tests of its own.
func TestDocSnippets(t *testing.T) {
	t.Parallel()
	n, _ := docsNode(t)
	_, smtpPort, _ := strings.Cut(n.Port(node.PortSubmit), ":")
	values := strings.NewReplacer("re_...", devTestKey, "http://localhost:3000", n.url, "http://127.0.0.1:3000", n.url,
		"mail.example.com", "127.0.0.1", "587", smtpPort)
	blocks := snippetBlocks(t)
	program, printed := goSnippets, ""
	for _, name := range []string{"../README.md go 1", "go-client.md go 1", "go-client.md go 2", "go-client.md go 3"} {
		text := blocks[name]
		if whole := regexp.MustCompile(`(?s)^package main.*\nfunc main\(\)`); whole.MatchString(text) {
			text = whole.ReplaceAllString(text, "func goClient1()")
		}
		program += snippets[name].before + values.Replace(text) + snippets[name].after + "\n"
		printed += snippets[name].prints + "\n"
	}
	n.runSnippet("the programs in Go", programBlock{"go", program}, printed)
	for name, s := range snippets {
		if blocks[name] == "" {
			t.Errorf("there is no %s any more", name)
		}
		if strings.Contains(name, " js ") {
			n.runSnippet(name, programBlock{"js", s.before + values.Replace(blocks[name]) + s.after}, s.prints+"\n")
		}
	}
	for name, text := range blocks {
		if _, listed := snippets[name]; !listed {
			t.Errorf("%s is not run: list it in snippets\n%s", name, text)
		}
	}
}

// snippetBlocks returns the programs in the documents that are not guides, by the page, the language, and the number in
// the page.
func snippetBlocks(t *testing.T) map[string]string {
	t.Helper()
	blocks := map[string]string{}
	for _, page := range append(docPages(t), "../README.md") {
		if strings.HasPrefix(page, "guides/") || page == "testing-emails.md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^```(js|ts|go|python|ruby|php)\n(.*?)^```$").
			FindAllStringSubmatch(string(text), -1) {
			for i := 1; ; i++ {
				name := page + " " + m[1] + " " + strconv.Itoa(i)
				if blocks[name] == "" {
					blocks[name] = m[2]
					break
				}
			}
		}
	}
	return blocks
}

// runSnippet runs a program and compares its output with a pattern. IDs in the output must be those of emails.
func (n *started) runSnippet(name string, b programBlock, pattern string) {
	n.t.Helper()
	c := b.prepare(n.t, n)
	c.Env = append(c.Env, "POSTRIDER_API_KEY="+devTestKey, "NODE_TLS_REJECT_UNAUTHORIZED=0", "NODE_NO_WARNINGS=1")
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil || !regexp.MustCompile("^"+pattern+"$").Match(out) {
		n.t.Errorf("%s: %v; it printed\n%s\nwant\n%s\n%s\n%s", name, err, out, pattern, &errs, b.text)
	}
	for _, id := range regexp.MustCompile(anyUUID).FindAllString(string(out), -1) {
		if status, body := n.ask(devTestKey, "GET", "/emails/"+id, ""); status != 200 {
			n.t.Errorf("%s printed the ID %s, which no email has: %d %s", name, id, status, body)
		}
	}
}

var shownOutput = regexp.MustCompile("(?ms)^```sh\n([^`]*?curl [^`]*?)^```\n\n(?:[^\n`]*:\n\n)?```json\n(.*?)^```$")

// Where the documents show the response of a curl command, the command has this response. "..." stands for any text.
func TestDocOutputs(t *testing.T) {
	t.Parallel()
	n, _ := docsNode(t)
	found := 0
	check := func(page, command, shown string) {
		t.Helper()
		found++
		command = strings.NewReplacer("re_...", devTestKey, "http://localhost:3000", n.url).Replace(command)
		c := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(command, "curl ", "curl -sS --fail-with-body "))
		c.Env = append(os.Environ(), "URL="+n.url, "KEY="+devTestKey)
		out, err := c.CombinedOutput()
		spaces := regexp.MustCompile(`\s+`)
		pattern := regexp.QuoteMeta(spaces.ReplaceAllString(shown, ""))
		pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
		pattern = regexp.MustCompile(anyUUID).ReplaceAllString(pattern, anyUUID)
		if got := spaces.ReplaceAllString(string(out), ""); err != nil || !regexp.MustCompile("(?s)^"+pattern+"$").
			MatchString(got) {
			t.Errorf("%s: %v\n%s\nprints\n%s\nthe page shows\n%s", page, err, command, out, shown)
		}
	}
	for _, page := range docPages(t) {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shownOutput.FindAllStringSubmatch(string(text), -1) {
			check(page, m[1], m[2])
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile("(?s)```\n(curl http://localhost:3000/emails .*?)\n(\\{\"id\":[^\n]*\n)```").
		FindStringSubmatch(string(readme))
	if start == nil {
		t.Fatal("README.md does not show how to send an email")
	}
	check("README.md", start[1], start[2])
	if found < 3 {
		t.Errorf("only %d responses were compared", found)
	}
}
