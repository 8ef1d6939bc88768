package postrider

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// refusedExample matches a JSON field with a recipient at example.com or test.com. The API refuses such recipients.
var refusedExample = regexp.MustCompile(`\\?"(to|cc|bcc|email)\\?": ?\[?\\?"[^"]*@(example|test)\.com`)

// TestExamplesCanBeSent checks that no example in the documents, pages and hints sends to a domain that the API refuses
// as a recipient.
func TestExamplesCanBeSent(t *testing.T) {
	t.Parallel()
	read := 0
	check := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		read++
		for i, line := range strings.Split(string(text), "\n") {
			if found := refusedExample.FindString(line); found != "" {
				t.Errorf("%s:%d has the recipient %s; use example.org, or delivered@resend.dev", path, i+1, found)
			}
		}
	}
	check("README.md")
	for _, folder := range []string{"docs", "internal", "compat"} {
		err := filepath.WalkDir(folder, func(path string, f os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case f.IsDir() && (f.Name() == "testdata" || f.Name() == "node_modules"):
				return filepath.SkipDir
			case strings.HasSuffix(path, ".md"), strings.HasSuffix(path, ".html"),
				strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				check(path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}
