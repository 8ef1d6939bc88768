package dashboard_test

import (
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Links to sections of the API's documentation lead to sections that exist.
func TestDocumentationLinks(t *testing.T) {
	t.Parallel()
	v := newBoard(t, map[string]string{"data_dir": t.TempDir()}).visitor(teams.Viewer)
	documentation := v.shows("/docs", 200, `href="/app/emails"`, "Skip to content")
	files, err := filepath.Glob("pages/*.html")
	v.must(err)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		v.must(err)
		for _, m := range regexp.MustCompile(`"/docs#([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			if found++; !strings.Contains(documentation, ` id="`+m[1]+`"`) {
				t.Errorf("%s has a link to the section %s, which does not exist", file, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no page has such a link")
	}
}

// The API reference lists every operation, for members and for guests, and loads nothing from elsewhere.
func TestAPIReference(t *testing.T) {
	t.Parallel()
	b := newBoard(t, map[string]string{"data_dir": t.TempDir()})
	guest := &visitor{board: b, c: http.DefaultClient}
	page := guest.shows("/docs", 200, "Skip to content", "/sign-in?next=")
	if foreign := regexp.MustCompile(`(?:src|href)="[^"/#]`).FindString(page); foreign != "" {
		t.Errorf("the page loads something from elsewhere: %s", foreign)
	}
	for _, other := range []string{"/app/emails", "/dev/outbox"} {
		if strings.Contains(page, other) {
			t.Errorf("a guest gets a link to %s", other)
		}
	}
	for _, text := range []string{"integer, 1 to 100, default 20", "csv or ndjson, default csv",
		"string, at most 500 bytes",
		"UUID", "required, sent, delivered, "} {
		if !strings.Contains(page, text) {
			t.Errorf("no parameter has the type %q", text)
		}
	}
	listed := 0
	for path, operations := range b.api("GET", "/openapi.json", "")["paths"].(map[string]any) {
		for method, o := range operations.(map[string]any) {
			o := o.(map[string]any)
			summary := html.EscapeString(o["summary"].(string))
			if o["tags"] == nil {
				continue
			}
			if listed++; !strings.Contains(page, summary) {
				t.Errorf("the page lacks %s %s", method, path)
			}
			parameters, _ := o["parameters"].([]any)
			for _, p := range parameters {
				p := p.(map[string]any)
				if text, _ := p["description"].(string); p["in"] == "query" && !strings.Contains(page, html.EscapeString(text)) {
					t.Errorf("the page does not describe the parameter %s of %s %s", p["name"], method, path)
				}
			}
		}
	}
	if listed < 100 {
		t.Errorf("only %d operations", listed)
	}
}
