package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/sending/delivery"
)

// Only sessions that a policy forbids count. A success or an hour without a failure ends the count, and the number of
// domains is bounded.
func TestBrokenPolicies(t *testing.T) {
	t.Parallel()
	b, now := &brokenPolicies{}, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	enforced := tlsrpt.Policy{Type: tlsrpt.STS, Strings: []string{"version: STSv1", "mode: enforce"}}
	tested := tlsrpt.Policy{Type: tlsrpt.STS, Strings: []string{"version: STSv1", "mode: testing"}}
	fail := func(domain string, p tlsrpt.Policy, times int) {
		for range times {
			b.count(delivery.Session{Domain: domain, Policy: p, Result: tlsrpt.NoSTARTTLS}, now)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		if got := b.broken(now); !slices.Equal(got, want) {
			t.Errorf("the broken domains are %v instead of %v", got, want)
		}
	}
	fail("sts.example", enforced, brokenSessions)
	fail("dane.example", tlsrpt.Policy{Type: tlsrpt.TLSA}, brokenSessions)
	fail("few.example", enforced, brokenSessions-1)
	fail("tested.example", tested, brokenSessions)
	fail("plain.example", tlsrpt.Policy{Type: tlsrpt.NoPolicy}, brokenSessions)
	fail("", enforced, brokenSessions)
	expect("dane.example (DANE)", "sts.example (MTA-STS)")
	b.count(delivery.Session{Domain: "sts.example", Policy: enforced}, now)
	expect("dane.example (DANE)")
	now = now.Add(brokenFor)
	fail("few.example", enforced, 1) // which is the first one for an hour
	expect()
	b.count(delivery.Session{Domain: "few.example"}, now)
	for i := range brokenDomains + 10 {
		fail(fmt.Sprint(i, ".example"), enforced, brokenSessions)
	}
	if got := len(b.broken(now)); got != brokenDomains {
		t.Errorf("%d domains are counted", got)
	}
}
