package authority_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// lab is a group of name servers on loopback addresses with one port.
type lab struct {
	*authority.Client
	fake  resolve.Fake
	tcp   atomic.Int32 // queries over TCP
	asked atomic.Int32 // all queries
}

// newLab starts one server for each handler: the first is ns1.test at 127.0.0.11, and so on. A nil handler stands for
// a server that never answers.
func newLab(t *testing.T, handlers ...dns.HandlerFunc) *lab {
	t.Helper()
	l := &lab{fake: resolve.Fake{AddrRecords: map[string][]netip.Addr{}, NSRecords: map[string][]string{}}}
	var packets []net.PacketConn
	var listeners []net.Listener
	port := 0
	for range 20 { // the port may be in use at one of the addresses
		packets, listeners, port = nil, nil, 0
		for i := range handlers {
			at := net.JoinHostPort("127.0.0."+strconv.Itoa(11+i), strconv.Itoa(port))
			p, err := net.ListenPacket("udp", at)
			if err != nil {
				break
			}
			packets = append(packets, p)
			tcp, err := net.Listen("tcp", p.LocalAddr().String())
			if err != nil {
				break
			}
			listeners = append(listeners, tcp)
			port = p.LocalAddr().(*net.UDPAddr).Port
		}
		if len(listeners) == len(handlers) {
			break
		}
		for _, p := range packets {
			p.Close()
		}
		for _, tcp := range listeners {
			tcp.Close()
		}
	}
	if len(listeners) != len(handlers) {
		t.Fatal("found no port that is free at all addresses")
	}
	for i, h := range handlers {
		addr := netip.MustParseAddr("127.0.0." + strconv.Itoa(11+i))
		l.fake.AddrRecords["ns"+strconv.Itoa(i+1)+".test"] = []netip.Addr{addr}
		for _, s := range []*dns.Server{{PacketConn: packets[i]}, {Listener: listeners[i]}} {
			s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
				l.asked.Add(1)
				if w.RemoteAddr().Network() == "tcp" {
					l.tcp.Add(1)
				}
				if q.RecursionDesired {
					t.Errorf("a query for %s asks for recursion", q.Question[0].Name)
				}
				if h != nil {
					h(w, q)
				}
			})
			started := make(chan struct{})
			s.NotifyStartedFunc = func() { close(started) }
			go s.ActivateAndServe()
			<-started
			t.Cleanup(func() { s.Shutdown() })
		}
	}
	l.Client = &authority.Client{DNS: l.fake, Port: uint16(port), Timeout: 2 * time.Second}
	return l
}

// zone answers as an authoritative server. A record with the type NS below the apex is a delegation.
func zone(apex string, records ...string) dns.HandlerFunc {
	rrs := make([]dns.RR, len(records))
	for i, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		rrs[i] = rr
	}
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Authoritative = true
		name := q.Question[0].Name
		for _, rr := range rrs {
			if rr.Header().Rrtype == dns.TypeNS && rr.Header().Name != apex && dns.IsSubDomain(rr.Header().Name, name) {
				m.Authoritative = false
				m.Ns = append(m.Ns, rr)
			}
		}
		exists, before := false, ""
		for name != before {
			before = name
			for _, rr := range rrs {
				if !m.Authoritative || rr.Header().Name != before {
					continue
				}
				exists = true
				if alias, ok := rr.(*dns.CNAME); ok {
					m.Answer = append(m.Answer, rr)
					name = alias.Target
				} else if rr.Header().Rrtype == q.Question[0].Qtype {
					m.Answer = append(m.Answer, rr)
				}
			}
		}
		if m.Authoritative && len(m.Answer) == 0 {
			soa, _ := dns.NewRR(apex + " 900 IN SOA ns1.test. host.test. 1 2 3 4 77")
			m.Ns = append(m.Ns, soa)
			if !exists {
				m.Rcode = dns.RcodeNameError
			}
		}
		if w.RemoteAddr().Network() == "udp" {
			m.Truncate(512)
		}
		w.WriteMsg(m)
	}
}

func code(rcode int) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(q, rcode)) }
}

func outcomes(all []authority.Answer) (list []string) {
	for _, a := range all {
		list = append(list, a.Server+" "+string(a.Outcome))
	}
	return list
}

func TestZone(t *testing.T) {
	t.Parallel()
	c := &authority.Client{DNS: resolve.Fake{
		NSRecords: map[string][]string{"acme.com": {"ns2.test", "ns1.test", "ns1.test"}, "com": {"a.test"}},
		Fail:      []string{"ns broken.acme.com"},
	}}
	for name, want := range map[string]string{"acme.com": "acme.com", "A.b.ACME.com.": "acme.com", "other.com": "com",
		"x.broken.acme.com": "temporary", "nothing.test": "none", "": "none"} {
		got, servers, err := c.Zone(t.Context(), name)
		switch {
		case errors.Is(err, resolve.ErrTemporary):
			got = "temporary"
		case errors.Is(err, resolve.ErrNotFound):
			got = "none"
		case got == "acme.com" && !slices.Equal(servers, []string{"ns1.test", "ns2.test"}):
			t.Errorf("%s: servers %v", name, servers)
		}
		if got != want {
			t.Errorf("%q: zone %q, want %q", name, got, want)
		}
	}
	if _, _, err := (&authority.Client{DNS: plain{c.DNS}}).Zone(t.Context(), "acme.com"); err == nil {
		t.Error("a resolver without NS look-ups found a zone")
	}
}

