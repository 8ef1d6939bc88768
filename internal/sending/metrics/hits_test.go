package metrics_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// step is one step of a PostgreSQL query plan, with its row counts per execution.
type step struct {
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Joined  float64 `json:"Rows Removed by Join Filter"`
	Plans   []step
}

// read returns the number of rows that a plan step and its substeps read.
func (s step) read() float64 {
	n := (s.Rows + s.Removed + s.Joined) * s.Loops
	for _, below := range s.Plans {
		n += below.read()
	}
	return n
}

// For many late hits by one recipient on one link, each query reads only a few rows per hit. This test uses the row
// counts of PostgreSQL's query plans; a test in package cli checks that both databases use the indexes.
func TestHitsOfOneLink(t *testing.T) {
	const hits = 1000
	d, trace := dbtest.PostgresTraced(t)
	w, now := newFixture(t, d), time.Now()
	var all []events.Event
	for i := range hits {
		all = append(all, events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[0].id, Type: events.EmailClicked,
			Recipient: w.emails[0].to[0], At: now.Add(time.Duration(i-2*hits) * time.Second),
			Data: &events.Click{Machine: events.Machine{Is: i < hits/2}}})
	}
	w.happen(t, all[:hits/2]...)
	if err := w.s.RollUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.happen(t, all[hits/2:]...) // these events are older than the time up to which RollUp has counted events
	trace.Take()
	q := metrics.Query{From: now.Add(-24 * time.Hour), To: now}
	people, unique := 0, 0
	got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
	for _, c := range got {
		people, unique = people+c.People, unique+c.Recipients
	}
	if err != nil || people != 1 || unique != 1 || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.s.RollUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	explained := 0
	for _, s := range trace.Take() {
		if !strings.HasPrefix(strings.TrimSpace(s.SQL), "SELECT") {
			continue
		}
		var plan string
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			// RollUp has deleted the late entries, so the test inserts them again.
			for _, text := range []string{`SET LOCAL enable_seqscan = off`, `SET LOCAL enable_bitmapscan = off`} {
				if _, err := tx.Exec(t.Context(), text); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(t.Context(),
				`INSERT INTO email_counts_late (team_id, id, email_id, at) SELECT team_id, id, email_id, created_at
				FROM email_events WHERE team_id = $1 ON CONFLICT DO NOTHING`, db.ID(dbtest.ID("team"))); err != nil {
				return err
			}
			return tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) `+s.SQL, s.Args...).Scan(&plan)
		})
		var steps []struct{ Plan step }
		if err != nil || json.Unmarshal([]byte(plan), &steps) != nil || len(steps) != 1 {
			t.Fatalf("%v: %s", err, plan)
		}
		if n := steps[0].Plan.read(); n > 30*hits {
			t.Errorf("%.0f rows are read for %d hits by %s", n, hits, s.SQL)
		}
		explained++
	}
	if explained < 5 {
		t.Errorf("%d queries", explained)
	}
}
