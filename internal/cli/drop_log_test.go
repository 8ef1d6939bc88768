package cli

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// backdated returns an id that is some days older than the given one.
func backdated(rowID string, days int) string {
	at, _ := id.Time(rowID)
	return id.First(at.AddDate(0, 0, -days))[:24] + uuid.NewString()[24:]
}

// The request log loses the same entries on both engines: PostgreSQL drops partitions, and SQLite deletes in batches. A
// drop that is due within a day takes the entries of its day.
func TestRequestLogByDrop(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		p.vars["POSTRIDER_LOG_RETENTION"], p.vars["POSTRIDER_PARTITION_BY"] = "72h", "day"
		if url := p.vars["POSTRIDER_DATABASE_URL"]; url != "" {
			dbtest.DropPartitions(t, dbtest.Open(t, url)) // which are of months
		}
		n := p.start()
		n.change(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
		for range 6 {
			n.ask(key, http.MethodGet, "/domains", "")
		}
		eventually(t, "the requests are logged", func() bool { return n.count(`SELECT COUNT(*) FROM request_logs`) == 6 })
		logged := readFilled(n, key, "/logs?method=GET&endpoint=%2Fdomains&")
		for i, days := range []int{0, 1, 2, 5, 5, 40} {
			old := backdated(logged[i], days)
			n.change(`UPDATE request_logs SET id = $2 WHERE id = $1`, db.ID(logged[i]), db.ID(old))
			logged[i] = old
		}
		d := &driver{started: n}
		if !n.DB.Alone() {
			before := func() time.Time { return time.Now().AddDate(0, 0, -5) } // when only the oldest was to be deleted
			if err := n.Retention(before).Partition(t.Context()); err != nil {
				t.Fatal(err)
			}
			at, _ := id.Time(logged[3])
			of := func() int {
				return n.count(`SELECT COUNT(*) FROM pg_class WHERE relname = $1`, at.Format("request_logs_20060102"))
			}
			if n.count(`SELECT COUNT(*) FROM request_logs`) < 6 || of() != 1 {
				t.Errorf("before their day is dropped, %d entries and %d partitions are left",
					n.count(`SELECT COUNT(*) FROM request_logs`), of())
			}
			if err := n.Retention(n.DB.Now).Partition(t.Context()); err != nil {
				t.Fatal(err)
			}
			if found := n.count(`SELECT COUNT(*) FROM request_logs WHERE id = ANY($1)`,
				db.IDs(logged[3:5])); of() != 0 || found != 0 {
				t.Errorf("after the drop, %d entries and %d partitions are left", found, of())
			}
		}
		d.cron("cron.retention")
		if got := readFilled(n, key, "/logs?method=GET&endpoint=%2Fdomains&"); !slices.Equal(got, logged[:3]) {
			t.Errorf("left are %q, want %q", got, logged[:3])
		}
		for i, want := range []int{200, 200, 200, 404, 404, 404} {
			if status, text := n.ask(key, http.MethodGet, "/logs/"+logged[i], ""); status != want {
				t.Errorf("entry %d: %d %s", i, status, text)
			}
		}
	})
}
