package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
)

// receive delivers a message from an address to in.example, makes it some days old, and returns its new id.
func (d *driver) receive(from string, days int) string {
	d.t.Helper()
	if err := d.mail(d.Port(node.PortInbound), nil, from, "x@in.example", received); err != nil {
		d.t.Fatal(err)
	}
	emailID := d.do("GET", "/emails/receiving", "") // the newest
	changed := d.old(emailID, days)                 // its events, if it has any
	for _, set := range []string{`received_emails SET id`, `received_emails SET thread_id`, `received_raws SET email_id`} {
		column := set[strings.LastIndexByte(set, ' ')+1:]
		d.change(`UPDATE `+set+` = $2 WHERE `+column+` = $1`, db.ID(emailID), db.ID(changed))
	}
	at, _ := id.Time(changed)
	d.change(`UPDATE received_emails SET created_at = $2 WHERE id = $1`, db.ID(changed), at.UnixMicro())
	return changed
}

// received returns how many received emails the metrics of the last 20 days have, and the numbers of rows of received
// emails.
func (d *driver) received() string {
	d.t.Helper()
	since := d.DB.Now().Add(-20 * 24 * time.Hour).UTC().Format(time.RFC3339)
	status, text := d.ask(d.key, http.MethodGet, "/emails/metrics?dimensions=domain&start_date="+since, "")
	var counts struct{ Totals struct{ Received int } }
	if err := json.Unmarshal([]byte(text), &counts); err != nil || status != 200 {
		d.t.Fatalf("%d %s", status, text)
	}
	return fmt.Sprintf("%d counted, %d emails, %d raw messages", counts.Totals.Received,
		d.count(`SELECT COUNT(*) FROM received_emails`), d.count(`SELECT COUNT(*) FROM received_raws`))
}

// A drop of a partition moves nothing that belongs to received emails, however many were received on that day. They can
// be read, are counted, expire by their own retention period, and can be erased, as on SQLite.
func TestDropLeavesReceivedEmails(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.withDays()
		p.vars["POSTRIDER_EMAIL_RETENTION"], p.vars["POSTRIDER_RECEIVED_RETENTION"] = "72h", "240h"
		p.vars["POSTRIDER_ROLES"], p.vars["POSTRIDER_SMTP_IN_LISTEN"] = "api,delivery,jobs,receiving", "127.0.0.1:0"
		key := p.key("Acme")
		n := p.start()
		d := &driver{started: n, key: key}
		d.postpone("cron.retention")
		d.receivesAndNotifies()
		d.do("POST", "/emails", hello)
		eventually(t, "it is delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1
		})
		sent := n.old(d.do("GET", "/emails", ""), 5)
		expired, first, second := d.receive("b@one.example", 12), d.receive("b@one.example", 5),
			d.receive("c@one.example", 5)
		// A slow run may have counted the emails before they became old. They are counted anew.
		for _, table := range []string{"email_counts", "email_counts_until", "email_counts_final"} {
			n.change(`DELETE FROM ` + table)
		}
		d.cron("cron.metrics")
		n.change(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
		before := func() time.Time { return time.Now().Add(-12 * 24 * time.Hour) } // when nothing was to be dropped
		for _, now := range []func() time.Time{before, n.DB.Now} {
			if err := n.Retention(now).Partition(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if status, text := n.ask(key, http.MethodGet, "/emails/"+sent, ""); status != 404 && !n.DB.Alone() {
			t.Errorf("the day of the sent email was not dropped: %d %s", status, text)
		}
		if !n.DB.Alone() {
			if left := n.count(`SELECT COUNT(*) FROM email_events_default`); left > 0 {
				t.Errorf("%d events are in the default partition", left)
			}
		}
		is := func(when, want string, gone ...string) {
			t.Helper()
			if got := d.received(); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
			for _, emailID := range []string{expired, first, second} {
				want := 200
				if strings.Contains(strings.Join(gone, " "), emailID) {
					want = 404
				}
				if status, text := n.ask(key, http.MethodGet, "/emails/receiving/"+emailID, ""); status != want ||
					status == 200 && !strings.Contains(text, `"text":"`) {
					t.Errorf("%s: %d %s", when, status, text)
				}
			}
		}
		is("after the drop", "3 counted, 3 emails, 3 raw messages")
		d.cron("cron.retention")
		is("after the retention", "3 counted, 2 emails, 2 raw messages", expired)
		p.must("emails", "erase", "b@one.example")
		is("after the erasure", "3 counted, 1 emails, 1 raw messages", expired, first)
		p.must("emails", "delete", second, "--team", "Acme")
		is("after the deletion", "3 counted, 0 emails, 0 raw messages", expired, first, second)
		if left := n.count(`SELECT COUNT(*) FROM email_events WHERE type = 14 /* received */`); left > 0 {
			t.Errorf("%d events of received emails are left", left)
		}
	})
}

// The deletion of a team deletes its received emails and their counts, and leaves those of another team.
func TestTeamDeletedWithReceivedEmails(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_ROLES"], p.vars["POSTRIDER_SMTP_IN_LISTEN"] = "api,jobs,receiving", "127.0.0.1:0"
		p.must("teams", "create", "Operator")
		key := p.key("Gone")
		n := p.start()
		d := &driver{started: n, key: key}
		d.receivesAndNotifies()
		d.receive("b@one.example", 5)
		d.cron("cron.metrics")
		if n.count(`SELECT COUNT(*) FROM email_counts`) != 1 {
			t.Error("the received email is not counted")
		}
		p.must("teams", "delete", "Gone", "--yes")
		eventually(t, "nothing is left", func() bool {
			return n.count(`SELECT (SELECT COUNT(*) FROM received_emails) + (SELECT COUNT(*) FROM email_counts)
				+ (SELECT COUNT(*) FROM email_counts_kept) + (SELECT COUNT(*) FROM email_counts_until)
				+ (SELECT COUNT(*) FROM email_events)`) == 0
		})
		d.cron("cron.metrics")
		if n.count(`SELECT COUNT(*) FROM email_counts`) != 0 {
			t.Error("a deleted team's email is counted")
		}
	})
}
