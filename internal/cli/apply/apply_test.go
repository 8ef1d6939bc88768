package apply

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// The file in the docs has no problems.
func TestDocExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/apply.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```toml\n(.*?)^```$").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/apply.md has no example")
	}
	file := filepath.Join(t.TempDir(), "team.toml")
	html := filepath.Join(filepath.Dir(file), "order.html")
	for name, text := range map[string][]byte{file: m[1], html: []byte("<p>Thank you</p>")} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(s.declarations, func(d *declaration) bool { return d.kind == k }) {
			t.Errorf("docs/apply.md has no %s", k.title)
		}
	}
}

// A domain that is written in another way is the same domain.
func TestNormalNames(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "team.toml")
	text := "[domains.\"ACME.example.\"]\n[domains.\"acme.example\"]\n[domains.\"bücher.example\"]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	problems, _ := err.(Problems)
	if len(problems) != 1 || problems[0].Message != file+":1 has the same domain" {
		t.Errorf("the problems are %v", err)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	lines := linesOf("# [a.b]\n[a.\"b c\"] # x\nd = '''\n[e]\nf = 1\n'''\n\"g h\" = 2\n[[a.list]]\n  k.l = 3\n")
	for key, want := range map[string]int{`a."b c"`: 2, `a."b c".d`: 3, `e`: 0, `a."b c"."g h"`: 7, `a.list`: 8,
		`a.list.k.l`: 9} {
		if lines[key] != want {
			t.Errorf("%s is in line %d, want %d", key, lines[key], want)
		}
	}
}

// A template may contain a file of a folder, but not a device or a huge file.
func TestReadLimited(t *testing.T) {
	t.Parallel()
	if _, err := readLimited("/dev/zero"); err == nil {
		t.Error("a device is read")
	}
	file := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readLimited(file); err == nil {
		t.Error("a huge file is read")
	}
}

// A filter may name a topic with characters that JSON escapes, in a table and in a text.
func TestNamesInFilters(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`News & Offers`, `<b>`, `The "best"`, `Früh\jahr`, "a\u2028b"} {
		field, err := json.Marshal("contact.topics.${topics." + name + "}")
		if err != nil {
			t.Fatal(err)
		}
		for what, f := range map[string]any{
			"a table": map[string]any{"type": "rule", "field": "contact.topics.${topics." + name + "}", "operator": "eq",
				"value": "opt_in"},
			"a text": `{"type":"rule","field":` + string(field) + `,"operator":"eq","value":"opt_in"}`,
		} {
			s := segmentSpec{Filter: f}
			if _, problems := s.read("Readers", ""); len(problems) > 0 {
				t.Errorf("%s in %s: %v", name, what, problems)
			}
			if all := s.references(); len(all) != 1 || all[0].name != name {
				t.Errorf("%s in %s: the filter names %+v", name, what, all)
			}
			const topic = "01a1fc09-fddf-77dc-9c97-da9c1ee5b2ab"
			have := &team{entries: map[string][]entry{"topics": {{id: topic, name: name}}}, state: &teamState{},
				setup: &Setup{}}
			if in, err := s.filter(have); err != nil || in["field"] != "contact.topics."+topic {
				t.Errorf("%s in %s: the filter becomes %v, error %v", name, what, in, err)
			}
		}
	}
}
