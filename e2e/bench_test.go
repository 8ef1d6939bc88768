package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
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

// TestBenchFilled fills a store, and then measures lists and sending on it. The settings of the store are given by
// flags, and must reach the measured node.
func TestBenchFilled(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, env []string) {
		flags := []string{"--data-dir", filepath.Join(t.TempDir(), "store"), "--partition-by", "day"}
		var url string
		if len(env) > 0 {
			url = strings.TrimPrefix(env[0], "POSTRIDER_DATABASE_URL=")
			flags = append(flags, "--database-url", url)
			dbtest.DropPartitions(t, dbtest.Open(t, url)) // which are of months
		}
		bench := func(args ...string) string {
			t.Helper()
			out, errOut, err := command(t, []string{"TMPDIR=" + t.TempDir(), "POSTRIDER_DATABASE_URL="},
				append(append([]string{"bench"}, args...), flags...)...)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, errOut)
			}
			return out
		}
		out := bench("--fill", "2000", "--days", "3", "--teams", "3", "--bytes", "100") + bench("--lists", "--days", "3",
			"--teams", "3", "--requests", "5") + bench("-n", "20", "--runs", "1", "--backlog", "0", "--bytes", "100")
		for _, line := range []string{`filled +\d+ /s`, `GET /emails, the newest +p50 .* p99 .* 15 requests`,
			`GET /emails after an email .* 15 requests`, `GET /emails before an email .* 15 requests`,
			`GET /emails/\{id\} .* 1\d requests`, `GET /emails/\{id\}/events .* 1\d requests`,
			`GET /logs after an entry .* 15 requests`, `GET /logs/\{id\} .* 1\d requests`, `end to end .* CPU`} {
			if !regexp.MustCompile(line).MatchString(out) {
				t.Errorf("nothing is like %q:\n%s", line, out)
			}
		}
		if url == "" {
			return
		}
		if !strings.Contains(out, "rows 5.00 inserted") {
			t.Errorf("the measured node used another store:\n%s", out)
		}
		var yesterday int
		if err := dbtest.Open(t, url).QueryRow(t.Context(), `SELECT COUNT(*) FROM emails_`+
			db.Now().AddDate(0, 0, -1).Format("20060102")).Scan(&yesterday); err != nil || yesterday < 600 {
			t.Errorf("the partition of yesterday has %d emails, %v", yesterday, err)
		}
	})
}
