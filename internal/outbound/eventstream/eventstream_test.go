package eventstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// node is an event stream service with its database and recorder.
type node struct {
	*eventstream.Service
	d        *db.DB
	recorder events.Recorder
	rendered int
}

func newNode(d *db.DB) *node {
	n := &node{d: d}
	n.Service = eventstream.New(d, slog.New(slog.DiscardHandler), func(_ context.Context, _ *db.Tx,
		e *events.Event) (eventstream.Message, error) {
		n.rendered++
		if e.Type == events.EmailQueued {
			return eventstream.Message{}, nil
		}
		return eventstream.Message{ID: messageID(e.ID), Type: e.Type, Payload: `{"of":"` + e.EmailID + `"}`}, nil
	})
	n.recorder.Listen(n.Service)
	return n
}

// lastID is the counter in the id that newID returned last.
var lastID atomic.Int64

// newID returns an id with the current time, including simulated time. Tests cannot use package id, whose ids never go
// back in time.
func newID() string { return idAt(time.Now()) }

func idAt(at time.Time) string {
	ms := at.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7%03x-8000-%012x", ms>>16, ms&0xffff, lastID.Add(1)&0xfff, lastID.Load())
}

func messageID(eventID string) string { return "msg_" + strings.ReplaceAll(eventID, "-", "") }

// key returns the id of the event that a message contains.
func key(messageID string) db.ID { return db.ID(id.Expand(strings.TrimPrefix(messageID, "msg_"))) }

// happen records an event and returns the id of its message.
func (n *node) happen(t *testing.T, team string, typ events.Type) string {
	t.Helper()
	e := events.Event{ID: newID(), TeamID: team, EmailID: dbtest.ID("e1"), Type: typ}
	if err := n.d.Update(t.Context(), func(tx *db.Tx) error { return n.recorder.Record(t.Context(), tx, e) }); err != nil {
		t.Fatal(err)
	}
	return messageID(e.ID)
}

func (n *node) open(t *testing.T, team, after string, types ...events.Type) *eventstream.Tail {
	t.Helper()
	tail, err := n.Open(t.Context(), team, types, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tail.Close)
	return tail
}

// want reads from a tail until it has the expected number of messages, and compares their ids.
func want(t *testing.T, tail *eventstream.Tail, ids ...string) {
	t.Helper()
	var got []string
	for len(got) < len(ids) {
		all, err := tail.Next(t.Context(), 20*time.Second)
		if err != nil || len(all) == 0 {
			t.Fatalf("after %v: %v, %v", got, all, err)
		}
		for _, m := range all {
			got = append(got, m.ID)
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("got %v, want %v", got, ids)
	}
}

func quiet(t *testing.T, tail *eventstream.Tail) {
	t.Helper()
	if all, err := tail.Next(t.Context(), time.Millisecond); err != nil || len(all) != 0 {
		t.Errorf("it shows %v, %v", all, err)
	}
}

func TestTail(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := newNode(d)
		n.happen(t, dbtest.ID("team"), events.EmailSent)
		if n.rendered != 0 {
			t.Error("an event was rendered though nobody watches")
		}
		tail := n.open(t, dbtest.ID("team"), "")
		some := n.open(t, dbtest.ID("team"), "", events.EmailDelivered, events.DomainCreated)
		n.happen(t, dbtest.ID("other"), events.EmailSent)
		n.happen(t, dbtest.ID("team"), events.EmailQueued)
		a, b, c := n.happen(t, dbtest.ID("team"), events.EmailSent), n.happen(t, dbtest.ID("team"), events.EmailDelivered),
			n.happen(t, dbtest.ID("team"), events.EmailOpened)
		want(t, tail, a, b, c)
		want(t, some, b)
		quiet(t, tail)
		var many []string
		for range 250 {
			many = append(many, n.happen(t, dbtest.ID("team"), events.EmailSent))
		}
		want(t, tail, many...)
		quiet(t, some)
		tail.Close()

		t.Run("goes on where it was", func(t *testing.T) {
			missed := n.happen(t, dbtest.ID("team"), events.EmailBounced)
			tail := n.open(t, dbtest.ID("team"), many[len(many)-1])
			var got []string
			for !slices.Contains(got, missed) {
				all, err := tail.Next(t.Context(), 20*time.Second)
				if err != nil || len(all) == 0 {
					t.Fatalf("%v, %v", got, err)
				}
				for _, m := range all {
					got = append(got, m.ID)
				}
			}
			if tail.Missed() {
				t.Error("it says that something was missed")
			}
			if slices.Contains(got, many[len(many)-1]) {
				t.Error("it shows the last one again")
			}
		})
		t.Run("goes on at a node that was just started", func(t *testing.T) {
			fresh := newNode(d)
			x := fresh.happen(t, dbtest.ID("team"), events.EmailSent)
			if fresh.rendered != 1 {
				t.Error("it does not know that the team is watched")
			}
			tail := fresh.open(t, dbtest.ID("team"), x)
			if all, err := tail.Next(t.Context(), time.Second); err != nil || tail.Missed() ||
				slices.ContainsFunc(all, func(m eventstream.Message) bool { return m.ID == x }) {
				t.Errorf("%v, %v", all, err)
			}
			tail.Close()
		})
		t.Run("many are too many", func(t *testing.T) {
			var open []*eventstream.Tail
			for {
				tail, err := n.Open(t.Context(), dbtest.ID("team"), nil, "")
				if err != nil {
					if fault.KindOf(err) != fault.TooFast || len(open) != 4 {
						t.Errorf("after %d: %v", len(open), err)
					}
					break
				}
				open = append(open, tail)
			}
			open[0].Close()
			n.open(t, dbtest.ID("team"), "").Close()
			for _, tail := range open {
				tail.Close()
			}
		})
		t.Run("ends with the node", func(t *testing.T) {
			n.Close()
			tail := n.open(t, dbtest.ID("team"), "")
			_, err := tail.Next(t.Context(), time.Minute)
			for err == nil { // messages that the node had read before it was closed
				_, err = tail.Next(t.Context(), time.Minute)
			}
			if !errors.Is(err, eventstream.ErrClosed) {
				t.Errorf("%v", err)
			}
		})
	})
}

