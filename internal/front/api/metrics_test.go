package api

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// Metrics are up to date immediately after the events, rates refer to recipients, and usage counts recipient addresses.
func TestMetricsAndUsage(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		var sent ref
		if err := json.Unmarshal(f.do(t, "POST /emails\n\n"+
			`{"from":"a@example.org","to":["a@example.net","b@example.net"],"subject":"s","text":"t"}`).
			Body.Bytes(), &sent); err != nil || sent.ID == "" {
			t.Fatalf("%+v, %v", sent, err)
		}
		var all []events.Event
		for _, e := range []events.Event{{Type: events.EmailSent}, {Type: events.EmailDelivered, Recipient: "a@example.net"},
			{Type: events.EmailOpened, Recipient: "a@example.net"}, {Type: events.EmailOpened, Recipient: "a@example.net"},
			{Type: events.EmailBounced, Recipient: "b@example.net", Data: &events.Bounce{Type: "Transient"}}} {
			e.TeamID, e.EmailID = f.Acme.TeamID, sent.ID
			all = append(all, e)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `INSERT INTO received_emails (team_id, id, sender, subject, message_id, recipients,
				received_for, files, thread_id, origin, authentication, spam, size, blob_key, created_at)
				VALUES ($1, $2, '', '', '', '', '', '', $2, '', '', '', 0, '', $3)`, db.ID(f.Acme.TeamID), db.ID(id.New()),
				tx.Now().UnixMicro())
			return f.Recorder.Record(t.Context(), tx, all...)
		}); err != nil {
			t.Fatal(err)
		}
		var got metricsOutForTest
		answer := f.do(t, "GET /emails/metrics?dimensions=period,email&end_date="+
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", answer.Body, err)
		}
		want := map[string]float64{"received": 1, "delivered": 1, "complained": 0, "suppressed": 0, "bounced": 1,
			"bounced_transient": 1,
			"bounced_permanent": 0, "bounced_undetermined": 0, "opened": 2, "clicked": 0, "unsubscribed": 0,
			"delivery_delayed": 0, "failed": 0,
			"sent": 2, "unique_opened": 1, "unique_clicked": 0, "delivery_rate": 50, "open_rate": 100, "click_rate": 0,
			"bounce_rate":    50,
			"complaint_rate": 0, "unsubscribe_rate": 0}
		if diff := gocmp.Diff(want, got.Totals); diff != "" {
			t.Error(diff)
		}
		if len(got.Data) != 2 { // one email sent and one received
			t.Errorf("data %v", got.Data)
		}
		var used struct {
			Emails struct {
				Daily, Monthly struct{ Used, Sent, Received int }
			}
		}
		if err := json.Unmarshal(f.do(t, "GET /usage").Body.Bytes(), &used,
			json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if u := used.Emails.Daily; u.Used != 3 || u.Sent != 2 || u.Received != 1 || used.Emails.Monthly != u {
			t.Errorf("usage %+v", used)
		}
	})
}

type metricsOutForTest struct {
	Totals map[string]float64 `json:"totals"`
	Data   []map[string]any   `json:"data"`
}

// Metrics by broadcast contain the names of broadcasts, and usage counts started broadcasts and this month's
// automation runs.
func TestUsageOfCampaigns(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("acme.example")
		segment := f.segment("ann@reader.example")
		made := f.created(t, "POST /broadcasts\n\n"+`{"segment_id":"`+segment+
			`","name":"October news","from":"a@acme.example","subject":"s","text":"t","send":true}`)
		f.created(t, "POST /broadcasts\n\n"+`{"segment_id":"`+segment+
			`","from":"a@acme.example","subject":"draft","text":"t"}`)
		f.created(t, "POST /broadcasts\n\n"+`{"segment_id":"`+segment+
			`","from":"a@acme.example","subject":"later","text":"t","send":true,"scheduled_at":"in 1 hour"}`)
		f.sendBroadcasts()
		var sent string
		f.Must(d.QueryRow(t.Context(), `SELECT id FROM emails`).Scan((*db.ID)(&sent)))
		f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: sent, BroadcastID: made, Type: events.EmailSent})
		automation := f.created(t, "POST /automations\n\n"+`{"name":"A","status":"enabled","steps":[{"key":"start",`+
			`"type":"trigger","config":{"event_name":" user.created "}},{"key":"wait","type":"delay",`+
			`"config":{"duration":"1 day"}}],"connections":[{"from":"start","to":"wait"}]}`)
		for range 2 {
			if w := f.do(t, "POST /events/send\n\n"+`{"event":"user.created ","email":"ann@reader.example"}`); w.Code != 202 ||
				w.Body.String() != `{"object":"event","event":"user.created"}` {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		type used struct{ Used int }
		var usage struct {
			Contacts, Broadcasts used
			AutomationRuns       used `json:"automation_runs"`
		}
		read := func() {
			t.Helper()
			f.Must(json.Unmarshal(f.do(t, "GET /usage").Body.Bytes(), &usage, json.MatchCaseInsensitiveNames(true)))
		}
		read()
		if usage.Contacts.Used != 1 || usage.Broadcasts.Used != 1 || usage.AutomationRuns.Used != 2 {
			t.Errorf("usage %+v", usage)
		}
		f.Update(func(tx *db.Tx) error { // the runs began long ago
			rows, err := tx.Query(t.Context(), `SELECT id FROM automation_runs WHERE automation_id = $1`, db.ID(automation))
			runs, err := db.Collect(rows, err, func(r db.Row) (id db.ID, err error) { err = r.Scan(&id); return id, err })
			for _, id := range runs {
				tx.Queue(t.Context(), `UPDATE automation_runs SET id = $2 WHERE id = $1`, id, "0199"+id[4:])
			}
			return err
		})
		if read(); usage.AutomationRuns.Used != 0 {
			t.Errorf("usage %+v after the month of the run", usage)
		}
		var got metricsOutForTest
		f.Must(json.Unmarshal(f.do(t, "GET /emails/metrics?dimensions=broadcast&metrics=sent").Body.Bytes(), &got))
		want := []map[string]any{{"broadcast_id": made, "broadcast_name": "October news", "sent": 1.0}}
		if diff := gocmp.Diff(want, got.Data); diff != "" {
			t.Error(diff)
		}
	})
}
