package dnsadvice_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/dnsadvice"
)

// lab is a group of DNS servers on loopback addresses: two authoritative ones and a recursive one.
type lab struct {
	dnsadvice.Collector

	mu    sync.Mutex
	zones map[string]*labZone // by apex, with a final dot
}

// labZone is a zone as each server has it.
type labZone struct {
	servers [2][]dns.RR
	visible []dns.RR // what the recursive server returns
	mode    string   // bogus: the recursive server fails unless checking is disabled; dead, lame or half: see answer
	names   []string // of its name servers
}

// common are the records outside of the zones of the cases.
const common = `
spf.example.net. TXT "v=spf1 ip4:192.0.2.0/24 -all"
ten.example.net. TXT "v=spf1 include:i1.example.net include:i2.example.net include:i3.example.net include:i4.example.net include:i5.example.net include:i6.example.net include:i7.example.net include:i8.example.net include:i9.example.net include:i10.example.net -all"
void.example.net. TXT "v=spf1 a:v1.example.net a:v2.example.net a:v3.example.net -all"
links.example.net. A 192.0.2.80
links.example.net. AAAA 2001:db8::80
`

// newLab starts the servers.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{zones: map[string]*labZone{}}
	outside := parse(t, ".", common)
	for i := range 10 {
		outside = append(outside, parse(t, ".", "i"+strconv.Itoa(i+1)+`.example.net. TXT "v=spf1 ip4:192.0.2.1 -all"`)...)
	}
	addrs := []string{"127.0.0.41", "127.0.0.42", "127.0.0.43"}
	port := l.listen(t, addrs, func(at int, w dns.ResponseWriter, q *dns.Msg) {
		if at < 2 {
			l.authoritative(at, w, q)
		} else {
			l.recursive(outside, w, q)
		}
	})
	resolver, err := resolve.NewDNS([]string{net.JoinHostPort(addrs[2], strconv.Itoa(port))})
	if err != nil {
		t.Fatal(err)
	}
	l.Collector = dnsadvice.Collector{DNS: resolver, Providers: dnsadvice.EmbeddedProviders,
		Authority: &authority.Client{DNS: resolver, Port: uint16(port)}}
	return l
}

// listen starts a server at each address, all at one port.
func (l *lab) listen(t *testing.T, addrs []string, answer func(at int, w dns.ResponseWriter, q *dns.Msg)) int {
	t.Helper()
	var packets []net.PacketConn
	var listeners []net.Listener
	port := 0
	for range 20 {
		packets, listeners, port = nil, nil, 0
		for _, addr := range addrs {
			p, err := net.ListenPacket("udp", net.JoinHostPort(addr, strconv.Itoa(port)))
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
		if len(listeners) == len(addrs) {
			break
		}
		for _, p := range packets {
			p.Close()
		}
		for _, tcp := range listeners {
			tcp.Close()
		}
	}
	if len(listeners) != len(addrs) {
		t.Fatal("found no port that is free at all addresses")
	}
	for i := range addrs {
		for _, s := range []*dns.Server{{PacketConn: packets[i]}, {Listener: listeners[i]}} {
			s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { answer(i, w, q) })
			started := make(chan struct{})
			s.NotifyStartedFunc = func() { close(started) }
			go s.ActivateAndServe()
			<-started
			t.Cleanup(func() { s.Shutdown() })
		}
	}
	return port
}

// parse reads records in the form of a zone file, with a TTL of 300 s.
func parse(t *testing.T, origin, text string) (all []dns.RR) {
	t.Helper()
	z := dns.NewZoneParser(strings.NewReader("$TTL 300\n"+text+"\n"), origin, "")
	for rr, ok := z.Next(); ok; rr, ok = z.Next() {
		all = append(all, rr)
	}
	if err := z.Err(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return all
}

// zoneOf returns the zone of a name.
func (l *lab) zoneOf(name string) (apex string, z *labZone) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for apex, z := range l.zones {
		if dns.IsSubDomain(apex, name) {
			return apex, z
		}
	}
	return "", nil
}

func (l *lab) authoritative(at int, w dns.ResponseWriter, q *dns.Msg) {
	apex, z := l.zoneOf(strings.ToLower(q.Question[0].Name))
	switch {
	case z == nil || z.mode == "lame" || z.mode == "half" && at == 1:
		w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused))
		return
	case z.mode == "dead":
		return
	}
	m := lookUp(q, apex, z.servers[at])
	m.Authoritative = true
	for _, rr := range z.servers[at] { // delegations below the apex
		if rr.Header().Rrtype == dns.TypeNS && rr.Header().Name != apex && dns.IsSubDomain(rr.Header().Name, q.Question[0].Name) {
			m.Authoritative, m.Answer, m.Rcode, m.Ns = false, nil, dns.RcodeSuccess, append(m.Ns, rr)
		}
	}
	send(w, m)
}

