package suppressions_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// If an existing entry blocks the insert and is removed before Add reads it, Add inserts a new entry. SQLite has only
// one writer, so the race between Add and Remove can occur only on PostgreSQL.
func TestAddBesideRemove(t *testing.T) {
	d, trace := dbtest.PostgresTraced(t)
	recorder, h := &events.Recorder{}, heard{}
	s := suppressions.New(d, recorder)
	recorder.Listen(s)
	recorder.Listen(h)
	const lookUp = "FROM suppressions WHERE team_id = $1 AND address = $2"
	for i, add := range []func(address string) error{
		func(address string) error {
			_, err := s.Add(t.Context(), dbtest.ID("team"), []string{address})
			return err
		},
		func(address string) error {
			return d.Update(t.Context(), func(tx *db.Tx) error {
				return recorder.Record(t.Context(), tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
					Type:      events.EmailComplained,
					Recipient: address, Data: &events.Complaint{}})
			})
		},
	} {
		address := fmt.Sprintf("to%d@one.example", i)
		before, err := s.Add(t.Context(), dbtest.ID("team"), []string{address})
		if err != nil {
			t.Fatal(err)
		}
		trace.Before(lookUp, func() {
			if _, err := s.Remove(t.Context(), dbtest.ID("team"), before[0].ID); err != nil {
				t.Error(err)
			}
		})
		if err := add(address); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		after, err := s.Get(t.Context(), dbtest.ID("team"), address)
		if err != nil || after.ID == before[0].ID {
			t.Errorf("%d: %+v, %v; before it was %s", i, after, err, before[0].ID)
		}
	}
	if h[events.SuppressionAdded] != 4 || h[events.SuppressionRemoved] != 2 {
		t.Errorf("events: %v", h)
	}
}

// If the same entry is removed twice concurrently, it is deleted once, and one event is recorded.
func TestRemoveBesideRemove(t *testing.T) {
	d, trace := dbtest.PostgresTraced(t)
	recorder, h := &events.Recorder{}, heard{}
	s := suppressions.New(d, recorder)
	recorder.Listen(h)
	listed, err := s.Add(t.Context(), dbtest.ID("team"), []string{"to@one.example"})
	if err != nil {
		t.Fatal(err)
	}
	trace.Before("DELETE FROM suppressions", func() {
		if _, err := s.Remove(t.Context(), dbtest.ID("team"), listed[0].ID); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Remove(t.Context(), dbtest.ID("team"), "to@one.example"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the second: %v", err)
	}
	if h[events.SuppressionRemoved] != 1 {
		t.Errorf("events: %v", h)
	}
}
