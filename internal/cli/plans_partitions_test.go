package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// manyPartitions replaces the partitions of a test's database by one for each of the last days, and the current one.
func manyPartitions(t *testing.T, d *db.DB, days int) {
	t.Helper()
	dbtest.DropPartitions(t, d)
	today := d.Now().Truncate(24 * time.Hour)
	for i := range days {
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			for _, f := range partitions.Families {
				for _, table := range f.Tables {
					from := today.AddDate(0, 0, -i)
					tx.Queue(t.Context(), fmt.Sprintf(`CREATE TABLE %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM ('%[3]s') TO
						('%[4]s')`, table.Name, from.Format("20060102"), id.First(from), id.First(from.AddDate(0, 0, 1))))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// listsOfFew are parts of the statements that read all partitions for lists of teams with few rows.
var listsOfFew = []string{
	"FROM emails e WHERE e.team_id = $1 AND e.id",
	"actor_kind FROM request_logs WHERE team_id = $1",
	"FROM webhook_deliveries d WHERE d.webhook_id = $1 AND d.team_id = $2 AND",
	"FROM webhook_deliveries d WHERE d.webhook_id = $1 AND d.team_id = $2 ORDER",
	"SELECT x.id FROM (SELECT id, team_id, api_key_id, request_id", // the end of a search in the request log
}

// fewPartitions are parts of the statements that read the partitions of two days before a message, or since the time
// before which an endpoint has no unfinished message.
var fewPartitions = []string{"FROM webhook_deliveries o WHERE",
	"FROM webhook_deliveries WHERE webhook_id = $1 AND team_id = $2 AND chain ="}

// allPartitions lists statements that may read all partitions, because they look for emails or events by team and time.
var allPartitions = []string{
	"WHERE e.team_id = $1 AND e.created_at >= $2",               // counts of metrics
	"FROM email_events WHERE team_id = $1 AND created_at >= $2", // the next event that is not counted
	"FROM email_events e WHERE e.team_id = t.id",                // the teams with events that are not counted
	"FROM email_counts_late l",
	// The job of the search index looks for teams and emails that the index does not have yet, and counts those that it
	// has. Searches go through the segments of the index from the newest one.
	"FROM email_terms ",
	"FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3",
	"FROM emails e WHERE e.team_id = $1 AND e.id >= $2 AND e.id <= $3 LIMIT $4",
}

var (
	scanOf = regexp.MustCompile(`(Seq Scan|Index Scan|Index Only Scan|Bitmap Heap Scan|Tid Scan)[a-zA-Z_0-9 ]* on ` +
		`(email[a-z_]*?|request_logs|webhook_[a-z]+)_(default|\d{8})\b`)
	joined = regexp.MustCompile(`Index Cond: .*\b(id|email_id) = (ANY )?\(?\w+\.\w+`)
)

// partitioned matches the names of partitioned tables.
var partitioned = regexp.MustCompile(`\b(emails|email_(recipients|attachments|messages|events|bodies)|request_logs|` +
	`webhook_(messages|deliveries|attempts))\b`)

// Each statement of an email's way, each page of one email, and each single log entry and webhook event reads only one
// partition of each table. The others read every partition by an index.
func TestStatementsReadOnePartition(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir()}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir, "POSTRIDER_PARTITION_BY": "day",
		"POSTRIDER_ALLOW_LOOPBACK": "true", "POSTRIDER_DATABASE_URL": dbtest.PostgresURL(t)}
	manyPartitions(t, dbtest.Open(t, p.vars["POSTRIDER_DATABASE_URL"]), 40)
	trace := &dbtest.Trace{}
	p.options.Trace = trace.Record
	key := p.key("Acme")
	n := p.start()
	beside := dbtest.Open(t, node.DatabaseURL(n.Config))
	n.look = beside.Reader
	d := &driver{started: n, key: key}
	d.postpone("cron.retention") // its statements read all days that have ended
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()
	webhook := d.do("POST", "/webhooks", fmt.Sprintf(`{"endpoint":%q,"events":["email.sent","email.delivered"]}`,
		hook.URL))
	one := d.do("POST", "/emails", `{"from":"a@resend.dev","to":"delivered@resend.dev","subject":"s","text":"t",
		"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`)
	d.do("POST", "/emails", `{"from":"a@resend.dev","to":["delivered@resend.dev","bounced@resend.dev"],"subject":"s",
		"html":"t"}`)
	waiting := d.do("POST", "/emails", strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1))
	eventually(t, "they are delivered", func() bool {
		return n.count(`SELECT COUNT(*) FROM email_events WHERE type IN (5, 8)`) == 3
	})
	d.do("PATCH", "/emails/"+waiting, `{"scheduled_at":"in 2 hours"}`)
	d.do("POST", "/emails/"+waiting+"/cancel", "")
	for _, path := range []string{"", "/events", "/attempts", "/attachments", "/explain"} {
		d.do("GET", "/emails/"+one+path, "")
	}
	d.do("GET", "/emails", "")
	d.do("GET", "/emails/metrics?dimensions=domain", "")
	eventually(t, "the requests are logged", func() bool { return n.count(`SELECT COUNT(*) FROM request_logs`) > 10 })
	d.do("GET", "/logs?method=POST", "")
	eventually(t, "the events are posted", func() bool {
		return n.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'success'`) >= 4
	})
	event := d.pages("/webhooks/" + webhook + "/events")
	for _, path := range []string{"", "/attempts"} {
		d.do("GET", "/webhooks/"+webhook+"/events/"+event+path, "")
	}
	d.do("POST", "/webhooks/"+webhook+"/events/"+event+"/replay", "")
	eventually(t, "one is posted again", func() bool {
		return n.count(`SELECT COUNT(*) FROM webhook_attempts`) >= 5
	})
	d.do("GET", "/logs/"+readFilled(n, key, "/logs?")[0], "")
	d.cron("cron.metrics")
	n.end()
	trace.SetDB(beside)
	checked, lists := 0, 0
	seen := map[string]bool{}
	for _, s := range trace.TakeAll() {
		text := strings.Join(strings.Fields(s.SQL), " ")
		word, _, _ := strings.Cut(text, " ")
		if seen[text] || !strings.Contains("SELECT UPDATE DELETE WITH", word) ||
			!partitioned.MatchString(text) {
			continue
		}
		seen[text] = true
		plan := trace.Plan(t, s)
		read := map[string]map[string]bool{}
		for _, m := range scanOf.FindAllStringSubmatch(plan, -1) {
			if read[m[2]] == nil {
				read[m[2]] = map[string]bool{}
			}
			read[m[2]][m[3]] = true
			if m[1] == "Seq Scan" {
				t.Errorf("%s\nreads a whole partition:\n%s", text, plan)
			}
		}
		all := false
		for _, part := range slices.Concat(listsOfFew, allPartitions) {
			all = all || strings.Contains(text, part)
		}
		if all {
			lists++
			continue
		}
		for table, names := range read {
			most := 1
			if slices.ContainsFunc(fewPartitions, func(part string) bool { return strings.Contains(text, part) }) {
				most = 4 // today's, those of two days, and the default partition
			}
			if checked++; len(names) > most && !strings.Contains(plan, "Subplans Removed") && !oneAtATime(plan, table) {
				t.Errorf("%s\nreads %d partitions of %s:\n%s", text, len(names), table, plan)
			}
		}
	}
	if checked < 12 || lists < 3 {
		t.Errorf("only %d statements were checked, and %d lists", checked, lists)
	}
}

// oneAtATime reports whether all scans of a table are by an id of another row, which excludes all partitions but one
// when the statement is run.
func oneAtATime(plan, table string) bool {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		if m := scanOf.FindStringSubmatch(line); m == nil || m[2] != table {
			continue
		}
		if i+1 == len(lines) || !joined.MatchString(lines[i+1]) {
			return false
		}
	}
	return true
}
