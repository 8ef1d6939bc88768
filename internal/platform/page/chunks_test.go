package page_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// The chunks of a page contain the same items that Query returns, for both list orders and on both sides of a cursor.
func TestChunks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		shelf(t, d)
		for _, oldest := range []bool{false, true} {
			s := page.Select{Text: `SELECT s.id FROM shelf s WHERE s.team = $1`, ID: "s.id", Args: []any{"one"},
				OldestFirst: oldest}
			read := func(p page.Page) ([]string, bool, error) { return page.Query(t.Context(), d.Reader, s, p, scanName) }
			for _, p := range []page.Page{{}, {After: "a7"}, {After: "a2"}, {After: "a0"}, {After: "a9"}, {After: "a55"},
				{Before: "a7"}, {Before: "a2"}, {Before: "a0"}, {Before: "a9"}, {Before: "a55"}, {Before: "c"}} {
				want, _, err := read(at(p))
				if err != nil {
					t.Fatal(err)
				}
				for size := 1; size <= 11; size++ {
					c := page.NewChunks(at(p), size, read, key)
					var got []string
					for !c.Last() {
						items, err := c.Next()
						if err != nil || len(items) > size || c.More() {
							t.Fatalf("%q, more %v, %v", items, c.More(), err)
						}
						got = append(got, items...)
					}
					if !slices.Equal(got, want) {
						t.Errorf("oldest first %v, %+v by %d: %q, want %q", oldest, p, size, got, want)
					}
				}
			}
		}
	})
}

// numbers is a list of the numbers below n, newest first. Tests delete some numbers during a read.
type numbers struct {
	n       int
	gone    map[int]bool
	reads   int
	deletes map[int][]int // numbers to delete, keyed by the read before which they are deleted
}

func (l *numbers) read(p page.Page) (items []string, more bool, err error) {
	for _, i := range l.deletes[l.reads] {
		l.gone[i] = true
	}
	l.reads++
	var all []string
	for i := l.n - 1; i >= 0; i-- {
		text := fmt.Sprintf("%06d", i)
		if !l.gone[i] && (p.After == "" || text < p.After) && (p.Before == "" || text > p.Before) {
			all = append(all, text)
		}
	}
	if len(all) <= p.Limit {
		return all, false, nil
	}
	if p.Before != "" {
		return all[len(all)-p.Limit:], true, nil
	}
	return all[:p.Limit], true, nil
}

func itself(id string) string { return id }

// All chunks of a page together have at most page.Most items. If the list has more items, More returns true.
func TestMostChunks(t *testing.T) {
	t.Parallel()
	for _, p := range []page.Page{{}, {Before: "000001"}} {
		l := &numbers{n: page.Most + 5}
		c := page.NewChunks(p, page.Most/4, l.read, itself)
		n, first, last := 0, "", ""
		for !c.Last() {
			items, err := c.Next()
			if err != nil || len(items) > page.Most/4 {
				t.Fatalf("%d items, %v", len(items), err)
			}
			for _, last = range items {
				if n++; first == "" {
					first = last
				}
			}
		}
		want := [2]string{"100004", "000005"}
		if p.Before != "" {
			want = [2]string{"100001", "000002"}
		}
		if n != page.Most || !c.More() || [2]string{first, last} != want {
			t.Errorf("%+v: %d items from %s to %s, more %v", p, n, first, last, c.More())
		}
	}
}

// Chunks omits only those items of a page that are deleted while the page is read.
func TestChunksOfWhatIsDeleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page    page.Page
		deletes map[int][]int
		want    string
	}{
		{page.Page{}, map[int][]int{1: {7, 6, 5}}, "9 8 4 3 2 1 0"},
		{page.Page{}, map[int][]int{1: {8}, 2: {0, 1, 2, 3, 4, 5}}, "9 8 7 6"},
		{page.Page{Before: "000001"}, map[int][]int{4: {5, 9}}, "9 8 7 6 4 3 2"},
		{page.Page{Before: "000001"}, map[int][]int{3: {8, 9}}, "7 6 5 4 3 2"},
		{page.Page{Before: "000001"}, map[int][]int{4: {2, 3}}, "9 8 7 6 5 4"},
		{page.Page{Before: "000001"}, map[int][]int{0: {2, 3, 4, 5, 6, 7, 8, 9}}, ""},
	} {
		l := &numbers{n: 10, gone: map[int]bool{}, deletes: c.deletes}
		chunks := page.NewChunks(c.page, 2, l.read, itself)
		var got []string
		for !chunks.Last() {
			items, err := chunks.Next()
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range items {
				got = append(got, strings.TrimLeft(id[:5], "0")+id[5:])
			}
		}
		if text := strings.Join(got, " "); text != c.want || chunks.More() {
			t.Errorf("%+v, of which %v are deleted: %q, want %q", c.page, c.deletes, text, c.want)
		}
	}
}

// If a read fails, Next returns the read's error, in both directions.
func TestChunksFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, p := range []page.Page{{}, {Before: "a"}} {
		c := page.NewChunks(p, 2, func(page.Page) ([]string, bool, error) { return nil, false, broken }, itself)
		if items, err := c.Next(); !errors.Is(err, broken) || items != nil || c.Last() {
			t.Errorf("%q, %v, last %v", items, err, c.Last())
		}
	}
}
