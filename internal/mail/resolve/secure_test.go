package resolve_test

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// elsewhere returns the address of a server as if it were not on a loopback address: the name of the unspecified
// address leads to this machine too.
func elsewhere(n *nameserver) string { return strings.Replace(n.addr, "127.0.0.1", "0.0.0.0", 1) }

// signed returns a handler that marks an answer as authenticated if the query asks for that, and if none of the names
// in the answer is in an unsigned zone.
func signed(answer func(*nameserver, dns.ResponseWriter, *dns.Msg), unsigned ...string) func(*nameserver,
	dns.ResponseWriter, *dns.Msg) {
	return withRoot(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		answer(n, marking{w, q, unsigned}, q)
	})
}

// withRoot returns a handler that passes the self-check and does not count it.
func withRoot(answer func(*nameserver, dns.ResponseWriter, *dns.Msg)) func(*nameserver, dns.ResponseWriter, *dns.Msg) {
	return func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name != "." {
			answer(n, w, q)
			return
		}
		n.udp.Add(-1)
		rootZone(n, marking{w, q, nil}, q)
	}
}

var rootZone = zone(`. 300 IN SOA a.root.test. b.root.test. 1 2 3 4 5`)

type marking struct {
	dns.ResponseWriter
	query    *dns.Msg
	unsigned []string
}

func (w marking) WriteMsg(m *dns.Msg) error {
	names := []string{m.Question[0].Name}
	for _, rr := range m.Answer {
		names = append(names, rr.Header().Name)
		if alias, ok := rr.(*dns.CNAME); ok && m.Question[0].Qtype != dns.TypeCNAME {
			names = append(names, alias.Target)
		}
	}
	m.AuthenticatedData = w.query.AuthenticatedData && m.Rcode != dns.RcodeServerFailure
	for _, name := range names {
		for _, zone := range w.unsigned {
			if dns.IsSubDomain(zone, strings.ToLower(name)) {
				m.AuthenticatedData = false
			}
		}
	}
	return w.ResponseWriter.WriteMsg(m)
}

var secureZone = zone(
	`example.com. 300 IN MX 10 mx.example.com.`,
	`mx.example.com. 300 IN A 192.0.2.1`,
	`mx.example.com. 300 IN AAAA 2001:db8::1`,
	`_25._tcp.mx.example.com. 300 IN TLSA 3 1 1 `+strings.Repeat("0A", 32),
	`_25._tcp.mx.example.com. 300 IN TLSA 2 0 2 `+strings.Repeat("0b", 64),
	`_25._tcp.alias.example.com. 300 IN CNAME _25._tcp.mx.example.com.`,
	`alias.example.com. 300 IN CNAME mx.example.com.`,
	`out.example.com. 300 IN CNAME mx.plain.test.`,
	`through.example.com. 300 IN CNAME back.plain.test.`,
	`back.plain.test. 300 IN CNAME mx.example.com.`,
	`mx.plain.test. 300 IN A 192.0.2.2`,
	`plain.test. 300 IN MX 10 mx.plain.test.`,
	`in.plain.test. 300 IN CNAME mx.example.com.`,
)

