package audit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// change writes a row and calls the more function in the same transaction.
func change(ctx context.Context, d *db.DB, more func(tx *db.Tx) error) error {
	return d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `INSERT INTO custom_events (id, team_id, name, fields, created_at, updated_at)
			VALUES ($1, $2, $3, '', 0, 0)`, db.ID(id.New()), db.ID(dbtest.ID("team")), id.New())
		if more != nil {
			return more(tx)
		}
		return nil
	})
}

// entries returns a team's audit entries, newest first. The entries function checks the id and time of each entry and
// clears both fields.
func entries(t *testing.T, l *audit.Log, teamID string, f audit.Filter) []audit.Entry {
	t.Helper()
	all, more, next, err := l.List(t.Context(), teamID, f, page.Page{Limit: 100})
	if err != nil || more || next != "" {
		t.Fatalf("more %v, next %q, %v", more, next, err)
	}
	for i := range all {
		e := &all[i]
		if at, ok := id.Time(e.ID); !ok || e.At.Sub(at).Abs() > time.Second || time.Since(e.At).Abs() > time.Minute {
			t.Errorf("id %s of %v", e.ID, e.At)
		}
		e.ID, e.At = "", time.Time{}
	}
	return all
}

func want(t *testing.T, got []audit.Entry, want ...audit.Entry) {
	t.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

var request = audit.Entry{TeamID: dbtest.ID("team"), ActorKind: "key", ActorID: dbtest.ID("k"), ActorName: "Production",
	Action: "thing.created", Target: "path", Address: "192.0.2.1", UserAgent: "test/1", RequestID: "r"}

// with returns a copy of the test request's entry, modified by the edit function.
func with(edit func(e *audit.Entry)) audit.Entry {
	e := request
	edit(&e)
	return e
}

// A detail that is set at the beginning stays in front of a later one, also if the transaction is tried again.
func TestDetailStays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		ctx := audit.With(t.Context(), with(func(e *audit.Entry) { e.Detail = "command" }))
		if err := change(ctx, d, func(*db.Tx) error {
			for range 2 {
				audit.Detail(ctx, "two words")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		want(t, entries(t, l, dbtest.ID("team"), audit.Filter{}), with(func(e *audit.Entry) { e.Detail = "command: two words" }))
	})
}

// A request's entry is written with the request's first change, and includes details that are added in that
// transaction.
func TestRequest(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		ctx := audit.With(t.Context(), request)
		broken := errors.New("broken")
		if err := change(ctx, d, func(*db.Tx) error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		want(t, entries(t, l, dbtest.ID("team"), audit.Filter{}))
		for i := range 2 {
			if err := change(ctx, d, func(*db.Tx) error {
				audit.Target(ctx, []string{"made", "too late"}[i])
				audit.Detail(ctx, "two words")
				audit.Team(ctx, dbtest.ID("not this one"))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		want(t, entries(t, l, dbtest.ID("team"), audit.Filter{}), with(func(e *audit.Entry) {
			e.Target, e.Detail = "made",
				"two words"
		}))
		want(t, entries(t, l, dbtest.ID("other"), audit.Filter{}))
	})
}

// An entry that a package records replaces the request's entry and keeps its actor and address.
func TestRecordInPlace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		ctx := audit.With(t.Context(), request)
		broken := errors.New("broken")
		record := func(tx *db.Tx) error {
			l.Record(ctx, tx, audit.Entry{Action: audit.MemberInvited, Target: "i"})
			l.Record(ctx, tx, audit.Entry{Action: audit.MemberJoined, ActorKind: "user", ActorID: dbtest.ID("u"), Detail: "own"})
			return nil
		}
		if err := change(ctx, d, func(tx *db.Tx) error { record(tx); return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		for _, more := range []func(*db.Tx) error{record, nil} {
			if err := change(ctx, d, more); err != nil {
				t.Fatal(err)
			}
		}
		want(t, entries(t, l, dbtest.ID("team"), audit.Filter{}),
			with(func(e *audit.Entry) {
				e.Action, e.ActorKind, e.ActorID, e.ActorName, e.Target, e.Detail = audit.MemberJoined, "user",
					dbtest.ID("u"), "", "", "own"
			}),
			with(func(e *audit.Entry) { e.Action, e.Target = audit.MemberInvited, "i" }))
	})
}

// If the transaction that records an entry fails, a later transaction still writes the request's entry.
func TestRecordedInATransactionThatFailed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		ctx := audit.With(t.Context(), request)
		broken := errors.New("broken")
		if err := change(ctx, d, func(tx *db.Tx) error {
			l.Record(ctx, tx, audit.Entry{Action: "undone"})
			return broken
		}); !errors.Is(err, broken) {
			t.Error(err)
		}
		if err := change(ctx, d, nil); err != nil {
			t.Fatal(err)
		}
		want(t, entries(t, l, dbtest.ID("team"), audit.Filter{}), request)
	})
}

