package page_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// kind returns the type of a column of ids.
func kind(d *db.DB) string {
	return map[string]string{"sqlite": "BLOB", "postgres": "UUID"}[d.Engine()]
}

// key returns the id of the row with a name of up to 16 bytes. Ids sort as names do.
func key(name string) string {
	return uuid.UUID([]byte(name + strings.Repeat("\x00", 16-len(name)))).String()
}

// scanName scans an id, and returns the name of its row.
func scanName(r db.Row) (name string, err error) {
	var id db.ID
	if err = r.Scan(&id); err != nil {
		return "", err
	}
	u, err := uuid.Parse(string(id))
	return strings.TrimRight(string(u[:]), "\x00"), err
}

// at returns a page whose cursors are names, with ids as cursors.
func at(p page.Page) page.Page {
	for _, cursor := range []*string{&p.After, &p.Before} {
		if *cursor != "" {
			*cursor = key(*cursor)
		}
	}
	return p
}

var quoted = regexp.MustCompile(`'([a-z]\d*)'`)

// literals returns a condition with ids in place of names in quotes.
func literals(d *db.DB, condition string) string {
	return quoted.ReplaceAllStringFunc(condition, func(name string) string {
		if id := key(strings.Trim(name, "'")); d.Engine() == "postgres" {
			return `CAST('` + id + `' AS UUID)`
		} else {
			return `X'` + strings.ReplaceAll(id, "-", "") + `'`
		}
	})
}

// shelf creates a table with rows a0 to a9 for team one and row b0 for team two.
func shelf(t *testing.T, d *db.DB) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `CREATE TABLE shelf (id `+kind(d)+` PRIMARY KEY, team TEXT NOT NULL)`); err != nil {
			return err
		}
		for i := range 10 {
			put(t, tx, fmt.Sprintf("a%d", i), "one")
		}
		put(t, tx, "b0", "two")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, tx *db.Tx, name, team string) {
	tx.Queue(t.Context(), `INSERT INTO shelf (id, team) VALUES ($1, $2)`, db.ID(key(name)), team)
}

func query(ctx context.Context, d *db.DB, p page.Page) (string, bool, error) {
	s := page.Select{Text: `SELECT s.id FROM shelf s WHERE s.team = $1`, ID: "s.id", Args: []any{"one"}}
	names, more, err := page.Query(ctx, d.Reader, s, at(p), scanName)
	return strings.Join(names, " "), more, err
}

// If OldestFirst is set, Query returns the items of a list in reverse order.
func TestQueryOldestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		shelf(t, d)
		for _, c := range []struct {
			page page.Page
			want string
			more bool
		}{
			{page.Page{}, "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9", false},
			{page.Page{Limit: 3}, "a0 a1 a2", true},
			{page.Page{Limit: 10}, "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9", false},
			{page.Page{Limit: 3, After: "a2"}, "a3 a4 a5", true},
			{page.Page{Limit: 3, After: "a6"}, "a7 a8 a9", false},
			{page.Page{Limit: 3, After: "a9"}, "", false},
			{page.Page{Limit: 3, Before: "a5"}, "a2 a3 a4", true},
			{page.Page{Limit: 3, Before: "a3"}, "a0 a1 a2", false},
			{page.Page{Limit: 2, After: "a55"}, "a6 a7", true},
		} {
			s := page.Select{Text: `SELECT id FROM shelf WHERE team = $1`, ID: "id", Args: []any{"one"}, OldestFirst: true}
			ids, more, err := page.Query(t.Context(), d.Reader, s, at(c.page), scanName)
			if got := strings.Join(ids, " "); err != nil || got != c.want || more != c.more {
				t.Errorf("%+v: got %q, more %v, error %v; want %q, %v", c.page, got, more, err, c.want, c.more)
			}
		}
	})
}

