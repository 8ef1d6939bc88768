package tracking_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/tracking"
)

// Opens and clicks are sent to webhook endpoints. For the webhook payloads, a single query reads the emails of all hits
// in a batch.
func TestWebhooksOfHits(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := testnode.New(t, d, testnode.Options{})
		hooks := testnode.Must(webhooks.New(webhooks.Config{Schedule: []time.Duration{time.Hour}},
			webhooks.Deps{DB: d, Queue: n.Queue, Keys: n.Keys, Guard: n.Guard, Domains: n.Domains,
				Log: slog.New(slog.DiscardHandler), Notify: n.Quotas.Notify}))
		n.Recorder.Listen(hooks)
		c := newCounted(n)
		var all []string
		for i := range 12 {
			all = append(all, c.delivered(time.Hour, fmt.Sprintf("to%d@one.example", i)))
		}
		e, err := hooks.Create(t.Context(), c.Acme.TeamID, "https://hooks.example.org",
			[]string{"email.opened", "email.clicked"})
		if err != nil {
			t.Fatal(err)
		}
		for i, emailID := range all {
			agent := firefox
			if i >= 6 {
				agent = "curl/8"
			}
			c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: agent})
			c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: target, Addr: home, UserAgent: agent})
		}
		trace.Take()
		c.flush()
		read := 0
		for _, s := range trace.Take() {
			if strings.Contains(s.SQL, "email_bodies") {
				read++
			}
		}
		if read != 1 {
			t.Errorf("emails are read %d times", read)
		}
		found, _, err := hooks.Messages(t.Context(), c.Acme.TeamID, e.ID, "", page.Page{Limit: 100})
		if err != nil || len(found) != 2*len(all) {
			t.Fatalf("%d messages, %v", len(found), err)
		}
		count := map[string]int{}
		for _, m := range found {
			one, err := hooks.Message(t.Context(), c.Acme.TeamID, e.ID, m.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"type":"email.opened"`, `"open":{"ipAddress":"203.0.113.9","timestamp":"`,
				`"type":"email.clicked"`, `"click":{"ipAddress":"203.0.113.9","link":"` + target + `","timestamp":"`,
				`"userAgent":"` + firefox + `"}`, `"userAgent":"curl/8","machine":true,"machineReason":"user_agent"}`} {
				if strings.Contains(one.Payload, want) {
					count[want]++
				}
			}
		}
		if len(count) != 6 {
			t.Errorf("%v", count)
		}
		for want, n := range count {
			if n != 12 {
				t.Errorf("%d messages have %s", n, want)
			}
		}
	})
}
