package suppressions_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// If any database statement in an operation fails, the operation returns an error and leaves the database unchanged.
func TestVerbsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx, recorder := t.Context(), &events.Recorder{}
		s := suppressions.New(d, recorder)
		recorder.Listen(s)
		if _, err := s.Add(ctx, dbtest.ID("team"), []string{"ann@one.example", "bob@one.example"}); err != nil {
			t.Fatal(err)
		}
		list := func() []suppressions.Suppression {
			all, _, err := s.List(ctx, dbtest.ID("team"), "", page.Page{})
			if err != nil {
				t.Error(err)
			}
			return all
		}
		for _, c := range []struct {
			name string
			act  func() error
		}{
			{"Add", func() error {
				_, err := s.Add(ctx, dbtest.ID("team"), []string{"ann@one.example", "carl@one.example"})
				return err
			}},
			{"List", func() error { _, _, err := s.List(ctx, dbtest.ID("team"), "", page.Page{}); return err }},
			{"Among", func() error {
				_, err := s.Suppressed(ctx, d.Reader, dbtest.ID("team"), []string{"ann@one.example"})
				return err
			}},
			{"Get", func() error { _, err := s.Get(ctx, dbtest.ID("team"), "ann@one.example"); return err }},
			{"Remove", func() error { _, err := s.Remove(ctx, dbtest.ID("team"), "ann@one.example"); return err }},
			{"RemoveAll", func() error {
				_, err := s.RemoveAll(ctx, dbtest.ID("team"),
					[]string{"bob@one.example"})
				return err
			}},
			{"Recorded", func() error {
				return d.Update(ctx, func(tx *db.Tx) error {
					return recorder.Record(ctx, tx, events.Event{TeamID: dbtest.ID("team"), EmailID: dbtest.ID("e"),
						Type:      events.EmailComplained,
						Recipient: "dan@one.example", Data: &events.Complaint{}})
				})
			}},
			{"EraseAddress", func() error {
				_, err := erase(t, d, "carl@one.example", false,
					dbtest.ID("team"))
				return err
			}},
		} {
			before := list()
			failed := trace.EachBroken(t, nil, c.act, func(err error) {
				if err != nil && !slices.Equal(before, list()) {
					t.Errorf("%s fails and has changed something: %v", c.name, err)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", c.name)
			}
		}
		if trace.EachBroken(t, nil, func() error { return s.EraseTeam(ctx, dbtest.ID("team")) }, nil) < 1 ||
			len(list()) > 0 {
			t.Errorf("erased is all but %+v", list())
		}
	})
}

// If an answer from the database is lost, Add returns nil exactly when the address is suppressed. If the address is
// already suppressed, Add does not have to check whether its transaction was committed.
func TestAddWithoutAnswer(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	s := suppressions.New(d, &events.Recorder{})
	var n int
	dbtest.EachTorn(t, proxy, func() { n++ }, func() error {
		_, err := s.Add(t.Context(), dbtest.ID("team"), []string{fmt.Sprintf("to%d@one.example", n)})
		return err
	}, func(skip int, err error) {
		_, missing := s.Get(t.Context(), dbtest.ID("team"), fmt.Sprintf("to%d@one.example", n))
		if (err == nil) != (missing == nil) {
			t.Errorf("answer %d torn: it is added: %v; it is listed: %v", skip, err, missing)
		}
	})
	if n < 3 {
		t.Errorf("%d addresses were added: the test reaches too little", n)
	}
}

func erase(t *testing.T, d *db.DB, address string, dry bool, teamIDs ...string) (erasure.Report, error) {
	t.Helper()
	a, err := erasure.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return suppressions.EraseAddress(t.Context(), d, a, erasure.Scope{Teams: teamIDs, DryRun: dry})
}

// EraseAddress removes an address from the lists of 1,600 teams and counts the removed entries. A dry run only counts
// the entries.
func TestEraseAddress(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := suppressions.New(d, &events.Recorder{})
		teamIDs := make([]string, 1600)
		for i := range teamIDs {
			teamIDs[i] = dbtest.ID(dbtest.ID(fmt.Sprintf("team %04d", i)))
		}
		// No team in the second chunk of 500 teams has suppressed the address.
		for _, teamID := range []string{teamIDs[0], teamIDs[1001], teamIDs[1599], dbtest.ID("other")} {
			if _, err := s.Add(t.Context(), teamID, []string{"ann@one.example", "bob@one.example"}); err != nil {
				t.Fatal(err)
			}
		}
		left := func() (n int) {
			t.Helper()
			err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM suppressions WHERE address = 'ann@one.example'`).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, c := range []struct {
			dry  bool
			want string
			left int
		}{{true, "[{suppressions deleted 3 }]", 4}, {false, "[{suppressions deleted 3 }]", 1}, {false, "[]", 1}} {
			found, err := erase(t, d, "Ann@one.example", c.dry, teamIDs...)
			if n := left(); err != nil || fmt.Sprint(found) != c.want || n != c.left {
				t.Errorf("dry %v: found %v, %v; %d are left, want %s and %d", c.dry, found, err, n, c.want, c.left)
			}
		}
		if _, err := s.Get(t.Context(), teamIDs[0], "bob@one.example"); err != nil {
			t.Errorf("another address: %v", err)
		}
	})
}
