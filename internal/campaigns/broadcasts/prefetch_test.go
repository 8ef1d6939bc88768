package broadcasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
)

// numbered returns a read function for contacts with the ids 001 to n. The read function counts its calls and returns
// at most the given number of contacts per call.
func numbered(n, most int, reads *int) func(context.Context, string, int) ([]contacts.Member, bool, error) {
	return func(_ context.Context, after string, limit int) (all []contacts.Member, more bool, err error) {
		*reads++
		limit = min(limit, most)
		for i := 1; i <= n && len(all) < limit; i++ {
			if id := fmt.Sprintf("%03d", i); id > after {
				all = append(all, contacts.Member{Contact: contacts.Contact{ID: id}})
			}
		}
		return all, len(all) == limit, nil
	}
}

func TestAhead(t *testing.T) {
	for _, c := range []struct {
		name        string
		all         int
		limit, used func(page int) int // limit of a page, and how many of its contacts are used
		most        int                // maximum number of contacts per read; 0 for no maximum
	}{
		{"nobody", 0, is(10), is(10), 0},
		{"less than a page", 7, is(10), is(10), 0},
		{"full pages", 40, is(10), is(10), 0},
		{"the last page in part", 45, is(10), is(10), 0},
		{"pages used in part", 45, is(10), is(3), 0},
		{"growing pages", 200, func(page int) int { return 5 << min(page, 4) }, is(200), 0},
		{"shrinking pages", 200, func(page int) int { return max(3, 64>>page) }, is(200), 0},
		{"uneven", 150, func(page int) int { return 3 + 7*page%11 }, func(page int) int { return 1 + page%4 }, 0},
		{"short reads", 45, is(10), is(10), 4},
		{"short reads, used in part", 45, is(10), is(3), 7},
		{"single contacts", 20, is(10), is(10), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reads int
			a := prefetcher{read: numbered(c.all, cmp.Or(c.most, c.all+1), &reads)}
			defer a.forget()
			position, got := "", 0
			for page := 0; ; page++ {
				limit := c.limit(page)
				members, ended, err := a.contactsAfter(t.Context(), position, limit)
				if err != nil {
					t.Fatal(err)
				}
				least := min(limit, cmp.Or(c.most, limit)) // at least one
				if len(members) > limit || len(members) < least && !ended {
					t.Fatalf("page %d has %d contacts of %d, and ended is %v", page, len(members), limit, ended)
				}
				used := min(c.used(page), len(members))
				for _, m := range members[:used] {
					if got++; m.ID != fmt.Sprintf("%03d", got) {
						t.Fatalf("contact %d is %s", got, m.ID)
					}
					position = m.ID
				}
				if ended && used == len(members) {
					break
				}
				if page > c.all+1 {
					t.Fatal("it does not end")
				}
			}
			if got != c.all {
				t.Errorf("%d contacts were taken of %d", got, c.all)
			}
		})
	}
}

func is(n int) func(int) int { return func(int) int { return n } }

func TestAheadReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads int
		failed := errors.New("no connection")
		a := prefetcher{read: numbered(100, 100, &reads)}
		defer a.forget()
		first := func(after, want string) {
			t.Helper()
			members, _, err := a.contactsAfter(t.Context(), after, 10)
			if err != nil || members[0].ID != want {
				t.Fatalf("after %q come %v, %v", after, members, err)
			}
			synctest.Wait()
		}
		first("", "001")
		first("010", "011")
		if reads != 3 {
			t.Errorf("two pages took %d reads, one of them ahead", reads)
		}
		first("", "001") // the audience is read again from the start
		reads = 0
		time.Sleep(mailingsTTL + time.Second)
		first("010", "011")
		if reads != 2 {
			t.Errorf("a page that was out of date was read again with %d reads", reads)
		}
		whole := a.read
		a.read = func(context.Context, string, int) ([]contacts.Member, bool, error) { return nil, false, failed }
		first("020", "021") // read before
		if _, _, err := a.contactsAfter(t.Context(), "030", 10); !errors.Is(err, failed) {
			t.Errorf("the error of reading ahead is %v", err)
		}
		a.read = whole
		first("030", "031")
	})
}
