package suppressions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// Only hard bounces and complaints that are not simulated suppress an address.
func TestWhatSuppresses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		recorder := &events.Recorder{}
		s := suppressions.New(d, recorder)
		recorder.Listen(s)
		for i, c := range []struct {
			kind events.Type
			data any
			want suppressions.Origin
		}{
			{events.EmailBounced, &events.Bounce{Type: "Permanent", Suppress: true}, suppressions.Bounce},
			{events.EmailBounced, &events.Bounce{Type: "Permanent"}, ""},
			{events.EmailBounced, &events.Bounce{Type: "Permanent", Suppress: true, Simulated: true}, ""},
			{events.EmailDelayed, &events.Bounce{Type: "Permanent", Suppress: true}, ""},
			{events.EmailComplained, &events.Complaint{}, suppressions.Complaint},
			{events.EmailComplained, &events.Complaint{Simulated: true}, ""},
			{events.EmailOpened, &events.Complaint{}, ""},
			{events.EmailDelivered, nil, ""},
		} {
			to := fmt.Sprintf("to%d@one.example", i)
			for _, recipient := range []string{to, ""} { // an event without a recipient applies to the whole email
				if err := d.Update(t.Context(), func(tx *db.Tx) error {
					return recorder.Record(t.Context(), tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("other"),
						Type: events.EmailSent},
						events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"), Type: c.kind, Recipient: recipient,
							Data: c.data})
				}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Get(t.Context(), dbtest.ID("team"), to)
			if c.want == "" && fault.KindOf(err) != fault.NotFound || c.want != "" && (err != nil || got.Origin != c.want ||
				got.SourceID != dbtest.ID("e")) {
				t.Errorf("%s %+v: %+v, %v", c.kind, c.data, got, err)
			}
		}
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			return recorder.Record(t.Context(), tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
				Type:      events.EmailComplained,
				Recipient: "nobody",
				Data:      &events.Complaint{}})
		})
		if err == nil || !strings.Contains(err.Error(), "suppress nobody") {
			t.Errorf("no address: %v", err)
		}
	})
}

// Suppressed finds all suppressed addresses, even in a list of 1,200 addresses.
func TestAmongMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := suppressions.New(d, &events.Recorder{})
		all := make([]string, 1200)
		for i := range all {
			all[i] = fmt.Sprintf("to%d@one.example", i)
		}
		listed := []string{all[0], all[499], all[500], all[999], all[1000], all[1199]}
		if _, err := s.Add(t.Context(), dbtest.ID("team"), listed); err != nil {
			t.Fatal(err)
		}
		for n, want := range map[int]int{0: 0, 1: 1, 500: 2, 501: 3, 1200: 6} {
			found, err := s.Suppressed(t.Context(), d.Reader, dbtest.ID("team"), all[:n])
			if err != nil || len(found) != want {
				t.Errorf("of %d addresses %d are found, want %d (%v)", n, len(found), want, err)
			}
		}
	})
}

// List returns the entries of one origin or of all origins. Get and Remove accept ids in uppercase and lowercase.
func TestListsAndIDs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		recorder := &events.Recorder{}
		s := suppressions.New(d, recorder)
		recorder.Listen(s)
		added, err := s.Add(t.Context(), dbtest.ID("team"), []string{"ann@one.example"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			return recorder.Record(t.Context(), tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
				Type:      events.EmailComplained,
				Recipient: "bob@one.example",
				Data:      &events.Complaint{}})
		}); err != nil {
			t.Fatal(err)
		}
		for origin, want := range map[suppressions.Origin]int{"": 2, suppressions.Manual: 1, suppressions.Complaint: 1,
			suppressions.Bounce: 0} {
			all, more, err := s.List(t.Context(), dbtest.ID("team"), origin, page.Page{Limit: 2})
			if err != nil || more || len(all) != want {
				t.Errorf("origin %q: %d entries, more %v, %v", origin, len(all), more, err)
			}
		}
		upper := strings.ToUpper(added[0].ID)
		if got, err := s.Get(t.Context(), dbtest.ID("team"), upper); err != nil || got.Address != "ann@one.example" {
			t.Errorf("%+v, %v", got, err)
		}
		if gone, err := s.Remove(t.Context(), dbtest.ID("team"), upper); err != nil || gone.ID != added[0].ID {
			t.Errorf("%+v, %v", gone, err)
		}
		if _, err := s.Remove(t.Context(), dbtest.ID("team"), upper); fault.KindOf(err) != fault.NotFound {
			t.Errorf("removed twice: %v", err)
		}
		if _, err := s.Get(t.Context(), dbtest.ID("team"), "a@b@c"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("no address: %v", err)
		}
		if _, err := s.RemoveAll(t.Context(), dbtest.ID("team"), []string{"bob@one.example", "nobody"}); fault.KindOf(
			err) != fault.BadID {
			t.Errorf("neither an id nor an address: %v", err)
		}
		if _, err := s.Get(t.Context(), dbtest.ID("team"), "bob@one.example"); err != nil {
			t.Errorf("a removal that was refused removed something: %v", err)
		}
	})
}

// If the database is unavailable, no operation reports success or a missing entry.
func TestVerbsWithoutDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	s := suppressions.New(d, &events.Recorder{})
	added, err := s.Add(t.Context(), dbtest.ID("team"), []string{"ann@one.example"})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	ctx := t.Context()
	for name, f := range map[string]func() error{
		"Add":     func() error { _, err := s.Add(ctx, dbtest.ID("team"), []string{"bob@one.example"}); return err },
		"List":    func() error { _, _, err := s.List(ctx, dbtest.ID("team"), "", page.Page{}); return err },
		"Get":     func() error { _, err := s.Get(ctx, dbtest.ID("team"), added[0].ID); return err },
		"by name": func() error { _, err := s.Get(ctx, dbtest.ID("team"), "ann@one.example"); return err },
		"Remove":  func() error { _, err := s.Remove(ctx, dbtest.ID("team"), added[0].ID); return err },
		"RemoveAll": func() error {
			_, err := s.RemoveAll(ctx, dbtest.ID("team"),
				[]string{"ann@one.example"})
			return err
		},
		"Among": func() error {
			_, err := s.Suppressed(ctx, d.Reader, dbtest.ID("team"), []string{"ann@one.example"})
			return err
		},
		"EraseTeam": func() error { return s.EraseTeam(ctx, dbtest.ID("team")) },
	} {
		if err := f(); !fault.Ours(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
