package tracking_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/tracking"
)

// recordedMax is the maximum number of hits of one kind that are recorded.
const recordedMax = 1000

// repeat adds the same hit n times and records the hits.
func (c *counted) repeat(n int, h tracking.Hit) {
	c.T.Helper()
	for range n {
		c.Add(h)
	}
	c.flush()
}

// kinds returns the number of stored opens and clicks for an email, by recipient and kind.
func (c *counted) kinds(emailID string) map[string]int {
	c.T.Helper()
	n := map[string]int{}
	rows, err := c.DB.Query(c.T.Context(), `SELECT type, detail, recipient, COUNT(*) FROM email_events
		WHERE email_id = $1 AND type IN (6, 7) GROUP BY type, detail, recipient`, db.ID(emailID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var detail, recipient string
		var number int16
		var count int
		if err := r.Scan(&number, &detail, &recipient, &count); err != nil {
			return none, err
		}
		typ, err := events.TypeName(number)
		n[strings.Join(strings.Fields(typ+" "+detail+" "+recipient), " ")] = count
		return none, err
	})
	if err != nil {
		c.T.Fatal(err)
	}
	return n
}

// TestHitsWithoutEnd: following a link repeatedly creates a limited number of events, even after a restart. Hits of
// other kinds are still recorded, even those by the same recipient.
func TestHitsWithoutEnd(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		emailID, other := c.delivered(time.Minute, "ann@one.example", "bob@one.example"), c.delivered(time.Minute,
			"ann@one.example")
		open := tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox}
		c.repeat(recordedMax-1, open)
		c.repeat(2, open)
		c.repeat(700, open)
		want := map[string]int{"opened ann@one.example": recordedMax}
		check := func(when string) {
			t.Helper()
			got := c.kinds(emailID)
			for kind, n := range want {
				if got[kind] != n {
					t.Errorf("%s: %d %s are recorded, want %d", when, got[kind], kind, n)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %v", when, got)
			}
		}
		check("without end")
		c.Service = newCounted(c.Node).Service
		c.repeat(10, open)
		check("after a restart")

		click, machine, bob, nobody, elsewhere := open, open, open, open, open
		click.URL, machine.UserAgent, bob.Position, nobody.Position = target, "curl/8", 1, -1
		elsewhere.EmailID = other
		c.repeat(3, open)
		c.Add(click)
		c.Add(machine)
		c.Add(bob)
		c.Add(elsewhere)
		c.repeat(recordedMax+3, nobody)
		want["clicked ann@one.example"], want["opened machine ann@one.example"] = 1, 1
		want["opened bob@one.example"], want["opened"] = 1, recordedMax
		check("with others")
		if n := c.kinds(other)["opened ann@one.example"]; n != 1 {
			t.Errorf("%d opens of another email are recorded, want one", n)
		}
		if c.Dropped() != 0 || c.log.String() != "" {
			t.Errorf("%d dropped, log %s", c.Dropped(), c.log.String())
		}
	})
}

// Recording hits beyond the limit writes nothing to the database. Stored hits are counted using an index, once per
// batch.
func TestStatementsBeyondTheLimit(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		c := newCounted(testnode.New(t, d, testnode.Options{}))
		open := tracking.Hit{Ref: c.Ref(c.delivered(time.Minute, "ann@one.example")), Addr: home, UserAgent: firefox}
		c.repeat(recordedMax, open)
		trace.Take()
		c.repeat(400, open)
		all := trace.Take()
		if len(all) > 3 {
			t.Errorf("it takes %d statements", len(all))
		}
		counted := 0
		for _, s := range all {
			if !strings.HasPrefix(s.SQL, "SELECT") {
				t.Errorf("this is written: %s", s.SQL)
			}
			if !strings.Contains(s.SQL, "email_events") {
				continue
			}
			counted++
			plan := trace.Plan(t, s)
			index := "email_events_hits"
			if d.Engine() == "postgres" { // the name of the same index of a partition
				index = "_email_id_type_recipient_detail_create"
			}
			at := strings.Index(plan, index)
			if at < 0 {
				t.Fatalf("it is not counted by the index:\n%s", plan)
			}
			for _, column := range []string{"email_id", "type", "recipient", "detail"} {
				if !strings.Contains(plan[at:], column) {
					t.Errorf("the index is not asked for the %s:\n%s", column, plan)
				}
			}
		}
		if counted != 1 {
			t.Errorf("it is counted %d times", counted)
		}
	})
}