// An entry that is recorded outside of a request names the system as its actor. A request's entry without an action
// supplies only its address.
func TestOrigin(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		if err := change(t.Context(), d, func(tx *db.Tx) error {
			audit.Target(t.Context(), "nobody's")
			l.Record(t.Context(), tx, audit.Entry{TeamID: dbtest.ID("team"), Action: "a"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		client := audit.With(t.Context(), audit.Entry{Address: "192.0.2.1", UserAgent: "browser"})
		person := audit.With(client, audit.Entry{TeamID: dbtest.ID("team"), ActorKind: "user", ActorID: dbtest.ID("u")})
		if err := change(person, d, nil); err != nil {
			t.Fatal(err)
		}
		if err := l.Write(person, audit.Entry{Action: "b"}); err != nil {
			t.Fatal(err)
		}
		if err := l.Write(audit.Without(person), audit.Entry{TeamID: dbtest.ID("team"), Action: "c"}); err != nil {
			t.Fatal(err)
		}
		want(t, entries(t, l, dbtest.ID("team"), audit.Filter{}),
			audit.Entry{TeamID: dbtest.ID("team"), ActorKind: "system", Action: "c"},
			audit.Entry{TeamID: dbtest.ID("team"), ActorKind: "user", ActorID: dbtest.ID("u"), Action: "b",
				Address:   "192.0.2.1",
				UserAgent: "browser"},
			audit.Entry{TeamID: dbtest.ID("team"), ActorKind: "system", Action: "a"})
	})
}

// Filters select the same entries in lists and in batches, and each page starts where the previous page ended.
func TestFilters(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		write := func(e audit.Entry) audit.Entry {
			t.Helper()
			e.ActorKind = "key"
			if err := l.Write(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		a := write(audit.Entry{TeamID: dbtest.ID("team"), ActorID: dbtest.ID("x"), Action: "one", Target: "t"})
		b := write(audit.Entry{TeamID: dbtest.ID("team"), ActorID: dbtest.ID("y"), Action: "one", Target: "u"})
		c := write(audit.Entry{TeamID: dbtest.ID("team"), ActorID: dbtest.ID("x"), Action: "two", Target: "u"})
		write(audit.Entry{TeamID: dbtest.ID("other"), ActorID: dbtest.ID("x"), Action: "one", Target: "t"})
		all, _, _, err := l.List(t.Context(), dbtest.ID("team"), audit.Filter{}, page.Page{Limit: 100})
		if err != nil || len(all) != 3 {
			t.Fatal(len(all), err)
		}
		second := all[1].At
		for name, test := range map[string]struct {
			f    audit.Filter
			want []audit.Entry
		}{
			"all":                  {audit.Filter{}, []audit.Entry{c, b, a}},
			"actor":                {audit.Filter{ActorID: dbtest.ID("x")}, []audit.Entry{c, a}},
			"action":               {audit.Filter{Action: "one"}, []audit.Entry{b, a}},
			"target":               {audit.Filter{Target: "u"}, []audit.Entry{c, b}},
			"all of them":          {audit.Filter{ActorID: dbtest.ID("x"), Action: "two", Target: "u"}, []audit.Entry{c}},
			"nothing":              {audit.Filter{ActorID: dbtest.ID("y"), Action: "two"}, nil},
			"no id":                {audit.Filter{ActorID: "x"}, nil},
			"from":                 {audit.Filter{From: second}, []audit.Entry{c, b}},
			"to":                   {audit.Filter{To: second}, []audit.Entry{a}},
			"span without entries": {audit.Filter{From: second, To: second}, nil},
			"actor and to":         {audit.Filter{ActorID: dbtest.ID("x"), To: second}, []audit.Entry{a}},
		} {
			t.Run(name, func(t *testing.T) {
				want(t, entries(t, l, dbtest.ID("team"), test.f), test.want...)
				some, next, err := l.Part(t.Context(), dbtest.ID("team"), test.f, "")
				if err != nil || next != "" || len(some) != len(test.want) {
					t.Errorf("a part of %d, next %q, %v", len(some), next, err)
				}
			})
		}
		first, more, _, err := l.List(t.Context(), dbtest.ID("team"), audit.Filter{}, page.Page{Limit: 2})
		if err != nil || !more || len(first) != 2 {
			t.Fatal(len(first), more, err)
		}
		rest, more, _, err := l.List(t.Context(), dbtest.ID("team"), audit.Filter{}, page.Page{Limit: 2,
			After: first[1].ID})
		if err != nil || more || len(rest) != 1 || rest[0].ID != all[2].ID {
			t.Errorf("%+v, more %v, %v", rest, more, err)
		}
	})
}

// Strings from requests are truncated and cleaned, so that the database accepts them.
func TestTexts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := audit.New(d, 0)
		long := strings.Repeat("ü", 5000)
		err := l.Write(t.Context(), audit.Entry{TeamID: dbtest.ID("team"), ActorKind: "key", ActorName: "a\x00b\xff",
			Action: "x",
			Target: long, Detail: long, UserAgent: long, Address: long, RequestID: long})
		if err != nil {
			t.Fatal(err)
		}
		e := entries(t, l, dbtest.ID("team"), audit.Filter{})[0]
		if e.ActorName != "ab" {
			t.Errorf("%q", e.ActorName)
		}
		for _, text := range []string{e.Target, e.Detail, e.UserAgent, e.Address, e.RequestID} {
			if len(text) == 0 || len(text) > 1000 || !utf8.ValidString(text) {
				t.Errorf("%d bytes", len(text))
			}
		}
	})
}

