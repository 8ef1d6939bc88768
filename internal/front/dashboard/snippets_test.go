package dashboard_test

import (
	"encoding/json"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

var exampleInPage = regexp.MustCompile(`(?s)<pre id="code-([\w-]+)"[^>]*>(.*?)</pre>`)

// examples returns the examples of a page by their id.
func examples(page string) map[string]string {
	all := map[string]string{}
	for _, m := range exampleInPage.FindAllStringSubmatch(page, -1) {
		all[m[1]] = html.UnescapeString(m[2])
	}
	return all
}

// TestExamplesOfAKey runs the examples that the page of a new key shows and that need no program except curl and Go. It
// compares the lines of the others that a client needs to find this installation.
func TestExamplesOfAKey(t *testing.T) {
	t.Parallel()
	b := newBoard(t, map[string]string{"data_dir": t.TempDir()})
	v := b.visitor(teams.Admin)
	_, page := v.post("/app/keys/new", url.Values{"name": {"invoices"}, "permission": {"sending_access"}})
	all := examples(page)
	program := filepath.Join(t.TempDir(), "main.go")
	b.must(os.WriteFile(program, []byte(all["go"]), 0o600))
	for _, c := range []struct{ name, arg, text string }{{"sh", "-c", all["curl"]}, {"go", "run", program}} {
		out, err := exec.CommandContext(t.Context(), c.name, c.arg, c.text).Output()
		if err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, c.text)
			continue
		}
		id := strings.TrimSpace(string(out))
		if c.name == "sh" {
			var sent struct{ ID string }
			b.must(json.Unmarshal(out, &sent))
			id = sent.ID
		}
		if e := b.api("GET", "/emails/"+id, ""); e["from"] != "hello@acme.example" || e["subject"] != "Hello" {
			t.Errorf("%s sent %v", c.name, e)
		}
	}
	for id, line := range map[string]string{
		"node":   "{baseUrl: '" + b.url + "'}",
		"python": `resend.api_url = "` + b.url + `"`,
		"php":    "putenv('RESEND_BASE_URL=" + b.url + "');",
		"ruby":   `ENV["RESEND_BASE_URL"] = "` + b.url + `/"` + "\nrequire",
	} {
		if !strings.Contains(all[id], line) {
			t.Errorf("the example for %s lacks %s:\n%s", id, line, all[id])
		}
	}
}

// The placeholder for a key has only characters that an HTTP header may have, whatever the key is called.
func TestPlaceholderOfAKey(t *testing.T) {
	t.Parallel()
	b := newBoard(t, map[string]string{"data_dir": t.TempDir()})
	v := b.visitor(teams.Admin)
	for name, want := range map[string]string{"Büro 'b' $x": "re_... (the key Bro b x)", "請求書": "re_your_key"} {
		v.post("/app/keys/new", url.Values{"name": {name}, "permission": {"sending_access"}})
		if text := examples(v.shows("/app/start", 200))["node"]; !strings.Contains(text, "new Resend('"+want+"',") {
			t.Errorf("the example for the key %s:\n%s", name, text)
		}
	}
}
