package dashboard_test

import (
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
	documentation := v.shows("/docs", 200, `href="/app/emails"`)
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
