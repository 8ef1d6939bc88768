package dashboard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Links of pages to the documentation lead to pages and sections that exist.
func TestDocumentationLinks(t *testing.T) {
	t.Parallel()
	v := newBoard(t, map[string]string{"data_dir": t.TempDir()}).visitor(teams.Viewer)
	files, err := filepath.Glob("pages/*.html")
	v.must(err)
	pages := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		v.must(err)
		for _, m := range regexp.MustCompile(`"(/docs/[^"#]*)#?([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			if pages[m[1]] == "" {
				pages[m[1]] = v.shows(m[1], 200, `href="/app/emails"`, "Skip to content")
			}
			if m[2] != "" && !strings.Contains(pages[m[1]], ` id="`+m[2]+`"`) {
				t.Errorf("%s has a link to the section %s of %s, which does not exist", file, m[2], m[1])
			}
		}
	}
	if len(pages) == 0 {
		t.Error("no page has such a link")
	}
	v.shows("/docs/webhooks", 200, "URL="+v.url, "KEY=re_...", `<a href="/app/keys/new">Create an API key</a>`)
}
