package wire

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page about errors has a section, a line in the table and an example for each name and status that the API can
// answer, and no others.
func TestErrorsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	want, names := map[ReferenceError]bool{}, map[string]bool{}
	for _, e := range append(AllErrors(), writtenErrors(t)...) {
		want[e], names[e.Name] = true, true
	}

	shown := map[ReferenceError]bool{}
	for _, m := range regexp.MustCompile("(?ms)^```json\n(.*?)\n```$").FindAllStringSubmatch(string(page), -1) {
		var e ErrorBody
		if err := json.Unmarshal([]byte(m[1]), &e); err != nil {
			t.Fatalf("%v in %s", err, m[1])
		}
		x := ReferenceError{Status: e.StatusCode, Name: e.Name}
		if shown[x] = true; !want[x] || e.Message == "" {
			t.Errorf("the page has an example of %+v, which the API does not answer", x)
		}
	}
	for x := range want {
		if !shown[x] {
			t.Errorf("the page has no example of %+v", x)
		}
	}
	for _, list := range []string{`(?m)^## ([a-z]+_[a-z_]+)$`, "(?m)^\\| \\[`([a-z_]+)`\\]"} {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(list).FindAllStringSubmatch(string(page), -1) {
			if found[m[1]] = true; !names[m[1]] {
				t.Errorf("the page describes %s, which is no name of an error", m[1])
			}
		}
		for name := range names {
			if !found[name] {
				t.Errorf("the page lacks %s in %s", name, list)
			}
		}
	}
}

// writtenErrors returns the errors whose status and name are in a call of writeStatus instead of the table of errors.
func writtenErrors(t *testing.T) (all []ReferenceError) {
	t.Helper()
	statuses := map[string]int{"http.StatusMethodNotAllowed": 405}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`writeStatus\(w, ([\w.]+), "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			if statuses[m[1]] == 0 {
				t.Errorf("%s answers with %s, which this test does not know", file, m[1])
			}
			all = append(all, ReferenceError{Status: statuses[m[1]], Name: m[2]})
		}
	}
	if len(all) == 0 {
		t.Error("no call of writeStatus was found")
	}
	return all
}
