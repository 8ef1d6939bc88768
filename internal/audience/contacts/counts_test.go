package contacts_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
)

// A large segment is counted in the background; until the count is done, requests get the previous count.
func TestCountSegment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.property("plan", scalar.String)
		hand := w.segment("by hand")
		filtered, err := w.Contacts.Segments.Create(ctx, w.team, segments.Definition{Name: "by filter",
			Filter: `{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`})
		if err != nil {
			t.Fatal(err)
		}
		both := []segments.Segment{hand, filtered}
		n := 0
		add := func() {
			t.Helper()
			w.upsert(fmt.Sprintf("%d@x.example", n), contacts.Change{Segments: []string{hand.ID},
				Properties: map[string]scalar.Value{"plan": scalar.OfText("pro")}})
			n++
		}
		count := func(g segments.Segment) segments.Count {
			t.Helper()
			c, err := w.Contacts.CountSegment(ctx, g)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		w.Contacts.SetCountAtOnce(2)
		for range 2 {
			for _, g := range both {
				if c := count(g); c.Contacts != n || c.At.IsZero() {
					t.Errorf("%s: %+v, want %d contacts", g.Name, c, n)
				}
			}
			add()
		}
		add()
		for _, g := range both {
			if c := count(g); c != (segments.Count{}) {
				t.Errorf("%s: %+v, but nobody has counted", g.Name, c)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Contacts.Run(ctx) }()
		for _, g := range both {
			testnode.Until(t, "the first count of "+g.Name, func() bool { return count(g).Contacts == 3 })
		}
		add()
		for _, g := range both {
			if c := count(g); c.Contacts != 3 || c != count(g) {
				t.Errorf("%s: %+v, want the last count", g.Name, c)
			}
			w.Update(func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE segment_counts SET counted_at = counted_at - 61000000 WHERE segment_id = $1`,
					db.ID(g.ID))
				return err
			})
			testnode.Until(t, "the next count of "+g.Name, func() bool { return count(g).Contacts == 4 })
		}
		usage := func(want int) {
			t.Helper()
			if u, err := w.Contacts.Usage(ctx, w.team); err != nil || u.Segments != 2 || u.Contacts != want {
				t.Errorf("usage %+v, %v; want %d contacts", u, err, want)
			}
		}
		usage(4)
		add()
		usage(4) // the last count is less than a minute old
		w.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE segment_counts SET counted_at = counted_at - 61000000`)
			return err
		})
		usage(5)
		w.Contacts.SetCountAtOnce(5)
		w.upsert("last@x.example", contacts.Change{})
		usage(5)
		w.Contacts.SetCountAtOnce(6)
		usage(6)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := w.Count(`SELECT COUNT(*) FROM segment_counts`); n != 3 {
			t.Errorf("%d counts are kept", n)
		}
	})
}
