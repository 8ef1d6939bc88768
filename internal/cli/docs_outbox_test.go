package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The programs in the page about testing emails run as they are in the page.
func TestDocExamplesOfTheOutbox(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/testing-emails.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		t.Helper()
		m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no example in %s", language)
		}
		return string(m[1])
	}
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	run := func(dir, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "POSTRIDER_URL="+n.url, "KEY="+key, "GOFLAGS=", "GOWORK=off")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	folder := func(files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const email = `{"from":"Acme <hello@resend.dev>","to":"%s","subject":"Confirm your address",` +
		`"html":"Welcome. <a href=\"https://acme.example/confirm?token=1\">Confirm</a>"}`

	run(folder(map[string]string{"go.mod": "module acme.example\n\ngo 1.25\n", "outbox_test.go": block("go"),
		"signup_test.go": `package acme_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

func signUp(t *testing.T, address string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", os.Getenv("POSTRIDER_URL")+"/emails",
		strings.NewReader(strings.Replace(` + "`" + email + "`" + `, "%s", address, 1)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	response.Body.Close()
}
`}), "go", "test", "-count=1", ".")

	// The module for Playwright has no types, so that Node can run it as JavaScript.
	out := run(folder(map[string]string{"outbox.mjs": block("ts"), "main.mjs": `import { waitForEmail } from './outbox.mjs';
const to = 'ann-1@example.org', since = new Date();
const sent = await fetch(process.env.POSTRIDER_URL + '/emails', { method: 'POST',
  headers: { Authorization: 'Bearer ' + process.env.KEY },
  body: ` + fmt.Sprintf("JSON.stringify("+email+")", "ann-1@example.org") + ` });
if (!sent.ok) throw new Error(await sent.text());
const email = await waitForEmail({ to, subject: 'Confirm', since });
console.log(email.text, email.links.find((link) => link.text === 'Confirm').url);
try {
  await waitForEmail({ to, subject: 'Reset', since, timeout: '0s' });
} catch (e) {
  console.log(e.message);
}
`}), "node", "main.mjs")
	for _, want := range []string{"Welcome.", "https://acme.example/confirm?token=1\n", "No email with to=ann-1@example.org",
		`"subject":"Confirm your address"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %s:\n%s", want, out)
		}
	}
}
