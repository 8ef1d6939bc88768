package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// old gives an email an id of some days ago, and returns that id. The email's events are that old too.
func (n *started) old(emailID string, days int) string {
	n.t.Helper()
	back := time.Duration(days) * 24 * time.Hour
	at, _ := id.Time(emailID)
	changed := id.First(at.Add(-back))[:24] + uuid.NewString()[24:]
	n.change(`UPDATE emails SET id = $2 WHERE id = $1`, db.ID(emailID), db.ID(changed))
	for _, table := range []string{"email_recipients", "email_attachments", "email_messages", "email_events",
		"email_bodies"} {
		if table != "email_bodies" || n.DB.Alone() {
			n.change(`UPDATE `+table+` SET email_id = $2 WHERE email_id = $1`, db.ID(emailID), db.ID(changed))
		}
	}
	n.change(`UPDATE email_events SET created_at = created_at - $2 WHERE email_id = $1`, db.ID(changed),
		back.Microseconds())
	n.change(`UPDATE jobs SET dedupe = $2 WHERE dedupe = $1`, emailID, changed)
	return changed
}

// opened inserts an event for a delivered email that was opened some time ago.
func (n *started) opened(emailID string, ago time.Duration) {
	n.t.Helper()
	n.change(`INSERT INTO email_events (created_at, email_id, id, team_id, domain_id, broadcast_id, type, detail,
		recipient, data) SELECT $2, email_id, $3, team_id, domain_id, broadcast_id, 6, '', recipient, ''
		FROM email_events WHERE email_id = $1 AND type = 5 /* delivered */`, db.ID(emailID),
		n.DB.Now().Add(-ago).UnixMicro(), db.ID(id.New()))
}

// partitionOf returns the partition that has an email, or "" if no partition has it.
func (n *started) partitionOf(emailID string) (name string) {
	n.t.Helper()
	err := n.DB.QueryRow(n.t.Context(), `SELECT COALESCE(MAX(CAST(CAST(tableoid AS REGCLASS) AS TEXT)), '') FROM emails
		WHERE id = $1`, db.ID(emailID)).Scan(&name)
	if err != nil {
		n.t.Fatal(err)
	}
	return name
}

