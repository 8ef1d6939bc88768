package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a resolver that counts its look-ups. A TXT look-up takes one second and returns a TTL, as DNS does.
type counted struct {
	Fake
	untimed
	asked atomic.Int32
	ttl   time.Duration
}

func (c *counted) txt(ctx context.Context, name string) ([]string, time.Duration, error) {
	c.asked.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: %w", ErrTemporary, ctx.Err())
	}
	records, err := c.Fake.TXT(ctx, name)
	return records, c.ttl, err
}

func newCounted(ttl time.Duration) *counted {
	f := Fake{
		TXTRecords: map[string][]string{"a.example": {"a"}, "b.example": {"b"}, "c.example": {"c"}},
		Fail:       []string{"dead.example"},
	}
	return &counted{ttl: ttl, Fake: f, untimed: untimed{f}}
}

func TestCachedKeeps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		host      string
		ttl, wait time.Duration
		asked     int32
	}{
		{"within its time", "a.example", time.Minute, 59 * time.Second, 1},
		{"after its time", "a.example", time.Minute, time.Minute, 2},
		{"at least five seconds", "a.example", 0, 4 * time.Second, 1},
		{"a short time ends", "a.example", 0, 5 * time.Second, 2},
		{"at most an hour", "a.example", 48 * time.Hour, time.Hour, 2},
		{"names that do not exist", "nowhere.example", time.Minute, 59 * time.Second, 1},
		{"names that did not exist", "nowhere.example", time.Minute, time.Minute, 2},
		{"no temporary failure", "dead.example", time.Minute, 0, 2},
		{"other spellings", "A.Example.", time.Minute, time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newCounted(test.ttl)
				c := NewCached(r, 10)
				first, err := c.TXT(t.Context(), test.host)
				<-time.After(test.wait)
				second, again := c.TXT(t.Context(), test.host)
				if fmt.Sprint(first, err) != fmt.Sprint(second, again) {
					t.Errorf("first %v, %v, then %v, %v", first, err, second, again)
				}
				if n := r.asked.Load(); n != test.asked {
					t.Errorf("asked %d times, want %d", n, test.asked)
				}
			})
		})
	}
}

func TestCachedForgetsTheLeastUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newCounted(time.Hour)
		c := NewCached(r, 2)
		for _, step := range []struct {
			name  string
			asked int32
		}{{"a", 1}, {"b", 2}, {"a", 2}, {"c", 3}, {"a", 3}, {"b", 4}, {"c", 5}} {
			if _, err := c.TXT(t.Context(), step.name+".example"); err != nil {
				t.Fatal(err)
			}
			if n := r.asked.Load(); n != step.asked {
				t.Fatalf("after %s: asked %d times, want %d", step.name, n, step.asked)
			}
			if len(c.entries) > 2 || c.recent.Len() != len(c.entries) {
				t.Fatalf("%d entries, %d in order", len(c.entries), c.recent.Len())
			}
		}
	})
}

// TestCachedSharesLookups performs ten concurrent look-ups. The first caller gives up, but the others still receive the
// answer.
func TestCachedSharesLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newCounted(time.Minute)
		c := NewCached(r, 10)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := c.TXT(impatient, "a.example"); !errors.Is(err, context.DeadlineExceeded) ||
				!errors.Is(err, ErrTemporary) {
				t.Errorf("the impatient one: %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			group.Go(func() {
				if got, err := c.TXT(t.Context(), "a.example"); err != nil || len(got) != 1 {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		group.Wait()
		if n := r.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestCachedAnswersAreCopies(t *testing.T) {
	t.Parallel()
	c := NewCached(Fake{
		MXRecords:    map[string][]MX{"a.example": {{Host: "mx.example"}}},
		AddrRecords:  map[string][]netip.Addr{"a.example": {netip.MustParseAddr("192.0.2.1")}},
		CAARecords:   map[string][]CAA{"a.example": {{Tag: "issue"}}},
		CNAMERecords: map[string]string{"b.example": "a.example"},
		PTRRecords:   map[netip.Addr][]string{netip.MustParseAddr("192.0.2.1"): {"mx.example"}},
	}, 0)
	for range 2 {
		mx, err1 := c.MX(t.Context(), "b.example")
		addrs, err2 := c.Addrs(t.Context(), "b.example")
		caa, err3 := c.CAA(t.Context(), "b.example")
		alias, err4 := c.CNAME(t.Context(), "b.example")
		names, err5 := c.PTR(t.Context(), netip.MustParseAddr("::ffff:192.0.2.1"))
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Fatal(err)
		}
		if mx[0].Host != "mx.example" || addrs[0].String() != "192.0.2.1" || caa[0].Tag != "issue" || alias != "a.example" ||
			names[0] != "mx.example" {
			t.Fatalf("%v %v %v %v %v", mx, addrs, caa, alias, names)
		}
		mx[0].Host, addrs[0], caa[0].Tag, names[0] = "changed", netip.Addr{}, "changed", "changed"
	}
}

func TestUnescape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", `a\"b`: `a"b`, `a\\b`: `a\b`, `\195\164`: "ä", `\000x`: "\x00x", `\12`: "12", `a\`: `a\`, `\`: `\`,
	} {
		if got := Unescape(in); got != want {
			t.Errorf("Unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

// The cache is bounded in bytes too: owners of domains decide how large answers are.
func TestCacheIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := NewCached(Fake{}, 100_000)
	for i := range 3000 {
		records := []TLSA{{Data: make([]byte, 60_000)}}
		c.add(entry{key: key{tlsaKind, strconv.Itoa(i)}, value: Answer[TLSA]{Records: records},
			expires: time.Now().Add(time.Hour)})
	}
	sum := 0
	for _, element := range c.entries {
		sum += element.Value.(*entry).size
	}
	if sum != c.size || c.size > maxBytes || len(c.entries) != c.recent.Len() || len(c.entries) < 900 {
		t.Errorf("%d entries of %d bytes, counted as %d", len(c.entries), sum, c.size)
	}
	c.add(entry{key: key{tlsaKind, "2999"}, expires: time.Now().Add(-time.Hour)})
	before := c.size
	if _, ok := c.recall(key{tlsaKind, "2999"}); ok || c.size >= before {
		t.Errorf("an expired entry: %v, %d bytes before and %d after", ok, before, c.size)
	}
}