// In a partitioned table, pages and searches have the same items as in others, whatever ids the rows and the cursors
// have.
func TestQueryInSpans(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ids := []string{"00000000-0000-4000-8000-000000000000", id.First(time.Unix(3600, 0)),
			"55555555-5555-4555-8555-555555555555", "ffffffff-ffff-7fff-bfff-ffffffffffff"}
		for _, days := range []int{-400, -399, -90, -40, -33, -32, -30, -9, -3, -2, -1, 0, 1, 40, 900} {
			for hours := range 2 {
				ids = append(ids, id.First(time.Now().AddDate(0, 0, days).Add(time.Duration(hours)*time.Hour)))
			}
		}
		slices.Sort(ids)
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), `CREATE TABLE shelf (id `+kind(d)+` PRIMARY KEY)`); err != nil {
				return err
			}
			_, err := tx.InsertRows(t.Context(), `shelf (id)`, "", db.IDs(ids))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for _, oldest := range []bool{false, true} {
			for i := -1; i < 2*len(ids); i++ {
				for _, limit := range []int{1, 2, 7, 100} {
					p := page.Page{Limit: limit}
					switch {
					case i >= len(ids):
						p.Before = ids[i-len(ids)]
					case i >= 0:
						p.After = ids[i]
					}
					s := page.Select{Text: `SELECT s.id FROM shelf s WHERE TRUE`, ID: "s.id", OldestFirst: oldest}
					scan := func(r db.Row) (id string, err error) { err = r.Scan((*db.ID)(&id)); return id, err }
					want, wantMore, err := page.Query(t.Context(), d.Reader, s, p, scan)
					if err != nil {
						t.Fatal(err)
					}
					s.InSpans = true
					got, more, err := page.Query(t.Context(), d.Reader, s, p, scan)
					if err != nil || !slices.Equal(got, want) || more != wantMore {
						t.Errorf("%+v, oldest first %v: %q, more %v, %v; want %q, %v", p, oldest, got, more, err, want, wantMore)
					}
					some := s
					some.Text += " AND TRUE"
					var parts [2][]string
					for j, inSpans := range []bool{false, true} {
						s.InSpans, some.InSpans = inSpans, inSpans
						found, more, next, err := page.Search(t.Context(), d.Reader, s, some, p, scan)
						parts[j] = append(found, fmt.Sprint(more, next, err))
						if p.Before == "" {
							found, next, err = page.Part(t.Context(), d.Reader, s, some, p.After, limit, scan, itself)
							parts[j] = append(append(parts[j], found...), fmt.Sprint(next, err))
						}
					}
					if !slices.Equal(parts[0], parts[1]) {
						t.Errorf("%+v, oldest first %v: parts are %q, want %q", p, oldest, parts[1], parts[0])
					}
				}
			}
		}
	})
}

func TestQuery(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		shelf(t, d)
		for _, c := range []struct {
			name string
			page page.Page
			want string
			more bool
		}{
			{"all, newest first", page.Page{}, "a9 a8 a7 a6 a5 a4 a3 a2 a1 a0", false},
			{"the first page", page.Page{Limit: 3}, "a9 a8 a7", true},
			{"exactly all", page.Page{Limit: 10}, "a9 a8 a7 a6 a5 a4 a3 a2 a1 a0", false},
			{"after leaves the cursor out", page.Page{Limit: 3, After: "a7"}, "a6 a5 a4", true},
			{"the last page", page.Page{Limit: 3, After: "a2"}, "a1 a0", false},
			{"after the oldest is nothing", page.Page{Limit: 3, After: "a0"}, "", false},
			{"after without a limit", page.Page{After: "a2"}, "a1 a0", false},
			{"before is the page just before the cursor", page.Page{Limit: 3, Before: "a3"}, "a6 a5 a4", true},
			{"before the second is the newest", page.Page{Limit: 3, Before: "a8"}, "a9", false},
			{"before the newest is nothing", page.Page{Limit: 3, Before: "a9"}, "", false},
			{"before without a limit", page.Page{Before: "a7"}, "a9 a8", false},
			{"before, and no more", page.Page{Limit: 3, Before: "a6"}, "a9 a8 a7", false},
			{"a cursor that is gone, after", page.Page{Limit: 2, After: "a55"}, "a5 a4", true},
			{"a cursor that is gone, before", page.Page{Limit: 2, Before: "a55"}, "a7 a6", true},
			{"a cursor of another team is a place like any other", page.Page{Limit: 2, After: "b0"}, "a9 a8", true},
		} {
			t.Run(c.name, func(t *testing.T) {
				got, more, err := query(t.Context(), d, c.page)
				if err != nil || got != c.want || more != c.more {
					t.Errorf("got %q, more %v, error %v; want %q, %v", got, more, err, c.want, c.more)
				}
			})
		}
	})
}

