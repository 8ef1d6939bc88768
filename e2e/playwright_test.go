package e2e

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// playwrightConfig is the configuration of the example in the docs, with the Chromium of this machine. The page assumes
// that a project has one. The timeouts are long, because a browser on a busy machine exceeds Playwright's thirty seconds.
const playwrightConfig = `export default {
	reporter: "line",
	timeout: 600_000,
	expect: {timeout: 300_000},
	use: {
		baseURL: process.env.SIGN_UP_URL,
		launchOptions: {executablePath: process.env.CHROMIUM, chromiumSandbox: false},
	},
};
`

var typeScript = regexp.MustCompile("(?s)```ts\n(.*?)```")

// TestPlaywrightExample runs the Playwright test in docs/testing-emails.md as it is printed there: a visitor signs up
// at a program that sends an email, and the test waits for the email and opens its link.
func TestPlaywrightExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/testing-emails.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := typeScript.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d examples in TypeScript, want the module outbox.ts and a test", len(blocks))
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"outbox.ts": blocks[0][1], "sign-up.spec.ts": blocks[1][1],
		"playwright.config.mjs": playwrightConfig, "package.json": `{"type":"module"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := filepath.Abs("../compat/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}

	n := start(t, nil, "--domain", "acme.example")
	app := httptest.NewServer(signUp{n})
	defer app.Close()
	c := exec.CommandContext(t.Context(), "node", filepath.Join(packages, "@playwright/test/cli.js"), "test")
	c.Dir = dir
	c.Env = append(os.Environ(), "SIGN_UP_URL="+app.URL, "CHROMIUM="+chromiumPath(t), "POSTRIDER_URL="+n.localhost())
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("playwright test, whose packages make deps installs: %v\n%s", err, out)
	}
}

// chromiumPath returns the path of the installed Chromium.
func chromiumPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Chromium is not installed (make deps installs it)")
	return ""
}

// signUp is a program with a form for new users, who confirm their address by the link in an email.
type signUp struct{ n *node }

var signUpPage = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><title>Acme</title>
{{if .}}<p>{{.}}</p>{{else}}<form method="post"><label>Email <input name="email" type="email"></label>
<button>Sign up</button></form>{{end}}`))

func (s signUp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	said := ""
	switch {
	case r.URL.Path == "/confirm" && r.URL.Query().Get("token") == "1":
		said = "Your address is confirmed"
	case r.URL.Path != "/sign-up":
		http.NotFound(w, r)
		return
	case r.Method == http.MethodPost:
		body, err := json.Marshal(map[string]string{"from": "Acme <hello@acme.example>", "to": r.FormValue("email"),
			"subject": "Confirm your address", "text": "Welcome to Acme: http://" + r.Host + "/confirm?token=1",
			"html": fmt.Sprintf(`<p>Welcome to Acme</p><a href="http://%s/confirm?token=1">Confirm</a>`, r.Host)})
		if err == nil {
			var status int
			if status, err = s.n.call(r.Context(), http.MethodPost, "/emails", string(body), nil); status != http.StatusOK {
				err = fmt.Errorf("the API answers with %d: %w", status, err)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		said = "We have sent you an email."
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	signUpPage.Execute(w, said)
}
