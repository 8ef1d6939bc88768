package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// emptyDays makes a partition of each of the given tables for each of the last days for which there is none.
func emptyDays(t *testing.T, d *db.DB, days int, tables ...string) {
	t.Helper()
	today := d.Now().Truncate(24 * time.Hour)
	const together = 2 // in a transaction, because each round trip has a time limit, even on a busy machine
	for first := 1; first <= days; first += together {
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			for i := first; i < first+together; i++ {
				for _, table := range tables {
					from := today.AddDate(0, 0, -i)
					tx.Queue(t.Context(), fmt.Sprintf(`CREATE TABLE %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM ('%[3]s') TO
						('%[4]s')`, table, from.Format("20060102"), id.First(from), id.First(from.AddDate(0, 0, 1))))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// lockedBy returns how many tables and indexes PostgreSQL locks to plan a statement, and the plan.
func lockedBy(t *testing.T, d *db.DB, s db.Statement) (locks int, plan string) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		rows, err := tx.Query(t.Context(), `EXPLAIN `+s.SQL, s.Args...)
		lines, err := db.Collect(rows, err, func(r db.Row) (line string, err error) { err = r.Scan(&line); return line, err })
		if err != nil {
			return fmt.Errorf("explain %s: %w", s.SQL, err)
		}
		plan = strings.Join(lines, "\n")
		return tx.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_locks WHERE pid = pg_backend_pid()
			AND locktype = 'relation'`).Scan(&locks)
	})
	if err != nil {
		t.Fatal(err)
	}
	return locks, plan
}

// manyDays returns how many daily partitions TestManyPartitions makes.
func manyDays(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("POSTRIDER_TEST_DAYS"), "240")
	days, err := strconv.Atoi(text)
	if err != nil || days < 240 {
		t.Fatalf("POSTRIDER_TEST_DAYS is %q. Set it to 240 or more.", text)
	}
	return days
}

// With many partitions, claims, deliveries, single emails and log entries, and lists of teams that have many of them near
// the cursor use only a few partitions. A list of a team with few emails may use all of them, and is complete. The limit
// of locks is far below the number of days, so that more days show nothing else: POSTRIDER_TEST_DAYS=1000 tries them.
func TestManyPartitions(t *testing.T) {
	t.Parallel()
	days := manyDays(t)
	p := &installation{t: t, dir: t.TempDir()}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir, "POSTRIDER_PARTITION_BY": "day",
		"POSTRIDER_DATABASE_URL": dbtest.EmptyPostgresURL(t)}
	trace := &dbtest.Trace{}
	p.options.Trace = trace.Record
	p.vars["POSTRIDER_SECRET_KEY"] = testSecretKey
	p.must("migrate")
	key, few := p.key("Acme"), p.key("Few")
	n := p.start()
	beside := dbtest.Open(t, node.DatabaseURL(n.Config))
	n.look = beside.Reader
	emptyDays(t, beside, days, "emails", "email_events", "request_logs")
	delivered := func(want int) {
		t.Helper()
		eventually(t, "all are delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM email_events WHERE type = 5 /* delivered */`) == want
		})
	}
	var now, old []string
	for i := range 2 {
		if status, text := n.ask(key, http.MethodPost, "/emails/batch",
			`[`+strings.Repeat(hello+`,`, 24)+hello+`]`); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		delivered(25 * (i + 1))
		if now = readFilled(n, key, "/emails?"); i == 0 {
			for _, emailID := range now {
				old = append(old, n.old(emailID, days*2/3))
			}
		}
	}
	now = now[:25]
	slices.SortFunc(old, func(a, b string) int { return strings.Compare(b, a) })
	alone := n.made(few, "/emails", hello)
	delivered(51)
	alone = n.old(alone, days-10)
	for range 250 {
		n.ask(key, http.MethodGet, "/domains", "")
	}
	eventually(t, "the requests are logged", func() bool {
		return n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint = '/domains'`) == 250
	})
	logged := readFilled(n, key, "/logs?")
	trace.Take()
	for range 10 { // from the sixth time on, PostgreSQL considers a generic plan
		for _, path := range []string{"/emails?limit=20", "/emails?limit=5&after=" + now[9],
			"/emails?limit=5&before=" + now[9], "/emails?limit=20&after=" + old[0],
			"/emails?limit=15&before=" + old[20], "/emails/" + old[3], "/emails/" + old[3] + "/events",
			"/emails/" + old[3] + "/attempts", "/emails/" + old[3] + "/attachments", "/logs?limit=20",
			"/logs?limit=5&after=" + logged[9], "/logs?limit=5&before=" + logged[9], "/logs?method=GET&limit=20",
			"/logs?method=GET&limit=5&before=" + logged[249], "/logs/" + logged[3]} {
			if status, text := n.ask(key, http.MethodGet, path, ""); status != 200 {
				t.Fatalf("GET %s: %d %s", path, status, text)
			}
		}
	}
	n.made(key, "/emails", hello)
	delivered(52)
	all := trace.Take()
	if got := readFilled(n, few, "/emails?"); len(got) != 1 || got[0] != alone {
		t.Errorf("the only email of a team is %s, and its list has %q", alone, got)
	}
	if got := readFilled(n, key, "/emails?"); len(got) != 51 {
		t.Errorf("the list has %d emails", len(got))
	}
	n.end()
	checked, seen := 0, map[string]bool{}
	for _, s := range all {
		text := strings.Join(strings.Fields(s.SQL), " ")
		word, _, _ := strings.Cut(text, " ")
		if seen[text+fmt.Sprint(s.Args)] || !strings.Contains("SELECT UPDATE DELETE WITH", word) ||
			!regexp.MustCompile(`\b(jobs|emails|email_[a-z]+|request_logs)\b`).MatchString(text) {
			continue
		}
		seen[text+fmt.Sprint(s.Args)] = true
		// The recurring job of metrics may run in the meantime.
		if slices.ContainsFunc(allPartitions, func(part string) bool { return strings.Contains(text, part) }) {
			continue
		}
		checked++
		if locks, plan := lockedBy(t, beside, s); locks > 60 {
			t.Errorf("%s %v\nlocks %d tables and indexes:\n%.1000s", text, s.Args, locks, plan)
		}
	}
	if checked < 20 {
		t.Errorf("only %d statements were checked", checked)
	}
}