// A client that pages through a list in either direction finds every row once, even if rows are inserted or deleted
// between pages.
func TestWalkIsStable(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		shelf(t, d)
		var down []string
		for p, more := (page.Page{Limit: 3}), true; more; {
			text, next, err := query(t.Context(), d, p)
			if err != nil {
				t.Fatal(err)
			}
			ids := strings.Fields(text)
			down, more = append(down, ids...), next
			p.After = ids[len(ids)-1]
			err = d.Update(t.Context(), func(tx *db.Tx) error {
				if len(down) == 6 {
					put(t, tx, p.After+"x", "one") // inserts a row into an earlier page
				} else { // deletes the row that the cursor names
					tx.Queue(t.Context(), `DELETE FROM shelf WHERE id = $1`, db.ID(key(p.After)))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(strings.Fields("a9 a8 a7 a6 a5 a4 a3 a2 a1 a0"), down); diff != "" {
			t.Error(diff)
		}
		var up []string
		for p, more := (page.Page{Limit: 2, Before: "a0"}), true; more; {
			text, next, err := query(t.Context(), d, p)
			if err != nil {
				t.Fatal(err)
			}
			ids := strings.Fields(text)
			up, more = slices.Concat(ids, up), next
			p.Before = ids[0]
		}
		if diff := cmp.Diff(strings.Fields("a9 a8 a6 a5 a4x a4 a3 a2"), up); diff != "" {
			t.Error(diff)
		}
	})
}

func TestQueryFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if text, more, err := query(t.Context(), d, page.Page{}); err == nil || text != "" || more {
			t.Errorf("a table that is not there gave the page %q, more %v, %v", text, more, err)
		}
	})
}

func TestAll(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		shelf(t, d)
		insert := func(from, to int) {
			t.Helper()
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				for i := from; i < to; i++ {
					put(t, tx, fmt.Sprintf("c%04d", i), "many")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		insert(0, 1203)
		s := page.Select{Text: `SELECT s.id FROM shelf s WHERE s.team = $1`, ID: "s.id", Args: []any{"many"}}
		scanned, yielded := 0, 0
		scan := func(r db.Row) (id string, err error) {
			scanned++
			return scanName(r)
		}
		for id, err := range page.All(t.Context(), d.Reader, s, scan, key) {
			if want := fmt.Sprintf("c%04d", 1202-yielded); err != nil || id != want {
				t.Fatalf("item %d is %s, want %s (%v)", yielded, id, want, err)
			}
			if yielded++; scanned-yielded > 502 {
				t.Fatalf("%d rows are read and %d used", scanned, yielded)
			}
			if yielded == 100 {
				insert(1203, 1300) // All omits rows that are inserted this late
			}
		}
		if yielded != 1203 {
			t.Errorf("%d items", yielded)
		}
		for range page.All(t.Context(), d.Reader, s, scan, key) {
			scanned = 0
			break
		}
		s.Text = `SELECT nothing`
		n := 0
		for _, err := range page.All(t.Context(), d.Reader, s, scan, key) {
			if n++; err == nil {
				t.Error("a query that fails gives an item")
			}
		}
		if n != 1 || scanned != 0 {
			t.Errorf("%d items of a query that fails, %d rows after the end", n, scanned)
		}
	})
}

