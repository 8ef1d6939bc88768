package contacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// walkers creates n contacts in a segment; every tenth contact has the plan "pro".
func walkers(f *filtered, n int) (ids []string) {
	f.t.Helper()
	for i := range n {
		at := f.now.Add(time.Duration(i) * time.Millisecond)
		p := &person{Contact: Contact{ID: id.First(at)[:24] + id.New()[24:], TeamID: f.team,
			Address: fmt.Sprintf("%d@x.example", i), CreatedAt: f.now}, texts: map[string]string{"plan": "free"},
			segments: []bool{true}}
		if i%10 == 5 {
			p.texts["plan"] = "pro"
		}
		f.write(p)
		ids = append(ids, p.ID)
	}
	return ids
}

// walked reads an audience page by page with Walk, and returns the contact ids and the SQL statements.
func (f *filtered) walked(trace *dbtest.Trace, a Audience, limit int) (ids []string, asked []db.Statement) {
	f.t.Helper()
	trace.Take()
	for after := ""; ; {
		some, more, err := f.s.Walk(f.t.Context(), f.team, a, after, limit)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, m := range some {
			after = m.ID
			ids = append(ids, m.ID)
		}
		if !more {
			return ids, trace.Take()
		}
	}
}

// Walk reads contacts in parts of bounded size. This also applies if it skips many contacts that do not match the
// filter or were added after the audience's cutoff time.
func TestWalksPassOverManyInParts(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFiltered(t, d)
		const n, part = 100, 10
		ids := walkers(f, n)
		f.exec(`UPDATE contact_segments SET created_at = $1 WHERE contact_id > $2 AND contact_id < $3`,
			f.now.Add(time.Second).UnixMicro(), db.ID(ids[2]), db.ID(ids[n-3]))
		f.exec(`UPDATE contacts SET created_at = $1 WHERE id > $2 AND id < $3`, f.now.Add(time.Second).UnixMicro(),
			db.ID(ids[2]), db.ID(ids[n-3]))
		f.exec(`UPDATE segments SET filter = $1 WHERE id = $2`,
			`{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`, db.ID(f.segments[2]))
		f.s.SetParts(part, 1_000_000)
		early := slices.Concat(ids[:3], ids[n-3:])
		var pro []string
		for i := 5; i < n; i += 10 {
			pro = append(pro, ids[i])
		}
		for name, c := range map[string]struct {
			a    Audience
			want []string
		}{
			"memberships": {Audience{SegmentID: f.segments[0], Before: f.now}, early},
			"contacts":    {Audience{Before: f.now}, early},
			"a filter":    {Audience{SegmentID: f.segments[2]}, pro},
		} {
			got, asked := f.walked(trace, c.a, 2)
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %d of %d are found", name, len(got), len(c.want))
			}
			parts := 0
			for _, s := range asked {
				if !strings.Contains(s.SQL, "LIMIT") {
					continue
				}
				parts++
				for _, arg := range s.Args {
					if limit, ok := arg.(int); ok && limit > part {
						t.Errorf("%s: %d at once: %s", name, limit, s.SQL)
					}
				}
			}
			// Each page may reread one part that the previous page has already read.
			if most := 2 * (n/part + len(c.want) + 2); parts > most || parts < n/part {
				t.Errorf("%s: %d parts, want %d at most", name, parts, most)
			}
		}
	})
}

// If few contacts match, Walk finds them through the indexes on values, unless that recently took too long for the same
// filter.
func TestWalksBySets(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFiltered(t, d)
		ids := walkers(f, 30)
		f.exec(`UPDATE segments SET filter = $1 WHERE id = $2`,
			`{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`, db.ID(f.segments[2]))
		f.s.SetParts(1, 0)
		want := []string{ids[5], ids[15], ids[25]}
		sets := func() (n int) {
			t.Helper()
			got, asked := f.walked(trace, Audience{SegmentID: f.segments[2]}, 2)
			if !slices.Equal(got, want) {
				t.Errorf("found %q, want %q", got, want)
			}
			for _, s := range asked {
				if strings.Contains(s.SQL, "x.contact_id") {
					n++
				}
			}
			return n
		}
		if sets() == 0 {
			t.Error("no sets are looked for")
		}
		g, err := f.s.Segments.Get(t.Context(), f.team, f.segments[2])
		if err != nil {
			t.Fatal(err)
		}
		f.s.slow.add(filterKey(g), d.Now(), time.Hour)
		if n := sets(); n != 0 {
			t.Errorf("%d sets are looked for", n)
		}
	})
}

// If the search through the indexes on values is canceled, Walk continues by reading parts after the contacts that have
// already been found.
func TestSetsThatAreGivenUpLeaveWhatTheyFound(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFiltered(t, d)
		ids := walkers(f, 50)
		f.exec(`UPDATE segments SET filter = $1 WHERE id = $2`,
			`{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`, db.ID(f.segments[2]))
		want := []string{ids[5], ids[15], ids[25], ids[35], ids[45]}
		of, err := f.s.audience(t.Context(), f.s.DB.Reader, f.team, Audience{SegmentID: f.segments[2]})
		if err != nil {
			t.Fatal(err)
		}
		f.s.limits.maxIDs = 2
		for asked := range 3 { // number of chunks read before the cancellation
			find := f.s.finder(of, "", true, 10)
			ctx, cancel := context.WithCancel(t.Context())
			n := -1
			var next func()
			next = func() {
				if n++; n == asked {
					cancel()
					return
				}
				trace.Before("c.id = ANY", next)
			}
			trace.Before("c.id = ANY", next)
			if err := find.sets(ctx, f.s.DB.Reader); !errors.Is(err, context.Canceled) || len(find.found) != 2*asked {
				t.Fatalf("%d found, %v", len(find.found), err)
			}
			for !find.done() {
				if err := find.readPart(t.Context(), f.s.DB.Reader); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, c := range find.found {
				got = append(got, c.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("given up after %d chunks: found %q, want %q", asked, got, want)
			}
		}
	})
}