// plain is a resolver that cannot look up name servers.
type plain struct{ resolve.Resolver }

// A server is asked at given addresses, without a look-up of its name.
func TestAskAddrs(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, zone("acme.com.", "acme.com. 300 IN NS tok.ns1.test."))
	l.DNS, l.Timeout = resolve.Fake{Fail: []string{"ns.test"}}, 500*time.Millisecond
	l.Allow = func(netip.Addr) bool { return false }
	first, second := netip.MustParseAddr("127.0.0.11"), netip.MustParseAddr("127.0.0.12")
	a := l.AskAddrs(t.Context(), "ns.test", []netip.Addr{first, second}, "Acme.com", "NS")
	if a.Err != nil || a.Outcome != authority.Found || a.Addr != second || a.Records[0].Value != "tok.ns1.test" {
		t.Errorf("%+v", a)
	}
	if a := l.AskAddrs(t.Context(), "ns.test", []netip.Addr{first}, "acme.com", "NS"); a.Outcome != authority.Silent ||
		a.Err == nil {
		t.Errorf("a silent server: %+v", a)
	}
	a = l.AskAddrs(t.Context(), "ns.test", nil, "acme.com", "NS")
	if a.Outcome != authority.NoAddress || a.Err == nil {
		t.Errorf("without an address: %+v", a)
	}
}

// Ask distinguishes the outcome of each server, and no server delays the others.
func TestAsk(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("p", 900)
	good := zone("acme.com.",
		`k.acme.com. 300 IN TXT "`+strings.Join([]string{long[:250], long[250:500], long[500:750], long[750:]}, `" "`)+`"`,
		`www.acme.com. 60 IN CNAME site.acme.com.`, `site.acme.com. 30 IN TXT "here"`,
		`acme.com. 300 IN MX 10 Mail.Acme.Com.`, `null.acme.com. 300 IN MX 0 .`,
		`out.acme.com. 300 IN CNAME a.elsewhere.test.`,
		`loop.acme.com. 300 IN CNAME loop.acme.com.`, `q.acme.com. 300 IN TXT "a\"b\\c\200"`)
	notMine := func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + ` 300 IN TXT "from a cache"`)
		m.Answer = []dns.RR{rr}
		w.WriteMsg(m)
	}
	upward := func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(`. 300 IN NS a.root-servers.test.`)
		m.Ns = []dns.RR{rr}
		w.WriteMsg(m)
	}
	l := newLab(t, good, notMine, code(dns.RcodeRefused), code(dns.RcodeServerFailure), nil, upward)
	l.fake.NSRecords["acme.com"] = []string{"ns1.test", "ns2.test", "ns3.test", "ns4.test", "ns5.test", "ns6.test",
		"nowhere.test"}
	all, err := l.Ask(t.Context(), "K.acme.com.", "txt")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"nowhere.test no_address", "ns1.test found", "ns2.test lame", "ns3.test refused", "ns4.test failed",
		"ns5.test silent", "ns6.test lame"}
	if diff := cmp.Diff(want, outcomes(all)); diff != "" {
		t.Error(diff)
	}
	if r := all[1].Records; len(r) != 1 || r[0].Value != long || len(r[0].Strings) != 4 || all[1].TTL != 300 {
		t.Errorf("records %+v", all[1])
	}
	if l.tcp.Load() == 0 {
		t.Error("a truncated response was not repeated over TCP")
	}
	for _, a := range all {
		if a.Definite() != (a.Err == nil) {
			t.Errorf("%s: error %v", a.Outcome, a.Err)
		}
	}
	for _, test := range []struct{ name, typ, want string }{
		{"www.acme.com", "TXT", "found here after site.acme.com for 30"},
		{"www.acme.com", "CNAME", "found site.acme.com after  for 60"},
		{"acme.com", "MX", "found 10 mail.acme.com after  for 300"},
		{"null.acme.com", "MX", "found 0 . after  for 300"},
		{"site.acme.com", "MX", "no_records  after  for 77"},
		{"missing.acme.com", "TXT", "no_name  after  for 77"},
		{"out.acme.com", "TXT", "no_records  after a.elsewhere.test for 300"},
		{"loop.acme.com", "TXT", "no_records  after " + "loop.acme.com for 300"},
		{"q.acme.com", "TXT", "found a\"b\\c\xc8 after  for 300"},
	} {
		all, err := l.AskServers(t.Context(), []string{"ns1.test"}, test.name, test.typ)
		if err != nil {
			t.Fatal(err)
		}
		values := func(list []authority.Record) string {
			var v []string
			for _, r := range list {
				v = append(v, r.Value)
			}
			return strings.Join(v, " ")
		}
		a := all[0]
		got := fmt.Sprintf("%s %s after %s for %d", a.Outcome, values(a.Records), values(a.Aliases), a.TTL)
		if got != test.want {
			t.Errorf("%s %s: %s, want %s", test.typ, test.name, got, test.want)
		}
	}
	if _, err := l.Ask(t.Context(), "acme.com", "NONE SUCH"); err == nil {
		t.Error("asked for a type that does not exist")
	}
}