func TestSecureAnswers(t *testing.T) {
	t.Parallel()
	r := resolver(t, serve(t, signed(secureZone, "plain.test.")))
	mx := func(name string) []resolve.MX { return []resolve.MX{{Host: name, Pref: 10}} }
	ask := map[string]func(string) (any, bool, error){
		"mx": func(name string) (any, bool, error) {
			a, err := r.MXSecure(t.Context(), name)
			return a, a.Secure, err
		},
		"addr": func(name string) (any, bool, error) {
			a, err := r.AddrsSecure(t.Context(), name)
			return a, a.Secure, err
		},
		"cname": func(name string) (any, bool, error) {
			a, err := r.CNAMESecure(t.Context(), name)
			return a, a.Secure, err
		},
		"tlsa": func(name string) (any, bool, error) {
			a, err := r.TLSA(t.Context(), name)
			return a, a.Secure, err
		},
	}
	three, _ := hex.DecodeString(strings.Repeat("0a", 32))
	two, _ := hex.DecodeString(strings.Repeat("0b", 64))
	tlsa := []resolve.TLSA{{Usage: 3, Selector: 1, Matching: 1, Data: three}, {Usage: 2, Selector: 0, Matching: 2, Data: two}}
	both := addrs("192.0.2.1", "2001:db8::1")
	for _, c := range []struct {
		kind, name string
		want       any
		err        error
		secure     bool // of the answer or of the absence
	}{
		{"mx", "example.com", resolve.Answer[resolve.MX]{Records: mx("mx.example.com"), Name: "example.com", Secure: true},
			nil, true},
		{"mx", "plain.test", resolve.Answer[resolve.MX]{Records: mx("mx.plain.test"), Name: "plain.test"}, nil, false},
		{"mx", "mx.example.com", nil, resolve.ErrNotFound, true},
		{"mx", "mx.plain.test", nil, resolve.ErrNotFound, false},
		{"mx", "no.example.com", nil, resolve.ErrNoName, true},
		{"mx", "no.plain.test", nil, resolve.ErrNoName, false},
		{"mx", "out.example.com", nil, resolve.ErrNotFound, false},
		{"mx", "not a name", nil, resolve.ErrNoName, false},
		{"addr", "MX.Example.com.", resolve.Answer[netip.Addr]{Records: both, Name: "mx.example.com", Secure: true}, nil,
			true},
		{"addr", "alias.example.com", resolve.Answer[netip.Addr]{Records: both, Name: "mx.example.com", Secure: true}, nil,
			true},
		{"addr", "through.example.com", resolve.Answer[netip.Addr]{Records: both, Name: "mx.example.com"}, nil, false},
		{"addr", "out.example.com", resolve.Answer[netip.Addr]{Records: addrs("192.0.2.2"), Name: "mx.plain.test"}, nil,
			false},
		{"addr", "in.plain.test", resolve.Answer[netip.Addr]{Records: both, Name: "mx.example.com"}, nil, false},
		{"addr", "example.com", nil, resolve.ErrNotFound, true},
		{"addr", "no.example.com", nil, resolve.ErrNoName, true},
		{"addr", "plain.test", nil, resolve.ErrNotFound, false},
		{"cname", "out.example.com", resolve.Answer[string]{Records: []string{"mx.plain.test"}, Name: "out.example.com",
			Secure: true}, nil, true},
		{"cname", "in.plain.test", resolve.Answer[string]{Records: []string{"mx.example.com"}, Name: "in.plain.test"}, nil,
			false},
		{"cname", "example.com", nil, resolve.ErrNotFound, true},
		{"cname", "no.plain.test", nil, resolve.ErrNoName, false},
		{"tlsa", "_25._tcp.mx.example.com", resolve.Answer[resolve.TLSA]{Records: tlsa, Name: "_25._tcp.mx.example.com",
			Secure: true, TTL: 5 * time.Minute}, nil, true},
		{"tlsa", "_25._tcp.alias.example.com", resolve.Answer[resolve.TLSA]{Records: tlsa, Name: "_25._tcp.mx.example.com",
			Secure: true, TTL: 5 * time.Minute}, nil, true},
		{"tlsa", "_25._tcp.example.com", nil, resolve.ErrNoName, true},
		{"tlsa", "_25._tcp.mx.plain.test", nil, resolve.ErrNoName, false},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			t.Parallel()
			got, secure, err := ask[c.kind](c.name)
			if !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if secure || resolve.IsSecure(err) {
				secure = true
			}
			if secure != c.secure {
				t.Errorf("secure: %v (%v)", secure, err)
			}
			if c.err != nil {
				return
			}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An alias that the server does not follow is followed by us. The answer is secure only if all answers were.
func TestAliasesFollowedByUsAreSecure(t *testing.T) {
	t.Parallel()
	for unsigned, secure := range map[string]bool{"none.": true, "one.test.": false, "two.test.": false} {
		server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			answer := zone(`two.test. 60 IN MX 1 mx.two.test.`)
			if q.Question[0].Name == "one.test." {
				answer = func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
					m := new(dns.Msg).SetReply(q)
					m.Answer = []dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: "one.test.", Rrtype: dns.TypeCNAME,
						Class: dns.ClassINET, Ttl: 60}, Target: "two.test."}}
					m.AuthenticatedData = unsigned != "one.test."
					w.WriteMsg(m)
				}
				answer(n, w, q)
				return
			}
			signed(answer, unsigned)(n, w, q)
		})
		a, err := resolver(t, server).MXSecure(t.Context(), "one.test")
		if err != nil || a.Secure != secure || a.Name != "two.test" {
			t.Errorf("%s is unsigned: %+v, %v", unsigned, a, err)
		}
	}
}

