package e2e

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/front/dashboard"
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

// firstViewMax is the maximum number of KB that a browser loads for the first view of a page, compressed.
const firstViewMax = 120

// TestBenchPages measures the pages of the dashboard on a filled store. Each page of the table is opened. The HTML, the
// style sheet, the scripts and the icons of each page are within the budget of a first view, with full lists.
func TestBenchPages(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, env []string) {
		store := filepath.Join(t.TempDir(), "store")
		bench := func(args ...string) string {
			t.Helper()
			out, errOut, err := command(t, append(env, "TMPDIR="+t.TempDir()),
				append([]string{"bench", "--data-dir", store, "--days", "3", "--teams", "3"}, args...)...)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, errOut)
			}
			return out
		}
		if out := bench("--fill", "1000", "--contacts", "200", "--bytes", "100"); !regexp.MustCompile(
			`contacts +\d+ /s +200\n`).MatchString(out) {
			t.Errorf("it printed %s", out)
		}
		out := bench("--pages", "--requests", "1")
		again := bench("--pages", "--requests", "1", "--teams", "1") // on a store that has the samples
		if !strings.Contains(again, "all ") {
			t.Errorf("it printed %s", again)
		}
		views := 0
		for _, r := range dashboard.Routes() {
			method, path, _ := strings.Cut(r.Pattern, " ")
			if method != http.MethodGet || r.Stream || path == "/app/domains/{id}/reports/{report}/file" {
				continue // the benchmark has no received report
			}
			row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(path) + ` .* ms +[0-9.]+ KB +(-|([0-9.]+) KB) +3$`).
				FindStringSubmatch(out)
			if row == nil {
				t.Errorf("no row for %s:\n%s", path, out)
				continue
			}
			if row[2] == "" {
				continue
			}
			views++
			kb, err := strconv.ParseFloat(row[2], 64)
			if err != nil || kb < 20 || kb > firstViewMax {
				t.Errorf("the first view of %s has %s KB, %v", path, row[2], err)
			}
		}
		if views < 30 {
			t.Errorf("%d pages have a first view:\n%s", views, out)
		}
	})
}
