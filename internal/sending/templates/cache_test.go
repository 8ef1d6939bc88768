package templates

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
)

// The cache never exceeds its limits on names and bytes, and after a sweep it contains no expired entries.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		c.clear()
		held := func() (n, bytes int) {
			for _, of := range c.teams {
				for _, r := range of {
					n, bytes = n+1, bytes+r.weight()
				}
			}
			return n, bytes
		}
		want := func(what string) {
			t.Helper()
			n, bytes := held()
			if n != c.n || bytes != c.bytes {
				t.Fatalf("%s: it has %d names and %d bytes, and counts %d and %d", what, n, bytes, c.n, c.bytes)
			}
			if n > cacheCount || bytes > cacheBytes {
				t.Fatalf("%s: it has %d names and %d bytes", what, n, bytes)
			}
		}
		large := published{variables: make([]Variable, MaxVariables)}
		for i := range large.variables {
			large.variables[i].Fallback = scalar.OfText(strings.Repeat("\U0001f600", scalar.MaxText))
		}
		for i := range 100 {
			c.put(fmt.Sprint("team ", i%7), fmt.Sprint(i), large, 0)
			want("large ones")
		}
		if _, _, ok := c.get("team 1", "99"); !ok {
			t.Error("the last is not cached")
		}
		for i := range cacheCount + 10 {
			c.put("team", fmt.Sprint(i), published{}, 0)
		}
		want("many")
		c.put("team", "twice", published{}, 0)
		c.put("team", "twice", large, 0)
		want("another value")
		c.forget("team")
		want("a forgotten team")
		time.Sleep(cacheFor)
		c.put("other", "x", published{}, 1)
		if want("expired ones"); c.n != 1 || len(c.teams) != 1 {
			t.Errorf("%d names of %d teams are left", c.n, len(c.teams))
		}
	})
}
