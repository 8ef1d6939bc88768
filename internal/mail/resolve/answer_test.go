package resolve

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A negative answer is cached for the shorter of two times: the minimum TTL in the SOA record, and the TTL of the SOA
// record itself (RFC 2308 section 5).
func TestTTLOfAbsentRecords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ns   []string
		want time.Duration
	}{
		{nil, defaultTTL},
		{[]string{"example.com. 7 IN NS ns.example.com."}, defaultTTL},
		{[]string{"example.com. 7 IN NS ns.example.com.", "example.com. 30 IN SOA a. b. 1 2 3 4 40"}, 30 * time.Second},
		{[]string{"example.com. 40 IN SOA a. b. 1 2 3 4 30"}, 30 * time.Second},
	} {
		m := new(dns.Msg)
		for _, text := range c.ns {
			m.Ns = append(m.Ns, record(t, text))
		}
		if got := newAnswer(m).negativeTTL(); got != c.want {
			t.Errorf("%q: %v, want %v", c.ns, got, c.want)
		}
	}
}

// A look-up follows up to maxHops aliases, and the result is cached for the shortest of their TTLs.
func TestAliasesOfOneAnswer(t *testing.T) {
	t.Parallel()
	chain := func(n int) (a answer) {
		for i := range n {
			a.records = append(a.records, record(t, fmt.Sprintf("n%d.example. %d IN CNAME n%d.example.", i, 100-i, i+1)))
		}
		return a
	}
	if last, ttl, aliased, err := chain(0).end("n0.example"); err != nil || last != "n0.example" || ttl != maxTTL ||
		aliased {
		t.Errorf("none: %s, %v, %v, %v", last, ttl, aliased, err)
	}
	last, ttl, aliased, err := chain(maxHops).end("n0.example")
	if err != nil || last != fmt.Sprintf("n%d.example", maxHops) || ttl != time.Duration(101-maxHops)*time.Second ||
		!aliased {
		t.Errorf("as many as may be: %s, %v, %v, %v", last, ttl, aliased, err)
	}
	if _, _, _, err := chain(maxHops + 1).end("n0.example"); !errors.Is(err, ErrTemporary) {
		t.Errorf("one more: %v", err)
	}
}

func record(t *testing.T, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}
