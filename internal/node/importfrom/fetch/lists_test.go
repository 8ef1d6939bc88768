package fetch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/node/importfrom/fetch"
)

// numbers returns the texts of the numbers from a to b.
func numbers(a, b int) (all []string) {
	for i := a; i <= b; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// read reads a list by offsets and returns the records that it got. The function change may replace the list before
// each page; answer returns a page.
func read(o *fetch.Offsets, answer func(page, offset int) []string, total int) (got []string, err error) {
	at, _, _ := fetch.Find([]string{"x"}, "")
	for page := range 1000 {
		ids := answer(page, o.Offset(at))
		skip, next, err := o.Next(at, ids, total)
		if err != nil {
			return got, err
		}
		got = append(got, ids[skip:]...)
		if next == nil {
			return got, nil
		}
		cursor := next.Cursor()
		if at, _, _ = fetch.Find([]string{"x"}, cursor); at != *next {
			return got, fmt.Errorf("the cursor %s is %+v", cursor, at)
		}
	}
	return got, fmt.Errorf("the list does not end")
}

// part returns a page of a list.
func part(all []string, offset, limit int) []string {
	return all[min(offset, len(all)):min(offset+limit, len(all))]
}

// Records that are added or deleted while a list is read make no other record disappear.
func TestOffsetsOfChangingLists(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(page int, all []string) []string{
		"nothing": func(_ int, all []string) []string { return all },
		"added":   func(page int, all []string) []string { return slices.Concat(numbers(1000+page*5, 1000+page*5+4), all) },
		"deleted": func(page int, all []string) []string {
			if page == 2 {
				return slices.Delete(slices.Clone(all), 0, 3)
			}
			return all
		},
		"many deleted": func(page int, all []string) []string {
			if page == 2 {
				return slices.Delete(slices.Clone(all), 0, 30)
			}
			return all
		},
		"the last one deleted": func(page int, all []string) []string {
			if page == 2 {
				return slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == "38" })
			}
			return all
		},
	} {
		all := numbers(1, 95)
		got, err := read(&fetch.Offsets{Limit: 20}, func(page, offset int) []string {
			all = change(page, all)
			return part(all, offset, 20)
		}, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, id := range all {
			if len(id) < 4 && !slices.Contains(got, id) { // new records need not be seen
				t.Errorf("%s: %s is missing", name, id)
			}
		}
		if name == "nothing" {
			if diff := cmp.Diff(numbers(1, 95), got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// A list of a server that ignores offsets, repeats records or has a wrong total ends.
func TestOffsetsOfHostileLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer func(page, offset int) []string
		total  int
		want   int    // number of records
		err    string // part of the error
	}{
		{"no offsets", func(int, int) []string { return numbers(1, 20) }, 0, -1, "changes faster"},
		{"no offsets, a short page", func(int, int) []string { return numbers(1, 5) }, 1 << 40, 5, ""},
		{"always another page", func(page, _ int) []string { return numbers(100*page, 100*page+19) }, 0, -1, "changes faster"},
		{"a huge page", func(int, int) []string { return numbers(1, 21) }, 0, 0, "21 records, although 20"},
		{"a total that is too small", func(_, offset int) []string { return part(numbers(1, 50), offset, 20) }, 1, 50, ""},
		{"a total that is too large", func(_, offset int) []string { return part(numbers(1, 50), offset, 20) }, 1 << 40, 50, ""},
		{"a negative total", func(_, offset int) []string { return part(numbers(1, 40), offset, 20) }, -5, 40, ""},
		{"small pages", func(_, offset int) []string { return part(numbers(1, 50), offset, 10) }, 50, 50, ""},
		{"nothing", func(int, int) []string { return nil }, 100, 0, ""},
	} {
		got, err := read(&fetch.Offsets{Limit: 20}, c.answer, c.total)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want >= 0 && len(got) != c.want {
			t.Errorf("%s: %d records", c.name, len(got))
		}
	}
}

// A cursor whose list is gone, and one of another program, begin with the first list.
func TestFind(t *testing.T) {
	t.Parallel()
	lists := []string{"a", "b"}
	for _, c := range []struct {
		cursor string
		list   string
		lost   bool
	}{{"", "a", false}, {fetch.After(lists, 0), "b", false}, {fetch.Place{List: "c", At: 7}.Cursor(), "a", true},
		{"1 500", "a", true}, {`{"list":"b","at":"x"}`, "a", true}} {
		p, number, lost := fetch.Find(lists, c.cursor)
		if p.List != c.list || lists[number] != c.list || lost != c.lost || p.At != 0 {
			t.Errorf("%q: %+v, %v", c.cursor, p, lost)
		}
	}
	if next := fetch.After(lists, 1); next != "" {
		t.Errorf("after the last list: %q", next)
	}
}

// Lists that a source holds in memory end.
func TestPages(t *testing.T) {
	t.Parallel()
	for want, next := range map[string]func(n int) string{"same page": func(int) string { return "x" },
		"more than 1000": func(n int) string { return fmt.Sprint(n) }} {
		n := 0
		err := fetch.Pages(func(string) (string, error) {
			n++
			return next(n), nil
		})
		if err == nil || !strings.Contains(err.Error(), want) || n > fetch.MaxPages+1 {
			t.Errorf("after %d pages: %v", n, err)
		}
	}
	var got []string
	err := fetch.Pages(func(cursor string) (string, error) {
		got = append(got, cursor)
		return []string{"a", "b", ""}[len(got)-1], nil
	})
	if diff := cmp.Diff([]string{"", "a", "b"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}
