package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example command in docs/automations.md prints exactly the output that the page shows.
func TestSimulate(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/automations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(manual), "\n## Simulation\n")
	_, after, _ = strings.Cut(after, "```json\n")
	example, after, _ := strings.Cut(after, "```")
	_, after, _ = strings.Cut(after, "```\n")
	want, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatal("the page has no example and its output")
	}
	run := func(args ...string) (out, errOut string, code int) {
		var o, e bytes.Buffer
		code = Main(append([]string{"automations", "simulate"}, args...), nil, &o, &e)
		return o.String(), e.String(), code
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	both := write("both.json", example)
	out, errOut, code := run(both)
	if diff := cmp.Diff(want, out); diff != "" || errOut != "" || code != 0 {
		t.Errorf("%d %s (-want +got):\n%s", code, errOut, diff)
	}

	var parts struct{ Automation, Scenario json.RawMessage }
	if err := json.Unmarshal([]byte(example), &parts); err != nil {
		t.Fatal(err)
	}
	graph, scenario := write("graph.json", string(parts.Automation)), write("scenario.json", string(parts.Scenario))
	for _, args := range [][]string{{scenario, "--automation", graph}, {"--automation", graph, scenario}} {
		if got, errOut, code := run(args...); got != out || code != 0 {
			t.Errorf("from two files by %s: %d %s%s", args, code, got, errOut)
		}
	}
	var report struct {
		Status  string
		Entries []struct{ Step string }
		Emails  []struct{ To string }
	}
	out, errOut, code = run(both, "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Status != "completed" ||
		len(report.Entries) != 6 || len(report.Emails) != 2 || report.Emails[0].To != "ann@acme.example" {
		t.Errorf("as JSON: %d %v %s%s", code, err, out, errOut)
	}

	failing := write("failing.json", strings.Replace(example, `"scenario": {`,
		`"scenario": {"outcomes": {"welcome": {"fail": "template_not_found"}},`, 1))
	out, errOut, code = run(failing)
	if code != 1 || !strings.Contains(out, "failed at once (template_not_found): 0 emails, 0 webhook calls") ||
		!strings.Contains(errOut, "the run would fail (template_not_found)") {
		t.Errorf("a run that fails: %d %s%s", code, out, errOut)
	}
	for says, args := range map[string][]string{
		"FILE is missing":            {"--json"},
		"no such file":               {filepath.Join(dir, "nothing.json")},
		"is not JSON":                {write("text.json", "steps")},
		"the members automation and": {scenario},
		"Step `x`: Missing": {scenario, "--automation", write("bad.json",
			`{"steps":[{"key":"x"}],"connections":[]}`)},
		"`scenario.contact.email`": {write("nobody.json", `{"contact":{}}`), "--automation", graph},
		"for which there is no": {write("other.json", `{"contact":{"email":"a@b.example"},"event":{"name":"x"}}`),
			"--automation", graph},
		`unexpected argument "more"`:   {both, "more"},
		"unknown flag --api-key":       {both, "--api-key", "x"},
		"is larger than 1048576 bytes": {write("long.json", strings.Repeat(" ", 3<<20))},
	} {
		if out, errOut, code := run(args...); code == 0 || !strings.Contains(errOut, says) || out != "" {
			t.Errorf("%s: %d %s%s; want %q", args, code, out, errOut, says)
		}
	}
}
