package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// listener stores the events that it receives and returns a configurable error.
type listener struct {
	heard []events.Event
	err   error
}

func (l *listener) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	l.heard = append(l.heard, all...)
	return l.err
}

// Events that are recorded in one call appear in the timeline in order, and listeners receive the events with ids and
// times.
func TestTimeline(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, n := range []int{0, 1, 7, 8, 9, 16, 17, 40} {
			recorder, l := &events.Recorder{}, &listener{}
			recorder.Listen(l)
			emailID := dbtest.ID(fmt.Sprintf("email %d", n))
			var all []events.Event
			for i := range n {
				all = append(all, events.Event{TeamID: dbtest.ID("team"), EmailID: emailID, Type: events.EmailDelivered,
					Recipient: fmt.Sprint(i)},
					events.Event{TeamID: dbtest.ID("team"),
						Type: events.DomainUpdated}) // an event that does not appear in a timeline
			}
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				return recorder.Record(t.Context(), tx,
					all...)
			}); err != nil {
				t.Fatal(err)
			}
			got, _, err := events.Timeline(t.Context(), d.Reader, dbtest.ID("team"), emailID, page.Page{})
			if err != nil || len(got) != n || len(l.heard) != 2*n {
				t.Fatalf("%d of %d events stand there, %d were heard, %v", len(got), n, len(l.heard), err)
			}
			for i, e := range got {
				told := l.heard[2*i]
				if e.Recipient != fmt.Sprint(i) || e.Type != "delivered" || e.ID != told.ID ||
					!e.At.Equal(told.At.Truncate(time.Microsecond)) || e.At.IsZero() {
					t.Errorf("event %d is %+v, and %+v was heard", i, e, told)
				}
			}
			other, _, err := events.Timeline(t.Context(), d.Reader, dbtest.ID("other"), emailID, page.Page{})
			if err != nil || len(other) != 0 {
				t.Errorf("another team sees %d events, %v", len(other), err)
			}
		}
	})
}

// Recording many events requires only one kind of statement, whose rows share a statement on PostgreSQL.
func TestStatementsOfEvents(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		for _, n := range []int{0, 1, 17} {
			all := make([]events.Event, n)
			for i := range all {
				all[i] = events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"), Type: events.EmailDelivered}
			}
			trace.Take()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				return (&events.Recorder{}).Record(t.Context(), tx, all...)
			})
			rows := trace.Take()
			for _, s := range rows {
				if s.SQL != rows[0].SQL || s.List == nil {
					t.Errorf("an event is written by %s", s.SQL)
				}
			}
			if err != nil || len(rows) != n {
				t.Errorf("%d events are written by %d statements, %v", n, len(rows), err)
			}
		}
	})
}

// If a timeline cannot be read, Timeline returns the error, not an entry without a time.
func TestTimelineThatCannotBeRead(t *testing.T) {
	d := dbtest.SQLite(t)
	dbtest.Loosen(t, d, "email_events")
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `INSERT INTO email_events (id, team_id, email_id, domain_id, broadcast_id, type, detail,
			recipient, data, created_at) VALUES ($1, $2, $1, NULL, NULL, 3, '', '', '', 'yesterday')`,
			db.ID(dbtest.ID("e")), db.ID(dbtest.ID("team")))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if all, _, err := events.Timeline(t.Context(), d.Reader, dbtest.ID("team"), dbtest.ID("e"), page.Page{}); err == nil {
		t.Errorf("the timeline is %+v", all)
	}
}