// dropsOldDays drops the partitions of old days, and checks which of the emails they had.
func (n *started) dropsOldDays(ids map[string]string) {
	n.t.Helper()
	before := func() time.Time { return time.Now().Add(-5 * 24 * time.Hour) } // when nothing was to be dropped
	if err := n.Retention(before).Partition(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	for _, subject := range []string{"old", "older", "waiting"} {
		if name := n.partitionOf(ids[subject]); name == "emails_default" || name == "" {
			n.t.Fatalf("before its day is dropped, %s is in %q", subject, name)
		}
	}
	if err := n.Retention(n.DB.Now).Partition(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	for _, subject := range []string{"old", "older"} {
		if name := n.partitionOf(ids[subject]); name != "" {
			n.t.Errorf("%s is still in %q", subject, name)
		}
	}
	for _, subject := range []string{"uncounted", "waiting"} {
		if name := n.partitionOf(ids[subject]); name != "emails_default" {
			n.t.Errorf("%s is in %q", subject, name)
		}
	}
}

// Retention on PostgreSQL drops partitions, and SQLite deletes in batches. Both keep the same rows: emails that wait,
// emails whose events are not counted yet, younger emails, and all counts.
func TestRetentionByDrop(t *testing.T) {
	t.Parallel()
	remains := map[string]string{}
	eachEngine(t, func(t *testing.T, p *installation) {
		key, short := p.key("Acme"), p.key("Short")
		p.vars["POSTRIDER_EMAIL_RETENTION"], p.vars["POSTRIDER_PARTITION_BY"] = "72h", "day"
		p.must("teams", "retention", "Short", "--emails", "24h")
		if url := p.vars["POSTRIDER_DATABASE_URL"]; url != "" {
			dbtest.DropPartitions(t, dbtest.Open(t, url)) // which are of months
		}
		n := p.start()
		d := &driver{started: n}
		d.postpone("cron.metrics", "cron.retention") // emails must not be counted before they are old
		n.change(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
		with := func(subject, more string) string {
			return fmt.Sprintf(`{"from":"a@resend.dev","to":"delivered@resend.dev","subject":%q,"text":"t",%s
				"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`, subject, more)
		}
		ids, tokens := map[string]string{}, map[string]string{}
		send := func(subject, token, more string) {
			ids[subject], tokens[subject] = n.made(token, "/emails", with(subject, more)), token
		}
		for _, subject := range []string{"old", "older", "uncounted", "young", "opened lately"} {
			send(subject, key, "")
		}
		send("waiting", key, `"scheduled_at":"in 1 hour",`)
		send("of a shorter team", short, "")
		eventually(t, "all are delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 6
		})
		days := map[string]int{"old": 5, "older": 6, "uncounted": 5, "opened lately": 5, "waiting": 5,
			"of a shorter team": 2}
		for subject, d := range days {
			ids[subject] = n.old(ids[subject], d)
		}
		n.opened(ids["opened lately"], 5*time.Hour)
		n.opened(ids["uncounted"], 0)
		d.cron("cron.metrics")
		if !n.DB.Alone() {
			n.dropsOldDays(ids)
		}
		d.cron("cron.retention")
		var kept []string
		for subject, emailID := range ids {
			status, text := n.ask(tokens[subject], http.MethodGet, "/emails/"+emailID, "")
			if status == 200 {
				var e struct{ Text string }
				json.Unmarshal([]byte(text), &e)
				_, files := n.ask(tokens[subject], http.MethodGet, "/emails/"+emailID+"/attachments", "")
				kept = append(kept, fmt.Sprint(subject, " ", e.Text, " ", strings.Contains(files, "a.txt"), " ",
					n.count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1`, db.ID(emailID))))
			}
		}
		slices.Sort(kept)
		kept = append(kept, fmt.Sprintf("%d attachments, %d events", n.count(`SELECT COUNT(*) FROM email_attachments`),
			n.count(`SELECT COUNT(*) FROM email_events`)))
		status, metrics := n.ask(key, http.MethodGet, "/emails/metrics?dimensions=domain", "")
		if status != 200 {
			t.Errorf("%d %s", status, metrics)
		}
		var counts struct{ Totals json.RawMessage }
		json.Unmarshal([]byte(metrics), &counts)
		kept = append(kept, string(counts.Totals))
		remains[n.DB.Engine()] = strings.Join(kept, "\n")
		if status, text := n.ask(key, http.MethodPost, "/emails/"+ids["waiting"]+"/cancel", ""); status != 200 {
			t.Errorf("the email that waits cannot be canceled: %d %s", status, text)
		}
	})
	if remains["sqlite"] != remains["postgres"] || !strings.Contains(remains["sqlite"], "waiting t true") {
		t.Errorf("on SQLite, this remains:\n%s\nand on PostgreSQL:\n%s", remains["sqlite"], remains["postgres"])
	}
}

// A drop keeps no rows of a settled email whose events were deleted before they were counted.
func TestDropWithoutEvents(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir()}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir, "POSTRIDER_DATABASE_URL": dbtest.PostgresURL(t)}
	p.withDays()
	key := p.key("Acme")
	p.vars["POSTRIDER_EMAIL_RETENTION"] = "72h"
	n := p.start()
	emailID := n.made(key, "/emails", `{"from":"a@resend.dev","to":["a@one.example","b@one.example"],"subject":"s",
		"text":"t","attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`)
	eventually(t, "it is delivered", func() bool {
		return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1
	})
	emailID = n.old(emailID, 5)
	n.change(`INSERT INTO email_counts_late (id, team_id, email_id, at) SELECT $2, team_id, id, $3 FROM emails
		WHERE id = $1`, db.ID(emailID), db.ID(id.New()), n.DB.Now().UnixMicro())
	n.change(`DELETE FROM email_events`)
	before := func() time.Time { return time.Now().Add(-5 * 24 * time.Hour) } // when nothing was to be dropped
	n.change(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
	for _, now := range []func() time.Time{before, n.DB.Now} {
		if err := n.Retention(now).Partition(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"emails", "email_recipients", "email_attachments"} {
		if left := n.count(`SELECT COUNT(*) FROM ` + table); left > 0 {
			t.Errorf("%d rows are left in %s", left, table)
		}
	}
}
