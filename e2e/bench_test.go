package e2e

import (
	"regexp"
	"testing"
)

// TestBenchAudience runs the contacts and broadcasts benchmark with a small number of contacts. The benchmark fails if
// a count is wrong.
func TestBenchAudience(t *testing.T) {
	t.Parallel()
	onEachEngine(t, benchAudience)
}

func benchAudience(t *testing.T, env []string) {
	out, errOut, err := command(t, append(env, "TMPDIR="+t.TempDir()), "bench", "--audience", "200")
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	for _, line := range []string{
		`import of new contacts +\d+ /s`, `the same file, upsert +\d+ /s`, `the same file, skip +\d+ /s`,
		`GET /segments/\{id\}/contacts\?limit=100 +\d`, `count: all contacts .* until 200 were`,
		`count: AND, one in 10,000 .* until 1 were`, `count: OR, one in 10 .* until 29 were`,
		`count: AND, nine in 10 .* until 171 were`, `POST /broadcasts/\{id\}/audience +\d`, `single emails alone .* p99`,
		`broadcast, delivery held .* the first after`, `disk a recipient +[1-9]\d+ bytes .* emails \d+`,
		`broadcast, with delivery .* the first after`, `single emails beside it .* p99`} {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("nothing is like %q:\n%s", line, out)
		}
	}
}