// The AD bit counts only if it comes from a server on a loopback address, or from one that was named as validating.
func TestBelievedServers(t *testing.T) {
	t.Parallel()
	good, plain := serve(t, signed(secureZone)), serve(t, secureZone)
	for _, c := range []struct {
		name                string
		servers, validating []string
		secure              bool
	}{
		{"loopback", []string{good.addr}, nil, true},
		{"loopback, not validating", []string{plain.addr}, nil, false},
		{"elsewhere", []string{elsewhere(good)}, nil, false},
		{"named", []string{elsewhere(plain)}, []string{elsewhere(good)}, true},
		{"named, among the servers", []string{elsewhere(good)}, []string{elsewhere(good)}, true},
		{"named, not validating", []string{good.addr}, []string{elsewhere(plain)}, false},
		{"loopback second", []string{elsewhere(plain), good.addr}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := resolve.NewDNS(c.servers, c.validating...)
			if err != nil {
				t.Fatal(err)
			}
			a, err := r.MXSecure(t.Context(), "example.com")
			if err != nil || a.Secure != c.secure {
				t.Errorf("%+v, %v", a, err)
			}
			_, err = r.TLSA(t.Context(), "_25._tcp.example.com")
			if !errors.Is(err, resolve.ErrNotFound) || resolve.IsSecure(err) != c.secure {
				t.Errorf("an absence: secure: %v, %v", resolve.IsSecure(err), err)
			}
			if _, err := r.MX(t.Context(), "example.com"); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := resolve.NewDNS([]string{"127.0.0.1:53"}, "dns.example"); err == nil {
		t.Error("NewDNS accepts a name as a validating server")
	}
}

// If a server that is believed fails, no other server answers in its place: an attacker could make it fail to have the
// question answered without authentication. Other look-ups go to the next server.
func TestNoAnswerFromOtherServers(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*nameserver, dns.ResponseWriter, *dns.Msg){
		"SERVFAIL": rcode(dns.RcodeServerFailure), "REFUSED": rcode(dns.RcodeRefused), "silent": silence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := serve(t, secureZone)
			r, err := resolve.NewDNS([]string{elsewhere(other)}, serve(t, broken).addr)
			if err != nil {
				t.Fatal(err)
			}
			var err1, err2 error
			var both sync.WaitGroup // at once, because a silent server takes seconds
			both.Go(func() { _, err1 = r.MXSecure(t.Context(), "example.com") })
			both.Go(func() { _, err2 = r.TLSA(t.Context(), "_25._tcp.mx.example.com") })
			both.Wait()
			for _, err := range []error{err1, err2} {
				if !errors.Is(err, resolve.ErrTemporary) || errors.Is(err, resolve.ErrBogus) || resolve.IsSecure(err) {
					t.Errorf("error %v", err)
				}
			}
			if n := other.udp.Load(); n != 0 {
				t.Errorf("asked the other server %d times", n)
			}
			if _, err := r.MX(t.Context(), "example.com"); err != nil {
				t.Error(err)
			}
		})
	}
}

// If the validating server is away, that is an outage of ours, although the other servers answer.
func TestValidatingServerIsAway(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	validating := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if !away.Load() {
			signed(secureZone)(n, w, q)
		}
	})
	r, err := resolve.NewDNS([]string{elsewhere(serve(t, secureZone))}, validating.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.MX(t.Context(), "example.com"); err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	if _, err := r.MXSecure(t.Context(), "plain.test"); !errors.Is(err, resolve.ErrNoServer) || !fault.IsOutage(err) {
		t.Errorf("error %v", err)
	}
	if _, err := r.MX(t.Context(), "plain.test"); err != nil {
		t.Error(err)
	}
}