// Record keeps the id and time of an event and stores its data as JSON. The event of a received email has no row.
func TestWhatIsRecorded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		recorder := &events.Recorder{}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		record := func(e events.Event) error {
			return d.Update(t.Context(), func(tx *db.Tx) error { return recorder.Record(t.Context(), tx, e) })
		}
		for _, c := range []struct {
			event    events.Event
			timeline string
			data     string
			detail   string
		}{
			{events.Event{ID: dbtest.ID("1"), EmailID: dbtest.ID("e1"), Type: events.EmailBounced,
				Data: &events.Bounce{Type: "Permanent"}}, dbtest.ID("e1"),
				`"type":"Permanent"`, "permanent"},
			{events.Event{ID: dbtest.ID("2"), EmailID: dbtest.ID("e2"), Type: events.EmailFailed,
				Data: &events.Failed{Reason: "why"}}, dbtest.ID("e2"),
				`{"reason":"why"}`, ""},
			{events.Event{ID: dbtest.ID("3"), EmailID: dbtest.ID("e3"), Type: events.EmailDelivered}, dbtest.ID("e3"), "",
				""},
		} {
			c.event.TeamID, c.event.At = dbtest.ID("team"), at
			if err := record(c.event); err != nil {
				t.Fatal(err)
			}
			got, _, err := events.Timeline(t.Context(), d.Reader, dbtest.ID("team"), c.timeline, page.Page{})
			if err != nil || len(got) != 1 || got[0].ID != c.event.ID || !got[0].At.Equal(at) ||
				!strings.Contains(got[0].Data, c.data) ||
				c.data == "" && got[0].Data != "" {
				t.Errorf("%s: %+v, %v", c.event.Type, got, err)
			}
			var detail string
			if err := d.QueryRow(t.Context(), `SELECT detail FROM email_events WHERE id = $1`,
				db.ID(c.event.ID)).Scan(&detail); err != nil || detail != c.detail {
				t.Errorf("%s: detail %q, %v", c.event.Type, detail, err)
			}
		}
		heard := &listener{}
		recorder.Listen(heard)
		if err := record(events.Event{TeamID: dbtest.ID("team"), Type: events.EmailReceived,
			Data: &events.Received{ID: dbtest.ID("r1")}}); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM email_events`).Scan(&rows); err != nil || rows != 3 ||
			len(heard.heard) != 1 || heard.heard[0].ID == "" {
			t.Errorf("after a received email: %d rows, %v; heard %+v", rows, err, heard.heard)
		}
		if err := record(events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e5"), Type: events.EmailFailed,
			Data: func() {}}); err == nil {
			t.Error("data that cannot be encoded is recorded")
		}
	})
}

// If a listener returns an error, no event is recorded.
func TestListenerFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		recorder, first, last := &events.Recorder{}, &listener{err: errors.New("full")}, &listener{}
		recorder.Listen(first)
		recorder.Listen(last)
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			return recorder.Record(t.Context(), tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
				Type: events.EmailDelivered})
		})
		got, _, readErr := events.Timeline(t.Context(), d.Reader, dbtest.ID("team"), dbtest.ID("e"), page.Page{})
		if !errors.Is(err, first.err) || readErr != nil || len(got) != 0 || len(last.heard) != 0 {
			t.Errorf("%v; %d events are there, %d were heard, %v", err, len(got), len(last.heard), readErr)
		}
	})
}

// The numbers of types and outcomes in the database never change, because rows keep them. A type or an outcome without
// a number is refused, and so is a number without a name.
func TestNumbers(t *testing.T) {
	want := map[events.Type]int16{"email.scheduled": 1, "email.queued": 2, "email.sent": 3, "email.delivery_delayed": 4,
		"email.delivered": 5, "email.opened": 6, "email.clicked": 7, "email.bounced": 8, "email.failed": 9,
		"email.suppressed": 10, "email.canceled": 11, "email.complained": 12, "email.unsubscribed": 13, "email.received": 14}
	for typ, number := range want {
		if got := events.Types.Number(typ); got != number {
			t.Errorf("%s has the number %d, want %d", typ, got, number)
		}
	}
	if name, err := events.TypeName(15); err == nil {
		t.Errorf("15 is %s, which is missing in this test", name)
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, team, emailID := t.Context(), dbtest.ID("team"), dbtest.ID("email")
		record := func(e events.Event) error {
			e.TeamID, e.EmailID = team, emailID
			return d.Update(ctx, func(tx *db.Tx) error { return new(events.Recorder).Record(ctx, tx, e) })
		}
		for i, outcome := range []string{"delivered", "delayed", "bounced", "mixed", "unknown"} {
			if err := record(events.Event{Type: events.EmailSent, Attempt: &events.Attempt{Outcome: outcome}}); err != nil {
				t.Fatal(err)
			}
			var n int
			if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM email_events WHERE outcome = $1`,
				i+1).Scan(&n); err != nil || n != 1 {
				t.Errorf("%s is not %d: %v", outcome, i+1, err)
			}
		}
		for _, e := range []events.Event{{Type: "email.read"}, {Type: events.EmailSent,
			Attempt: &events.Attempt{Outcome: "lost"}}} {
			if err := record(e); err == nil {
				t.Errorf("an event %s with %+v is recorded", e.Type, e.Attempt)
			}
		}
		if err := d.Update(ctx, func(tx *db.Tx) error {
			tx.Queue(ctx, `UPDATE email_events SET type = 99, outcome = 99`)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		// A newer release may have written them. They do not hide the other events of the email.
		all, _, err := events.Timeline(ctx, d.Reader, team, emailID, page.Page{})
		if err != nil || len(all) != 5 || all[0].Type != "unknown_event_99" {
			t.Errorf("timeline: %+v, %v", all, err)
		}
		attempts, _, err := events.Attempts(ctx, d.Reader, team, emailID, page.Page{Limit: 5})
		if err != nil || len(attempts) != 5 || attempts[0].Outcome != "unknown" {
			t.Errorf("attempts: %+v, %v", attempts, err)
		}
	})
}
