package docsite_test

import (
	"encoding/json"
	"html"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/cli"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
)

const publicURL = "https://mail.acme.example"

// newNode returns the handler of a node that serves the documentation with all its pages.
func newNode(t *testing.T) http.Handler {
	t.Helper()
	c, err := config.Load(config.Source{Environ: func() []string { return nil }, Defaults: map[string]string{
		"data_dir": t.TempDir(), "public_url": publicURL, "http_listen": "127.0.0.1:0", "roles": "api",
		"transport": "capture", "hostname": "mail.acme.example", "log_level": "error"}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), c, slog.New(slog.DiscardHandler),
		node.Options{Version: "dev", Commands: cli.Reference()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.Handler()
}

// Every link in the documentation of a node works, in the reference of the API and the commands, too. Old addresses of
// operations, which only the browser sees, have a place in the index of the search.
func TestNode(t *testing.T) {
	t.Parallel()
	h := newNode(t)
	get := func(path string) (string, bool) {
		w := get(t, h, path, "Accept", "text/html")
		return w.Body.String(), w.Code == 200
	}
	if n := checkLinks(t, "/docs", get); n < 150 {
		t.Errorf("only %d pages and files were found", n)
	}
	page, _ := get("/docs/cli/teams")
	for _, want := range []string{`<h2 id="postrider-teams-create">`, "postrider teams create NAME",
		"<code>--json</code>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of a command lacks %s", want)
		}
	}
	for _, name := range []string{"/docs", "/docs/api", "/llms.txt", "/docs/search.json"} {
		if w := request(t, h, http.MethodPost, name); w.Code == 200 {
			t.Errorf("POST %s has an effect", name)
		}
	}
}

// The API reference describes every operation and loads nothing from elsewhere.
func TestAPIReference(t *testing.T) {
	t.Parallel()
	h := newNode(t)
	list := get(t, h, "/docs/api").Body.String()
	page, groups := list, map[string]bool{}
	for _, m := range regexp.MustCompile(`href="(/docs/api/[^"#]+)#`).FindAllStringSubmatch(list, -1) {
		if !groups[m[1]] {
			groups[m[1]] = true
			page += get(t, h, m[1]).Body.String()
		}
	}
	for _, foreign := range regexp.MustCompile(`(?:src|rel="stylesheet" href)="[^"/]`).FindAllString(page, -1) {
		t.Errorf("the page loads something from elsewhere: %s", foreign)
	}
	for _, text := range []string{"integer, 1 to 100, default 20", "csv or ndjson, default csv",
		"string, at most 500 bytes", "UUID", "required, one of sent, delivered, "} {
		if !strings.Contains(page, text) {
			t.Errorf("no parameter has the type %q", text)
		}
	}
	var document struct {
		Paths map[string]map[string]struct {
			ID         string   `json:"operationId"`
			Summary    string   `json:"summary"`
			Tags       []string `json:"tags"`
			Parameters []struct{ Name, In, Description string }
		}
	}
	if err := json.Unmarshal(get(t, h, "/openapi.json").Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	index := get(t, h, "/docs/search.json").Body.String()
	listed := 0
	for path, operations := range document.Paths {
		for method, o := range operations {
			if o.Tags == nil {
				continue
			}
			if listed++; !strings.Contains(html.UnescapeString(list), o.Summary) {
				t.Errorf("the list of operations lacks %s %s", method, path)
			}
			if !strings.Contains(page, ` id="`+o.ID+`"`) {
				t.Errorf("no page describes %s %s", method, path)
			}
			if !strings.Contains(index, `"a":"`+o.ID+`"`) {
				t.Errorf("the index of the search lacks the place of %s", o.ID)
			}
			for _, p := range o.Parameters {
				if p.In == "query" && !strings.Contains(page, html.EscapeString(p.Description)) {
					t.Errorf("the page does not describe the parameter %s of %s %s", p.Name, method, path)
				}
			}
		}
	}
	if listed < 100 {
		t.Errorf("only %d operations", listed)
	}
}
