package suppressions_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// heard is an event listener that counts the events by type.
type heard map[events.Type]int

func (h heard) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	for _, e := range all {
		h[e.Type]++
	}
	return nil
}

func TestSuppressions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, recorder, h := t.Context(), &events.Recorder{}, heard{}
		s := suppressions.New(d, recorder)
		recorder.Listen(s)
		recorder.Listen(h)
		added, err := s.Add(ctx, dbtest.ID("team"), []string{"Ann@Example.net", "bob@example.net", "ANN@example.net"})
		if err != nil || len(added) != 3 || added[0].ID != added[2].ID || added[0].Address != "ann@example.net" {
			t.Fatalf("added %+v, %v", added, err)
		}
		if h[events.SuppressionAdded] != 2 {
			t.Errorf("%d events for 2 new addresses", h[events.SuppressionAdded])
		}
		t.Run("the first origin stays", func(t *testing.T) {
			if err := d.Update(ctx, func(tx *db.Tx) error {
				return recorder.Record(ctx, tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
					Type:      events.EmailComplained,
					Recipient: "ann@example.net", Data: &events.Complaint{}},
					events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"), Type: events.EmailBounced,
						Recipient: "Carl@Example.net",
						Data:      &events.Bounce{Type: "Permanent", Suppress: true}})
			}); err != nil {
				t.Fatal(err)
			}
			got, err := s.Get(ctx, dbtest.ID("team"), "ANN@EXAMPLE.NET")
			if err != nil || got.Origin != suppressions.Manual {
				t.Errorf("%+v, %v", got, err)
			}
			got, err = s.Get(ctx, dbtest.ID("team"), "carl@example.net")
			if err != nil || got.Origin != suppressions.Bounce || got.SourceID != dbtest.ID("e") {
				t.Errorf("%+v, %v", got, err)
			}
		})
		t.Run("lists by origin and by page", func(t *testing.T) {
			manual, more, err := s.List(ctx, dbtest.ID("team"), suppressions.Manual, page.Page{Limit: 1})
			if err != nil || len(manual) != 1 || !more || manual[0].Address != "bob@example.net" {
				t.Errorf("%+v, more %v, %v", manual, more, err)
			}
			if _, more, err := s.List(ctx, dbtest.ID("team"), "rumour", page.Page{}); more ||
				fault.KindOf(err) != fault.Invalid {
				t.Errorf("an origin that is none: %v", err)
			}
		})
		t.Run("another team sees nothing", func(t *testing.T) {
			for what, err := range map[string]error{
				"get":    second(s.Get(ctx, dbtest.ID("other"), added[0].ID)),
				"remove": second(s.Remove(ctx, dbtest.ID("other"), added[0].ID)),
			} {
				if fault.KindOf(err) != fault.NotFound {
					t.Errorf("%s: %v", what, err)
				}
			}
			found, err := s.Suppressed(ctx, d.Reader, dbtest.ID("other"), []string{"ann@example.net"})
			if err != nil || len(found) != 0 {
				t.Errorf("%v, %v", found, err)
			}
		})
		t.Run("what is not an address", func(t *testing.T) {
			for _, bad := range []string{"", "nobody", "a@b@c", "a@b.example\r\nx"} {
				if _, err := s.Add(ctx, dbtest.ID("team"), []string{bad}); err == nil {
					t.Errorf("%q is accepted", bad)
				}
			}
			if _, err := s.Get(ctx, dbtest.ID("team"), "nobody"); fault.KindOf(err) != fault.BadID {
				t.Errorf("neither an id nor an address: %v", err)
			}
		})
		t.Run("removing skips what is not there", func(t *testing.T) {
			gone, err := s.RemoveAll(ctx, dbtest.ID("team"), []string{added[0].ID, "nobody@example.net",
				strings.ToUpper("bob@example.net")})
			if err != nil || len(gone) != 2 || h[events.SuppressionRemoved] != 2 {
				t.Errorf("%+v, %v, %d events", gone, err, h[events.SuppressionRemoved])
			}
		})
	})
}

func second(_ suppressions.Suppression, err error) error { return err }