// A server that fails because of wrong signatures is told apart from a server that gets no answer itself.
func TestBogus(t *testing.T) {
	t.Parallel()
	fail := func(q *dns.Msg, codes ...uint16) *dns.Msg {
		m := new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
		m.SetEdns0(1232, false)
		for _, code := range codes {
			opt := m.IsEdns0()
			opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: code})
		}
		return m
	}
	saying := func(codes ...uint16) func(*nameserver, dns.ResponseWriter, *dns.Msg) {
		return func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(fail(q, codes...)) }
	}
	unchecked := func(answer func(*nameserver, dns.ResponseWriter, *dns.Msg)) func(*nameserver, dns.ResponseWriter,
		*dns.Msg) {
		return func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			if q.CheckingDisabled {
				answer(n, w, q)
				return
			}
			w.WriteMsg(fail(q))
		}
	}
	for name, c := range map[string]struct {
		answer func(*nameserver, dns.ResponseWriter, *dns.Msg)
		bogus  bool
		asked  int32
	}{
		"bogus":                         {saying(dns.ExtendedErrorCodeDNSBogus), true, 1},
		"expired":                       {saying(dns.ExtendedErrorCodeOther, dns.ExtendedErrorCodeSignatureExpired), true, 1},
		"no proof of absence":           {saying(dns.ExtendedErrorCodeNSECMissing), true, 1},
		"no reachable server":           {saying(dns.ExtendedErrorCodeNoReachableAuthority), false, 4},
		"indeterminate":                 {saying(dns.ExtendedErrorCodeDNSSECIndeterminate), false, 4},
		"an answer without checking":    {unchecked(secureZone), true, 3},
		"an absence without checking":   {unchecked(zone()), true, 3},
		"a failure without checking":    {unchecked(rcode(dns.RcodeServerFailure)), false, 4},
		"nothing without checking":      {unchecked(rcode(dns.RcodeRefused)), false, 4},
		"a refusal is no wrong signing": {rcode(dns.RcodeRefused), false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, next := serve(t, withRoot(c.answer)), serve(t, secureZone)
			r, err := resolve.NewDNS([]string{elsewhere(next)}, server.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.TLSA(t.Context(), "_25._tcp.mx.example.com")
			if !errors.Is(err, resolve.ErrTemporary) || errors.Is(err, resolve.ErrBogus) != c.bogus ||
				errors.Is(err, resolve.ErrNotFound) || errors.Is(err, resolve.ErrNoServer) {
				t.Errorf("error %v", err)
			}
			if n := server.udp.Load(); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
}

// A second validating server does not answer for one that found wrong signatures, because it may not validate.
func TestBogusForOneServer(t *testing.T) {
	t.Parallel()
	first := serve(t, withRoot(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.CheckingDisabled {
			secureZone(n, w, q)
			return
		}
		rcode(dns.RcodeServerFailure)(n, w, q)
	}))
	a, err := resolver(t, first, serve(t, secureZone)).MXSecure(t.Context(), "example.com")
	if !errors.Is(err, resolve.ErrBogus) {
		t.Errorf("%+v, %v", a, err)
	}
}

// Queries of ordinary look-ups differ from those of earlier releases only by one bit: they ask for no signatures, and
// they repeat nothing with the CD bit.
func TestQueriesStaySmall(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []*dns.Msg
	r := resolver(t, serve(t, func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		seen = append(seen, q)
		mu.Unlock()
		w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	}))
	if _, err := r.TXT(t.Context(), "example.com"); !errors.Is(err, resolve.ErrTemporary) {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 {
		t.Errorf("%d queries", len(seen))
	}
	for _, q := range seen {
		if opt := q.IsEdns0(); !q.AuthenticatedData || q.CheckingDisabled || opt == nil || opt.Do() || len(opt.Option) > 0 {
			t.Errorf("query: %v", q)
		}
	}
}

// The answer is secure only if the answers about both address families are. A failed look-up does not count.
func TestSecureAddressFamilies(t *testing.T) {
	t.Parallel()
	const none, insecure, secure, fails = "none", "insecure", "secure", "fails"
	for _, c := range []struct {
		four, six   string
		found, safe bool
	}{
		{secure, secure, true, true},
		{secure, insecure, true, false},
		{insecure, secure, true, false},
		{secure, fails, true, true},
		{fails, secure, true, true},
		{insecure, fails, true, false},
		{secure, none, true, true},
		{none, insecure, true, false},
	} {
		server := serve(t, withRoot(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			how, records := c.four, []string{`mx.test. 60 IN A 192.0.2.1`}
			if q.Question[0].Qtype == dns.TypeAAAA {
				how, records = c.six, []string{`mx.test. 60 IN AAAA 2001:db8::1`}
			}
			switch how {
			case secure:
				signed(zone(records...))(n, w, q)
			case insecure:
				zone(records...)(n, w, q)
			case none:
				signed(zone(`mx.test. 60 IN TXT "x"`))(n, w, q)
			case fails:
				rcode(dns.RcodeRefused)(n, w, q)
			}
		}))
		a, err := resolver(t, server).AddrsSecure(t.Context(), "mx.test")
		if (err == nil) != c.found || a.Secure != c.safe || a.Name != "mx.test" {
			t.Errorf("IPv4 %s, IPv6 %s: %+v, %v", c.four, c.six, a, err)
		}
	}
	for four, safe := range map[bool]bool{true: true, false: false} {
		server := serve(t, withRoot(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			absent := zone(`mx.test. 60 IN TXT "x"`)
			if q.Question[0].Qtype == dns.TypeAAAA || four {
				absent = signed(absent)
			}
			absent(n, w, q)
		}))
		_, err := resolver(t, server).AddrsSecure(t.Context(), "mx.test")
		if !errors.Is(err, resolve.ErrNotFound) || resolve.IsSecure(err) != safe {
			t.Errorf("no addresses, IPv4 signed %v: %v", four, err)
		}
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	r := resolver(t, serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "bogus.test." && !q.CheckingDisabled || q.Question[0].Name == "broken.test." {
			rcode(dns.RcodeServerFailure)(n, w, q)
			return
		}
		signed(secureZone, "plain.test.")(n, w, q)
	}))
	var got []string
	r.Observe = func(kind string, o resolve.Outcome) { got = append(got, kind+" "+string(o)) }
	c := resolve.NewCached(r, 100)
	for range 2 {
		c.MXSecure(t.Context(), "example.com")
		c.MXSecure(t.Context(), "plain.test")
		c.AddrsSecure(t.Context(), "no.example.com")
		c.CNAMESecure(t.Context(), "no.plain.test")
	}
	c.TLSA(t.Context(), "bogus.test")
	c.TLSA(t.Context(), "broken.test")
	c.MX(t.Context(), "example.com")
	want := []string{"mx secure", "mx insecure", "addr absent", "cname insecure", "tlsa bogus", "tlsa failed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The cache keeps whether an answer or an absence was secure, and does not answer a secure look-up with the answer of
// another one.
func TestCachedKeepsSecure(t *testing.T) {
	t.Parallel()
	good, other := serve(t, signed(secureZone, "plain.test.")), serve(t, zone(`example.com. 300 IN MX 10 evil.test.`))
	d, err := resolve.NewDNS([]string{elsewhere(other)}, good.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := resolve.NewCached(d, 100)
	if got, err := c.MX(t.Context(), "example.com"); err != nil || got[0].Host != "evil.test" {
		t.Errorf("%v, %v", got, err)
	}
	for range 2 {
		mx, err1 := c.MXSecure(t.Context(), "example.com")
		at, err2 := c.AddrsSecure(t.Context(), "alias.example.com")
		alias, err3 := c.CNAMESecure(t.Context(), "out.example.com")
		tlsa, err4 := c.TLSA(t.Context(), "_25._tcp.mx.example.com")
		insecure, err5 := c.MXSecure(t.Context(), "plain.test")
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Fatal(err)
		}
		if !mx.Secure || mx.Records[0].Host != "mx.example.com" || !at.Secure || at.Name != "mx.example.com" ||
			!alias.Secure || !tlsa.Secure || len(tlsa.Records) != 2 || insecure.Secure {
			t.Errorf("%+v %+v %+v %+v %+v", mx, at, alias, tlsa, insecure)
		}
		mx.Records[0].Host, at.Records[0], tlsa.Records[0] = "changed", netip.Addr{}, resolve.TLSA{}
		if _, err := c.TLSA(t.Context(), "_25._tcp.no.example.com"); !errors.Is(err, resolve.ErrNoName) ||
			!resolve.IsSecure(err) {
			t.Errorf("a secure absence: %v", err)
		}
		if _, err := c.TLSA(t.Context(), "_25._tcp.no.plain.test"); !errors.Is(err, resolve.ErrNoName) ||
			resolve.IsSecure(err) {
			t.Errorf("an insecure absence: %v", err)
		}
	}
	if n := good.udp.Load(); n != 8 {
		t.Errorf("asked %d times, want 8", n)
	}
	if c.MXKept("plain.test") == 0 || c.MXKept("other.test") != 0 {
		t.Error("MXKept does not know secure answers")
	}
}

// The answers of a Resolver that is no Secure are insecure in a cache.
func TestCachedWithoutSecure(t *testing.T) {
	t.Parallel()
	c := resolve.NewCached(struct{ resolve.Resolver }{resolve.Fake{SignedZones: []string{"example"},
		MXRecords:    map[string][]resolve.MX{"a.example": {{Host: "mx.example"}}},
		AddrRecords:  map[string][]netip.Addr{"mx.example": addrs("192.0.2.1")},
		CNAMERecords: map[string]string{"b.example": "mx.example"}}}, 10)
	mx, err1 := c.MXSecure(t.Context(), "a.example")
	at, err2 := c.AddrsSecure(t.Context(), "mx.example")
	alias, err3 := c.CNAMESecure(t.Context(), "b.example")
	if err := errors.Join(err1, err2, err3); err != nil || mx.Secure || at.Secure || alias.Secure || len(mx.Records) != 1 ||
		len(at.Records) != 1 || len(alias.Records) != 1 {
		t.Errorf("%+v %+v %+v %v", mx, at, alias, err)
	}
	if _, err := c.TLSA(t.Context(), "_25._tcp.mx.example"); !errors.Is(err, resolve.ErrNotFound) || resolve.IsSecure(err) {
		t.Errorf("TLSA: %v", err)
	}
}