func (l *lab) recursive(outside []dns.RR, w dns.ResponseWriter, q *dns.Msg) {
	name := strings.ToLower(q.Question[0].Name)
	apex, z := l.zoneOf(name)
	all := slices.Clone(outside)
	for i := range 2 {
		all = append(all, &dns.A{Hdr: dns.RR_Header{Name: "ns" + strconv.Itoa(i+1) + ".lab.test.", Rrtype: dns.TypeA, Class: 1,
			Ttl: 300}, A: net.ParseIP("127.0.0.4" + strconv.Itoa(i+1))})
	}
	if z != nil {
		all = append(all, z.visible...)
		for _, server := range z.names {
			all = append(all, &dns.NS{Hdr: dns.RR_Header{Name: apex, Rrtype: dns.TypeNS, Class: 1, Ttl: 300}, Ns: server})
		}
		if z.mode == "bogus" && !q.CheckingDisabled && q.Question[0].Qtype != dns.TypeNS {
			w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
			return
		}
	}
	if name == "test." && q.Question[0].Qtype == dns.TypeNS {
		all = append(all, &dns.NS{Hdr: dns.RR_Header{Name: "test.", Rrtype: dns.TypeNS, Class: 1, Ttl: 300}, Ns: "ns1.lab.test."})
	}
	m := lookUp(q, apex, all)
	m.RecursionAvailable = true
	send(w, m)
}

// lookUp answers a query from records, with aliases and wildcards.
func lookUp(q *dns.Msg, apex string, all []dns.RR) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	name, typ := strings.ToLower(q.Question[0].Name), q.Question[0].Qtype
	exists := name == apex
	take := func(owner string) (next string) {
		var alias *dns.CNAME
		before := len(m.Answer)
		for _, rr := range all {
			if h := rr.Header(); strings.EqualFold(h.Name, owner) {
				exists = true
				if copied := dns.Copy(rr); h.Rrtype == typ {
					copied.Header().Name = name
					m.Answer = append(m.Answer, copied)
				} else if c, ok := copied.(*dns.CNAME); ok {
					c.Hdr.Name = name
					alias = c
				}
			}
			exists = exists || dns.IsSubDomain(name, strings.ToLower(rr.Header().Name))
		}
		if alias != nil && len(m.Answer) == before { // broken zones have records beside an alias
			m.Answer = append(m.Answer, alias)
			return strings.ToLower(alias.Target)
		}
		return ""
	}
	for range 5 {
		next := take(name)
		if _, below, ok := strings.Cut(name, "."); next == "" && len(m.Answer) == 0 && !exists && ok {
			next = take("*." + below)
		}
		if next == "" {
			break
		}
		name = next
	}
	if len(m.Answer) == 0 && apex != "" {
		soa, _ := dns.NewRR(apex + " 900 IN SOA ns1.lab.test. host.lab.test. 1 2 3 4 900")
		m.Ns = append(m.Ns, soa)
	}
	if len(m.Answer) == 0 && !exists {
		m.Rcode = dns.RcodeNameError
	}
	return m
}

func send(w dns.ResponseWriter, m *dns.Msg) {
	if w.RemoteAddr().Network() == "udp" {
		m.Truncate(1232)
	}
	w.WriteMsg(m)
}

// add adds a zone.
func (l *lab) add(apex string, z *labZone) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zones[dns.Fqdn(apex)] = z
}

// Collect ends in time, even if the servers of a domain never answer.
func TestCollectEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add("dead.test", &labZone{mode: "dead", names: []string{"ns1.lab.test.", "ns2.lab.test."}})
	f := l.Collect(t.Context(), "dead.test", []dnsadvice.Wanted{{Key: "mx", Name: "send.dead.test", Type: "MX", Value: "a.test"}})
	problems := dnsadvice.Check(f)
	if len(problems) == 0 || problems[0].Code != "zone_unreachable" {
		t.Errorf("problems %+v", problems)
	}
	// The resolver of the next collector knows nothing.
	nothing := &dnsadvice.Collector{DNS: resolve.Fake{Fail: []string{"ns acme.com"}}, Providers: dnsadvice.EmbeddedProviders,
		Authority: &authority.Client{DNS: resolve.Fake{Fail: []string{"ns acme.com"}}}}
	f = nothing.Collect(t.Context(), "acme.com", []dnsadvice.Wanted{{Key: "mx", Name: "send.acme.com", Type: "MX", Value: "a.test"}})
	if f.Zone != "" {
		t.Errorf("zone %q", f.Zone)
	}
}

// A resolver without an answer leads to no problem, because nothing is known then.
func TestUnknownIsNoProblem(t *testing.T) {
	t.Parallel()
	names := []string{"acme.com", "send.acme.com", "_dmarc.acme.com", "links.acme.com"}
	fake := resolve.Fake{Fail: names, AddrRecords: map[string][]netip.Addr{}}
	c := &dnsadvice.Collector{DNS: fake, Providers: dnsadvice.EmbeddedProviders, Authority: &authority.Client{DNS: fake}}
	f := c.Collect(t.Context(), "acme.com", []dnsadvice.Wanted{{Key: "mx", Name: "send.acme.com", Type: "MX", Value: "a.test"},
		{Key: "spf", Kind: "SPF", Name: "send.acme.com", Type: "TXT", Value: "v=spf1 include:spf.example.net ~all"},
		{Key: "tracking", Name: "links.acme.com", Type: "CNAME", Value: "links.example.net"}})
	if problems := dnsadvice.Check(f); len(problems) > 0 {
		t.Errorf("problems without an answer: %+v", problems)
	}
	if _, _, err := c.Authority.Zone(t.Context(), "acme.com"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("the fake resolver answers: %v", err)
	}
}