// The owner of a zone cannot make us send queries to a private address, or to many servers.
func TestBounds(t *testing.T) {
	t.Parallel()
	l := newLab(t, zone("acme.com."), zone("acme.com."))
	l.Allow = func(a netip.Addr) bool { return a != netip.MustParseAddr("127.0.0.11") }
	l.fake.NSRecords["acme.com"] = []string{"ns1.test", "ns2.test"}
	all, err := l.Ask(t.Context(), "acme.com", "TXT")
	want := []string{"ns1.test forbidden", "ns2.test no_name"}
	if err != nil || !slices.Equal(outcomes(all), want) || l.asked.Load() != 1 {
		t.Errorf("%v, %v after %d queries", outcomes(all), err, l.asked.Load())
	}
	l.fake.NSRecords["acme.com"] = nil
	for i := range 30 {
		l.fake.NSRecords["acme.com"] = append(l.fake.NSRecords["acme.com"], "many"+strconv.Itoa(i)+".test")
	}
	if all, err = l.Ask(t.Context(), "acme.com", "TXT"); err != nil || len(all) != 8 {
		t.Errorf("asked %d servers, %v", len(all), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Ask(ctx, "acme.com", "TXT"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// The client repeats a query without EDNS0 for a server that does not know it, and asks the next address if one is
// silent.
func TestOldServers(t *testing.T) {
	t.Parallel()
	good := zone("acme.com.", `acme.com. 300 IN TXT "old"`)
	l := newLab(t, nil, func(w dns.ResponseWriter, q *dns.Msg) {
		if q.IsEdns0() != nil {
			code(dns.RcodeFormatError)(w, q)
			return
		}
		good(w, q)
	})
	l.fake.AddrRecords["ns1.test"] = append(l.fake.AddrRecords["ns1.test"], l.fake.AddrRecords["ns2.test"]...)
	l.fake.NSRecords["acme.com"] = []string{"ns1.test"}
	all, err := l.Ask(t.Context(), "acme.com", "TXT")
	if err != nil || all[0].Outcome != authority.Found || all[0].Addr.String() != "127.0.0.12" || all[0].Err != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestDelegation(t *testing.T) {
	t.Parallel()
	delegates := func(names ...string) dns.HandlerFunc {
		records := []string{`acme.com. 300 IN NS ns1.test.`}
		for _, n := range names {
			records = append(records, `mail.acme.com. 300 IN NS `+n+`.`)
		}
		return zone("acme.com.", records...)
	}
	child := zone("mail.acme.com.", `mail.acme.com. 300 IN NS evil.test.`, `mail.acme.com. 300 IN TXT "x"`)
	for name, test := range map[string]struct {
		parents []dns.HandlerFunc
		want    string
	}{
		"delegated": {[]dns.HandlerFunc{delegates("B.test", "a.test"), delegates("a.test", "b.test")},
			"a.test b.test"},
		"not delegated": {[]dns.HandlerFunc{delegates(), delegates()}, "none"},
		"one server differs": {[]dns.HandlerFunc{delegates("a.test", "b.test"), delegates("a.test", "c.test")},
			"a.test"},
		"one is late":    {[]dns.HandlerFunc{delegates("a.test"), delegates()}, "none"},
		"one is silent":  {[]dns.HandlerFunc{nil, delegates("a.test")}, "a.test"},
		"one is lame":    {[]dns.HandlerFunc{code(dns.RcodeRefused), delegates("a.test")}, "a.test"},
		"all are silent": {[]dns.HandlerFunc{nil, nil}, "temporary"},
		// Without this rule, anybody who can add a zone to such a server could prove a delegation.
		"the child answers": {[]dns.HandlerFunc{child, child}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, test.parents...)
			l.fake.NSRecords["acme.com"] = []string{"ns1.test", "ns2.test"}
			l.fake.NSRecords["mail.acme.com"] = []string{"liar.test"} // what the child says
			names, err := l.Delegation(t.Context(), "Mail.acme.com.")
			got := strings.Join(names, " ")
			switch {
			case errors.Is(err, resolve.ErrTemporary):
				got = "temporary"
			case errors.Is(err, resolve.ErrNotFound):
				got = "none"
			case err != nil:
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s, want %s (%v)", got, test.want, err)
			}
		})
	}
	l := newLab(t, zone("acme.com."))
	if _, err := l.Delegation(t.Context(), "com"); !errors.Is(err, resolve.ErrNotFound) {
		t.Errorf("delegation of a top-level domain: %v", err)
	}
}