// Sweep deletes old entries for all teams and old entries without a team. EraseTeam deletes all of a team's entries.
func TestSweepAndErase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const kept = 48 * time.Hour
		old := time.Now().Add(-kept - time.Minute)
		insert := func(teamID string, at time.Time, n int) {
			t.Helper()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				for range n {
					tx.Queue(t.Context(), `INSERT INTO audit_log (id, team_id, actor_kind, actor_id, actor_name, action,
						target, detail, address, user_agent, request_id, at) VALUES ($1, $2, '', NULL, '', '', '', '',
						'', '', '', $3)`,
						db.ID(id.First(at)[:24]+id.New()[24:]), db.ID(teamID), at.UnixMicro())
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		count := func() (n int) {
			t.Helper()
			if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM audit_log`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		insert(dbtest.ID("team"), old, 600)
		insert("", old, 1)
		insert(dbtest.ID("team"), old.Add(2*time.Minute), 510)
		insert(dbtest.ID("other"), old.Add(2*time.Minute), 1)
		if err := audit.New(d, 0).Sweep(t.Context()); err != nil || count() != 1112 {
			t.Errorf("%d entries without a retention, %v", count(), err)
		}
		l := audit.New(d, kept)
		if err := l.Sweep(t.Context()); err != nil || count() != 511 {
			t.Errorf("%d entries left, %v", count(), err)
		}
		if err := l.EraseTeam(t.Context(), dbtest.ID("team")); err != nil || count() != 1 {
			t.Errorf("%d entries left, %v", count(), err)
		}
	})
}