// TestOutOfOrder: a tail shows a message even if its transaction commits after transactions that began later.
func TestOutOfOrder(t *testing.T) {
	d := dbtest.SQLite(t)
	n := newNode(d)
	tail := n.open(t, dbtest.ID("team"), "")
	early := events.Event{ID: newID(), TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e1"), Type: events.EmailSent}
	want(t, tail, n.happen(t, dbtest.ID("team"), events.EmailDelivered))
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		return n.recorder.Record(t.Context(), tx,
			early)
	}); err != nil {
		t.Fatal(err)
	}
	want(t, tail, messageID(early.ID))
	quiet(t, tail)
}

// TestClocksDiffer: a new tail shows an event that is recorded after Open, even if the clock behind the event's id is a
// little behind the clock of the tail. It does not show events that were recorded before Open.
func TestClocksDiffer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := newNode(d)
		n.open(t, dbtest.ID("team"), "").Close() // from here on, the team is watched
		n.happen(t, dbtest.ID("team"), events.EmailSent)
		behind := time.Now().Add(-time.Second)
		tail := n.open(t, dbtest.ID("team"), "")
		e := events.Event{ID: idAt(behind), TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e1"), Type: events.EmailSent}
		if err := d.Update(t.Context(), func(tx *db.Tx) error { return n.recorder.Record(t.Context(), tx, e) }); err != nil {
			t.Fatal(err)
		}
		want(t, tail, messageID(e.ID))
		quiet(t, tail)
	})
}

// A tail on one node shows events that another node records.
func TestTwoNodes(t *testing.T) {
	url := dbtest.PostgresURL(t)
	a, b := newNode(dbtest.Open(t, url)), newNode(dbtest.Open(t, url))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 4)
	for _, f := range []func(context.Context) error{a.d.Run, a.Run, b.d.Run, b.Run} {
		go func() { done <- f(ctx) }()
	}
	defer func() {
		stop()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()
	tail := a.open(t, dbtest.ID("team"), "")
	for tries := 0; ; tries++ {
		// The other node learns by polling which teams are watched.
		b.happen(t, dbtest.ID("team"), events.EmailSent)
		all, err := tail.Next(t.Context(), 200*time.Millisecond)
		if err != nil || tries > 200 {
			t.Fatalf("nothing after %d events, %v", tries, err)
		}
		if len(all) > 0 {
			return
		}
	}
}

// TestLease: after its last tail is closed, a team stays watched until the lease expires. A tail that resumes after the
// lease has expired reports that it may have missed events.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(dbtest.SQLite(t))
		tail := n.open(t, dbtest.ID("team"), "")
		first := n.happen(t, dbtest.ID("team"), events.EmailSent)
		want(t, tail, first)
		for range 20 { // an open tail renews the lease
			time.Sleep(time.Minute)
			quiet(t, tail)
		}
		shown := n.happen(t, dbtest.ID("team"), events.EmailSent)
		want(t, tail, shown)
		tail.Close()
		time.Sleep(3 * time.Minute)
		while := n.happen(t, dbtest.ID("team"), events.EmailSent)
		again := n.open(t, dbtest.ID("team"), shown)
		if again.Missed() {
			t.Error("after 3 minutes something was missed")
		}
		want(t, again, while)
		again.Close()
		time.Sleep(6 * time.Minute)
		n.rendered = 0
		n.happen(t, dbtest.ID("team"), events.EmailSent)
		if n.rendered != 0 {
			t.Error("the team is watched still")
		}
		if !n.open(t, dbtest.ID("team"), while).Missed() {
			t.Error("after 6 minutes nothing was missed")
		}
		if err := n.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := n.d.QueryRow(t.Context(), `SELECT COUNT(*) FROM live_messages WHERE id = $1`,
			key(first)).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d old messages are left, %v", left, err)
		}
		if err := n.d.QueryRow(t.Context(), `SELECT COUNT(*) FROM live_messages WHERE id = $1`,
			key(while)).Scan(&left); err != nil || left != 1 {
			t.Errorf("%d of a message of 6 minutes ago are left, %v", left, err)
		}
	})
}

// TestRenderFails: if an event for a watched team cannot be rendered, its transaction fails, so that tails never show
// an event that was not recorded. Events for teams without a tail are not rendered.
func TestRenderFails(t *testing.T) {
	d := dbtest.SQLite(t)
	var recorder events.Recorder
	s := eventstream.New(d, slog.New(slog.DiscardHandler), func(context.Context, *db.Tx,
		*events.Event) (eventstream.Message, error) {
		return eventstream.Message{}, fmt.Errorf("broken")
	})
	recorder.Listen(s)
	record := func() error {
		return d.Update(t.Context(), func(tx *db.Tx) error {
			return recorder.Record(t.Context(), tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
				Type: events.EmailSent})
		})
	}
	if err := record(); err != nil {
		t.Error(err)
	}
	tail, err := s.Open(t.Context(), dbtest.ID("team"), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if err := record(); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
}
