package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A client that names many hosts is limited and does not limit others. Hosts that had a certificate are never limited.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s, err := newStrangers()
	if err != nil {
		t.Fatal(err)
	}
	from := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	asked := 0
	count := func(n int, client func(i int) net.Addr) (allowed int) {
		for i := range n {
			asked++
			if s.mayLookUp(fmt.Sprintf("host%d.example", asked), client(i)) {
				allowed++
			}
		}
		return allowed
	}
	one := func(ip string) func(int) net.Addr { return func(int) net.Addr { return from(ip) } }
	for _, x := range []struct {
		name        string
		n           int
		client      func(int) net.Addr
		least, most int
	}{
		{"one address", 5 * sourceBurst, one("198.51.100.1"), sourceBurst, 2 * sourceBurst},
		{"one IPv6 network", 5 * sourceBurst, func(i int) net.Addr { return from(fmt.Sprintf("2001:db8:1:%x::1", i)) },
			sourceBurst, 2 * sourceBurst},
		{"another address", 10, one("198.51.100.2"), 10, 10},
		{"a load balancer", 3 * sourceBurst, one("10.0.0.1"), 3 * sourceBurst, 3 * sourceBurst},
		{"many addresses", 10 * lookupBurst, func(i int) net.Addr {
			return from(fmt.Sprintf("203.%d.%d.9", i/250, i%250))
		}, 1, 2 * lookupBurst},
	} {
		if got := count(x.n, x.client); got < x.least || got > x.most {
			t.Errorf("%s: %d of %d look-ups; want %d to %d", x.name, got, x.n, x.least, x.most)
		}
	}
	s.accept("links.customer.example")
	for range 100 {
		if !s.mayLookUp("links.customer.example", from("198.51.100.1")) {
			t.Fatal("a customer's host is not looked up, because strangers named many hosts")
		}
	}
	for i := range 2 * sourceMax {
		s.refuse(fmt.Sprint(i))
		s.limiter(mustNetwork(t, fmt.Sprintf("2001:db8:%x::1", i)))
	}
	if s.refused.Len() != refusedMax || s.sources.Len() != sourceMax || !s.isRefused(fmt.Sprint(2*sourceMax-1)) ||
		s.isRefused("0") {
		t.Errorf("%d hosts and %d sources are in memory", s.refused.Len(), s.sources.Len())
	}
}

func mustNetwork(t *testing.T, ip string) netip.Prefix {
	t.Helper()
	network, ok := networkOf(&net.TCPAddr{IP: net.ParseIP(ip)})
	if !ok {
		t.Fatalf("%s has no network", ip)
	}
	return network
}

// Many requests for challenges that do not exist cost few queries, and do not keep anybody from one that exists, even
// if another node has begun it a moment ago.
func TestChallengeList(t *testing.T) {
	var queries atomic.Int64
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.SQLiteFile(t), Trace: func(s db.Statement) {
		if strings.Contains(s.SQL, "certificate_values") && strings.HasPrefix(s.SQL, "SELECT") {
			queries.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	s := testStorage(t, d)
	l := &challengeList{storage: s}
	began := time.Now()
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			if _, err := l.find(t.Context(), acme.ChallengeTypeHTTP01, fmt.Sprint("none", i)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a challenge that does not exist: %v", err)
			}
		})
	}
	all.Wait()
	if n, most := queries.Load(), 2+int64(time.Since(began)/readingEvery); n > most {
		t.Errorf("500 requests made %d queries; want at most %d", n, most)
	}
	c := acme.Challenge{Type: acme.ChallengeTypeHTTP01, Token: "token", KeyAuthorization: "token.key"}
	c.Identifier.Value = host
	other := shared{testStorage(t, d), acme.ChallengeTypeHTTP01} // of another node
	if err := other.Present(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := l.find(t.Context(), acme.ChallengeTypeHTTP01, "token"); err != nil ||
			got.KeyAuthorization != c.KeyAuthorization {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, key := range []string{"", "../accounts", "a/b", strings.Repeat("x", tokenMax+1), "a\x00"} {
		if _, err := l.find(t.Context(), acme.ChallengeTypeHTTP01, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", key, err)
		}
	}
	s.Close()
	if _, err := l.find(t.Context(), acme.ChallengeTypeHTTP01, "other"); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}
