package delivery

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
)

func addrs(list ...string) (all []netip.Addr) {
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func TestPlan(t *testing.T) {
	t.Parallel()
	dns := resolve.Fake{MXRecords: map[string][]resolve.MX{
		destination: {{Host: "c.test", Pref: 30}, {Host: "a.test", Pref: 10}, {Host: "b.test", Pref: 20}},
		"us.net":    {{Host: "a.test", Pref: 10}, {Host: "us.test", Pref: 20}, {Host: "c.test", Pref: 30}},
		"half.net":  {{Host: "missing.test", Pref: 10}, {Host: "c.test", Pref: 20}},
		"fail.net":  {{Host: "missing.test", Pref: 10}, {Host: "broken.test", Pref: 20}},
	}, AddrRecords: map[string][]netip.Addr{
		"a.test": addrs("2606:4700::1", "1.1.1.1", "10.0.0.1"), "b.test": addrs("1.1.1.2"), "c.test": addrs("1.1.1.3"),
		"implicit.net": addrs("1.1.1.4"),
	}, Fail: []string{"broken.test"}}
	for _, c := range []struct {
		name, domain string
		six          bool
		dead         string
		want         []string
		err          error
	}{
		{"by preference, IPv6 first", destination, true, "", []string{"[2606:4700::1]:25", "1.1.1.1:25", "1.1.1.2:25",
			"1.1.1.3:25"}, nil},
		{"without a route to IPv6", destination, false, "", []string{"1.1.1.1:25", "[2606:4700::1]:25", "1.1.1.2:25",
			"1.1.1.3:25"}, nil},
		{"what failed lately comes last", destination, false, "1.1.1.1:25", []string{"[2606:4700::1]:25", "1.1.1.2:25",
			"1.1.1.3:25", "1.1.1.1:25"}, nil},
		{"only hosts preferred to us", "us.net", false, "", []string{"1.1.1.1:25", "[2606:4700::1]:25"}, nil},
		{"a host without address is passed over", "half.net", false, "", []string{"1.1.1.3:25"}, nil},
		{"no MX", "implicit.net", false, "", []string{"1.1.1.4:25"}, nil},
		{"a host that may have an address", "fail.net", false, "", nil, resolve.ErrTemporary},
		{"no such domain", "nowhere.net", false, "", nil, resolve.ErrNoDomain},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newService(Config{Transport: Direct, OwnHosts: []string{"US.test"}}, Deps{DNS: dns})
			known := time.Now().Unix()
			if !c.six {
				known = -known
			}
			s.ipv6.Store(known)
			if c.dead != "" {
				s.hosts.claimDial(c.dead, time.Now())
				s.hosts.endDial(c.dead, noGreeting, answer{}, time.Now())
			}
			w, err := s.choose(t.Context(), c.domain, "", domains.Opportunistic, nil)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v", err)
			}
			var got []string
			for _, h := range w.hops {
				got = append(got, h.addr)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	const far, near = "relay.test:587", "127.0.0.1:25"
	for _, c := range []struct {
		transport, relay string
		relayTLS         smtpclient.TLSMode
		user             string
		domain           string
		want             smtpclient.TLSMode
	}{
		{Direct, "", 0, "", domains.Opportunistic, smtpclient.TLSOpportunistic},
		{Direct, "", 0, "", domains.Enforced, smtpclient.TLSRequired},
		{Relay, far, smtpclient.TLSNone, "", domains.Opportunistic, smtpclient.TLSNone},
		{Relay, far, smtpclient.TLSNone, "", domains.Enforced, smtpclient.TLSRequired},
		{Relay, near, smtpclient.TLSNone, "", domains.Enforced, smtpclient.TLSNone}, // as configured by the operator
		{Relay, near, smtpclient.TLSOpportunistic, "", domains.Enforced, smtpclient.TLSRequired},
		{Relay, near, smtpclient.TLSOpportunistic, "", domains.Opportunistic, smtpclient.TLSOpportunistic},
		{Relay, near, smtpclient.TLSRequired, "", domains.Enforced, smtpclient.TLSRequired},
		{Relay, near, smtpclient.TLSImplicit, "", domains.Enforced, smtpclient.TLSImplicit},
		{Relay, "localhost:25", smtpclient.TLSOpportunistic, "", domains.Enforced, smtpclient.TLSRequired},
		{Relay, far, smtpclient.TLSOpportunistic, "", domains.Opportunistic, smtpclient.TLSOpportunistic},
		{Relay, far, smtpclient.TLSOpportunistic, "", domains.Enforced, smtpclient.TLSRequired},
		{Relay, far, smtpclient.TLSOpportunistic, "user", domains.Opportunistic, smtpclient.TLSRequired},
		{Relay, near, smtpclient.TLSOpportunistic, "user", domains.Opportunistic, smtpclient.TLSOpportunistic},
		{Relay, far, smtpclient.TLSNone, "user", domains.Opportunistic, smtpclient.TLSNone}, // as configured
		{Relay, far, smtpclient.TLSImplicit, "", domains.Enforced, smtpclient.TLSImplicit},
	} {
		got := directMode(c.domain, nil)
		if c.transport == Relay {
			got = relayMode(&routing.Relay{Address: c.relay, TLS: c.relayTLS, Username: c.user}, c.domain == domains.Enforced)
		}
		if got != c.want {
			t.Errorf("%+v: mode %v", c, got)
		}
	}
}

func TestNextWait(t *testing.T) {
	t.Parallel()
	schedule := []time.Duration{time.Minute, time.Hour}
	now := time.Now()
	for _, c := range []struct {
		tries int
		age   time.Duration
		wait  time.Duration
		over  bool
	}{
		{0, 0, time.Minute, false}, {1, time.Minute, time.Hour, false}, {2, time.Hour, time.Hour, true},
		{2, time.Minute, time.Hour, false}, // the email's host was not contacted
		{49, time.Minute, time.Hour, false},
		{0, 4 * time.Hour, time.Minute, true}, // was rarely tried
	} {
		wait, over := nextWait(schedule, jobs.Job{Tries: c.tries, CreatedAt: now.Add(-c.age)}, now)
		if wait != c.wait || over != c.over {
			t.Errorf("%d tries after %v: %v, %v", c.tries, c.age, wait, over)
		}
	}
}

func TestElideMiddle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{{"short", 10, "short"}, {"0123456789abcdef", 11, "012\n…\ndef"}, {"ÄÄÄÄÄÄÄÄ", 12, "Ä\n…\nÄÄ"}} {
		if got := elideMiddle(c.text, c.limit); got != c.want || len(got) > c.limit {
			t.Errorf("%q: %q", c.text, got)
		}
	}
}