// The batches that Part returns contain each selected row once. The number of rows that each batch reads does not
// depend on how many rows match.
func TestPart(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		shelf(t, d)
		list := page.Select{Text: `SELECT s.id FROM shelf s WHERE s.team = $1`, ID: "s.id", Args: []any{"one"}}
		for _, c := range []struct {
			condition string
			n         int
			want      string // the rows of each part
			queries   int
		}{
			{"", 4, "a9 a8 a7 a6|a5 a4 a3 a2|a1 a0", 3},
			{"", 5, "a9 a8 a7 a6 a5|a4 a3 a2 a1 a0", 2},
			{"", 10, "a9 a8 a7 a6 a5 a4 a3 a2 a1 a0", 1},
			{` AND s.id <> 'a8'`, 4, "a9 a7 a6|a5 a4 a3 a2|a1 a0", 6},
			{` AND s.id IN ('a7', 'a2')`, 3, "a7||a2|", 8},
			{` AND s.id IN ('a7', 'a2')`, 5, "a7|a2|", 6},
			{` AND s.id = 'x'`, 11, "", 2},
		} {
			some := list
			some.Text += literals(d, c.condition)
			var parts []string
			trace.Take()
			for after, more := "", true; more; more = after != "" {
				ids, next, err := page.Part(t.Context(), d.Reader, list, some, after, c.n, scanName, key)
				if err != nil {
					t.Fatal(err)
				}
				parts, after = append(parts, strings.Join(ids, " ")), next
			}
			if got, n := strings.Join(parts, "|"), len(trace.Take()); got != c.want || n != c.queries {
				t.Errorf("%q by %d: %q by %d queries, want %q by %d", c.condition, c.n, got, n, c.want, c.queries)
			}
		}
		trace.EachBroken(t, nil, func() error {
			some := list
			some.Text += literals(d, ` AND s.id <> 'a8'`)
			_, _, err := page.Part(t.Context(), d.Reader, list, some, "", 4, scanName, key)
			return err
		}, nil)
	})
}

// Search returns the same page as Query for a condition without an index. The run time of Search does not depend on how
// many rows match.
func TestSearch(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		shelf(t, d)
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			var long []db.ID
			for i := range 10_000 {
				long = append(long, db.ID(key(fmt.Sprintf("d%d", 100_000+i))))
			}
			_, err := tx.InsertRows(t.Context(), `shelf (id, team)`, "", long, "long")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			team, condition string
			page            page.Page
			want            string
			more            bool
			next            string
			queries         int
		}{
			{"one", "", page.Page{Limit: 3}, "a9 a8 a7", true, "", 1},
			{"one", ` AND s.id <> 'a8'`, page.Page{Limit: 3}, "a9 a7 a6", true, "", 2},
			{"one", ` AND s.id <> 'a8'`, page.Page{Limit: 3, Before: "a3"}, "a6 a5 a4", true, "", 2},
			{"one", ` AND s.id <> 'a8'`, page.Page{Limit: 4, Before: "a5"}, "a9 a7 a6", false, "", 2},
			{"one", ` AND s.id = 'x'`, page.Page{Limit: 3}, "", false, "", 2},
			{"long", ` AND s.id IN ('d109999', 'd109700', 'd109000')`, page.Page{Limit: 2}, "d109999 d109700", true, "", 4},
			{"long", ` AND s.id IN ('d109999', 'd109000', 'd108999')`, page.Page{Limit: 2}, "d109999 d109000", true, "", 6},
			{"long", ` AND s.id < 'd100003'`, page.Page{Limit: 2, After: "d101500"}, "d100002 d100001", true, "", 6},
			{"long", ` AND s.id < 'd100002'`, page.Page{Limit: 2, After: "d101500"}, "d100001 d100000", false, "", 6},
			{"long", ` AND s.id > 'd109997'`, page.Page{Limit: 2, Before: "d108900"}, "d109999 d109998", false, "", 6},
			{"long", ` AND s.id > 'd109996'`, page.Page{Limit: 2, Before: "d108900"}, "d109998 d109997", true, "", 6},
		} {
			all := page.Select{Text: `SELECT s.id FROM shelf s WHERE s.team = $1`, ID: "s.id", Args: []any{c.team}}
			some := all
			some.Text += literals(d, c.condition)
			trace.Take()
			ids, more, next, err := page.Search(t.Context(), d.Reader, all, some, at(c.page), scanName)
			got, n := strings.Join(ids, " "), len(trace.Take())
			if err != nil || got != c.want || more != c.more || next != c.next || n != c.queries {
				t.Errorf("%s %q %+v: %q, more %v, next %q by %d queries, %v; want %q, %v, %q by %d", c.team, c.condition, c.page,
					got, more, next, n, err, c.want, c.more, c.next, c.queries)
			}
		}
		trace.EachBroken(t, nil, func() error {
			all := page.Select{Text: `SELECT s.id FROM shelf s WHERE s.team = $1`, ID: "s.id", Args: []any{"one"}}
			some := all
			some.Text += literals(d, ` AND s.id <> 'a8'`)
			_, _, _, err := page.Search(t.Context(), d.Reader, all, some, page.Page{Limit: 3}, scanName)
			return err
		}, nil)
	})
}
