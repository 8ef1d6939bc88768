package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Events of webhooks are deleted on both engines: PostgreSQL drops partitions, and SQLite deletes in batches. Both keep
// a message that one endpoint has not got yet, with the delivery to this endpoint, and deliver it later.
func TestWebhooksByDrop(t *testing.T) {
	t.Parallel()
	remains := map[string]string{}
	eachEngine(t, func(t *testing.T, p *installation) {
		var fail atomic.Bool
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if fail.Load() && r.URL.Path == "/second" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		t.Cleanup(hook.Close)
		key := p.key("Acme")
		p.vars["POSTRIDER_WEBHOOK_SCHEDULE"], p.vars["POSTRIDER_WEBHOOK_RETENTION"] = "1h,10h", "72h"
		p.vars["POSTRIDER_PARTITION_BY"], p.vars["POSTRIDER_ALLOW_LOOPBACK"] = "day", "true"
		if url := p.vars["POSTRIDER_DATABASE_URL"]; url != "" {
			dbtest.DropPartitions(t, dbtest.Open(t, url)) // which are of months
		}
		n := p.start()
		n.change(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
		var webhooks []string
		for _, path := range []string{"/first", "/second"} {
			webhooks = append(webhooks, n.made(key, "/webhooks", fmt.Sprintf(`{"endpoint":%q,"events":["suppression.added"]}`,
				hook.URL+path)))
		}
		settled := func(success, attempting int) {
			t.Helper()
			eventually(t, "all were tried", func() bool {
				return n.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'success'`) == success &&
					n.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'attempting'`) == attempting
			})
		}
		for i := range 4 {
			fail.Store(i == 3)
			n.made(key, "/suppressions", fmt.Sprintf(`{"email":"a%d@one.example"}`, i))
			if i < 3 {
				settled(2*(i+1), 0)
			}
		}
		settled(7, 1)
		fail.Store(false)
		rows, err := n.DB.Query(t.Context(), `SELECT id FROM webhook_messages ORDER BY id`)
		keys, err := db.Collect(rows, err, func(r db.Row) (key db.ID, err error) { err = r.Scan(&key); return key, err })
		if err != nil || len(keys) != 4 {
			t.Fatal(keys, err)
		}
		for i, days := range []int{0, 5, 40, 5} {
			old := db.ID(backdated(string(keys[i]), days))
			n.change(`UPDATE webhook_messages SET id = $2 WHERE id = $1`, keys[i], old)
			for _, table := range []string{"webhook_deliveries", "webhook_attempts"} {
				n.change(`UPDATE `+table+` SET message_id = $2 WHERE message_id = $1`, keys[i], old)
			}
			n.change(`UPDATE jobs SET payload = $2 WHERE kind = 'webhook' AND payload = $1`, "msg_"+id.Compact(string(keys[i])),
				"msg_"+id.Compact(string(old)))
			keys[i] = old
		}
		if !n.DB.Alone() {
			before := func() time.Time { return time.Now().AddDate(0, 0, -5) } // when only the oldest was to be deleted
			for _, now := range []func() time.Time{before, n.DB.Now} {
				if err := n.Retention(now).Partition(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			at, _ := id.Time(string(keys[1]))
			if left := n.count(`SELECT COUNT(*) FROM pg_class WHERE relname = ANY($1)`, []string{
				at.Format("webhook_messages_20060102"), at.Format("webhook_deliveries_20060102"),
				at.Format("webhook_attempts_20060102")}); left != 0 {
				t.Errorf("%d partitions are left", left)
			}
		}
		(&driver{started: n}).cron("cron.retention")
		events := func(webhook string) (all []string) {
			for _, x := range readFilled(n, key, "/webhooks/"+webhook+"/events?") {
				all = append(all, fmt.Sprint(slices.Index(keys, db.ID(id.Expand(strings.TrimPrefix(x, "msg_"))))))
			}
			return all
		}
		first, second := events(webhooks[0]), events(webhooks[1])
		remains[n.DB.Engine()] = fmt.Sprint(first, second, n.count(`SELECT COUNT(*) FROM webhook_messages`),
			n.count(`SELECT COUNT(*) FROM webhook_deliveries`), n.count(`SELECT COUNT(*) FROM webhook_attempts`))
		n.change(`UPDATE jobs SET run_at = 0 WHERE kind = 'webhook'`)
		n.end()
		n = p.start()
		settled(3, 0)
		(&driver{started: n}).cron("cron.retention")
		if left := n.count(`SELECT COUNT(*) FROM webhook_messages`); left != 1 {
			t.Errorf("after the delivery, %d messages are left", left)
		}
	})
	if remains["sqlite"] != remains["postgres"] || !strings.HasPrefix(remains["sqlite"], "[0] [0 3] 2 3 3") {
		t.Errorf("on SQLite, this remains: %s, and on PostgreSQL: %s", remains["sqlite"], remains["postgres"])
	}
}
