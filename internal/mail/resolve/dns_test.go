package resolve_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// nameserver is a DNS server on 127.0.0.1 that calls a function to answer queries over UDP and TCP.
type nameserver struct {
	addr     string
	udp, tcp atomic.Int32 // number of queries
}

func serve(t *testing.T, answer func(n *nameserver, w dns.ResponseWriter, q *dns.Msg)) *nameserver {
	t.Helper()
	n := new(nameserver)
	var listener net.Listener
	var packets net.PacketConn
	for range 20 { // the port of TCP may be in use for UDP
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		n.addr = listener.Addr().String()
		if packets, err = net.ListenPacket("udp", n.addr); err == nil {
			break
		}
		listener.Close()
	}
	if packets == nil {
		t.Fatal("found no port that is free for TCP and UDP")
	}
	for _, s := range []*dns.Server{{Listener: listener}, {PacketConn: packets}} {
		s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			if w.RemoteAddr().Network() == "udp" {
				n.udp.Add(1)
			} else {
				n.tcp.Add(1)
			}
			answer(n, w, q)
		})
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	return n
}

// zone returns a function that answers queries from the given records as a recursive server would. The function follows
// aliases, distinguishes names that do not exist from names without records of the requested type, and truncates
// responses that are too large.
func zone(records ...string) func(*nameserver, dns.ResponseWriter, *dns.Msg) {
	var rrs []dns.RR
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		rrs = append(rrs, rr)
	}
	return func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name, exists := q.Question[0].Name, false
		for range 12 {
			var alias string
			exists = false
			for _, rr := range rrs {
				if !strings.EqualFold(rr.Header().Name, name) {
					continue
				}
				exists = true
				if rr.Header().Rrtype == q.Question[0].Qtype {
					m.Answer = append(m.Answer, rr)
				} else if c, ok := rr.(*dns.CNAME); ok {
					m.Answer = append(m.Answer, rr)
					alias = c.Target
				}
			}
			if alias == "" {
				break
			}
			name = alias
		}
		if !exists {
			m.Rcode = dns.RcodeNameError
		}
		if w.RemoteAddr().Network() == "udp" {
			size := dns.MinMsgSize
			if opt := q.IsEdns0(); opt != nil {
				size = int(opt.UDPSize())
			}
			m.Truncate(size)
		}
		w.WriteMsg(m)
	}
}

func rcode(code int) func(*nameserver, dns.ResponseWriter, *dns.Msg) {
	return func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(q, code)) }
}

func silence(*nameserver, dns.ResponseWriter, *dns.Msg) {}

func resolver(t *testing.T, servers ...*nameserver) *resolve.DNS {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr)
	}
	r, err := resolve.NewDNS(addrs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var exampleZone = zone(
	`example.com. 300 IN MX 10 MX1.Example.com.`,
	`example.com. 300 IN MX 20 mx2.example.com.`,
	`example.com. 300 IN TXT "v=spf1 " "-all"`,
	`example.com. 300 IN TXT "quote \" slash \\ byte \195\164 end"`,
	`example.com. 300 IN CAA 0 Issue "letsencrypt.org; x=1"`,
	`example.com. 300 IN CAA 128 iodef "mailto:a@example.com"`,
	`mx1.example.com. 300 IN A 192.0.2.1`,
	`mx1.example.com. 300 IN AAAA 2001:db8::1`,
	`mx1.example.com. 300 IN AAAA 2001:db8::2`,
	`four.example.com. 300 IN A 192.0.2.4`,
	`null.example.com. 300 IN MX 0 .`,
	`alias.example.com. 300 IN CNAME Alias2.example.com.`,
	`alias2.example.com. 300 IN CNAME example.com.`,
	`mxalias.example.com. 300 IN CNAME mx1.example.com.`,
	`dangling.example.com. 300 IN CNAME nowhere.example.com.`,
	`barren.example.com. 300 IN CNAME four.example.com.`,
	`loop.example.com. 300 IN CNAME pool.example.com.`,
	`pool.example.com. 300 IN CNAME loop.example.com.`,
	`self.example.com. 300 IN CNAME self.example.com.`,
	`_dmarc.example.com. 300 IN TXT "v=DMARC1; p=none"`,
)

// look performs one look-up of the given kind and returns the answer.
func look(ctx context.Context, r resolve.Resolver, kind, name string) (any, error) {
	switch kind {
	case "mx":
		return r.MX(ctx, name)
	case "addr":
		return r.Addrs(ctx, name)
	case "txt":
		return r.TXT(ctx, name)
	case "cname":
		return r.CNAME(ctx, name)
	}
	return r.CAA(ctx, name)
}

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestDNS(t *testing.T) {
	t.Parallel()
	r := resolver(t, serve(t, exampleZone))
	example := []resolve.MX{{Host: "mx1.example.com", Pref: 10}, {Host: "mx2.example.com", Pref: 20}}
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		kind, name string
		want       any
		err        error
	}{
		{"mx", "example.com", example, nil},
		{"mx", "EXAMPLE.com.", example, nil},
		{"mx", "alias.example.com", example, nil},
		{"mx", "null.example.com", []resolve.MX{{}}, nil},
		{"mx", "mx1.example.com", nil, resolve.ErrNotFound},
		{"mx", "nowhere.example.com", nil, resolve.ErrNoName},
		{"mx", "dangling.example.com", nil, resolve.ErrNoName},
		{"mx", "barren.example.com", nil, resolve.ErrNotFound},
		{"mx", "loop.example.com", nil, resolve.ErrTemporary},
		{"mx", "self.example.com", nil, resolve.ErrTemporary},
		{"addr", "mx1.example.com", addrs("192.0.2.1", "2001:db8::1", "2001:db8::2"), nil},
		{"addr", "mxalias.example.com", addrs("192.0.2.1", "2001:db8::1", "2001:db8::2"), nil},
		{"addr", "four.example.com", addrs("192.0.2.4"), nil},
		{"addr", "example.com", nil, resolve.ErrNotFound},
		{"addr", "nowhere.example.com", nil, resolve.ErrNoName},
		{"addr", "loop.example.com", nil, resolve.ErrTemporary},
		{"txt", "example.com", []string{"v=spf1 -all", `quote " slash \ byte ä end`}, nil},
		{"txt", "_dmarc.example.com", []string{"v=DMARC1; p=none"}, nil},
		{"txt", "mx1.example.com", nil, resolve.ErrNotFound},
		{"cname", "alias.example.com", "alias2.example.com", nil},
		{"cname", "loop.example.com", "pool.example.com", nil},
		{"cname", "example.com", "", resolve.ErrNotFound},
		{"cname", "nowhere.example.com", "", resolve.ErrNoName},
		{"caa", "example.com", []resolve.CAA{
			{Tag: "issue", Value: "letsencrypt.org; x=1"}, {Flag: 128, Tag: "iodef", Value: "mailto:a@example.com"},
		}, nil},
		{"caa", "mx1.example.com", nil, resolve.ErrNotFound},
		// An invalid name is treated as nonexistent, and no query is sent for it.
		{"mx", "", nil, resolve.ErrNoName},
		{"mx", "a..example.com", nil, resolve.ErrNoName},
		{"mx", ".example.com", nil, resolve.ErrNoName},
		{"mx", "a b.example.com", nil, resolve.ErrNoName},
		{"mx", `a\.b.example.com`, nil, resolve.ErrNoName},
		{"mx", "jörg.example.com", nil, resolve.ErrNoName},
		{"mx", long + ".example.com", nil, resolve.ErrNoName},
		{"mx", strings.Repeat("abcdefg.", 40) + "com", nil, resolve.ErrNoName},
	} {
		t.Run(test.kind+" "+test.name, func(t *testing.T) {
			t.Parallel()
			got, err := look(t.Context(), r, test.kind, test.name)
			if !errors.Is(err, test.err) || test.err == nil && err != nil {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if errors.Is(err, resolve.ErrNoName) != (test.err == resolve.ErrNoName) {
				t.Errorf("%v tells names from records wrongly", err)
			}
			if test.err != nil {
				return
			}
			if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTruncatedAnswersComeByTCP(t *testing.T) {
	t.Parallel()
	var records []string
	for i := range 100 {
		records = append(records, `big.example. 60 IN TXT "`+strings.Repeat("x", i+1)+`"`)
	}
	server := serve(t, zone(records...))
	got, err := resolver(t, server).TXT(t.Context(), "big.example")
	if err != nil || len(got) != 100 {
		t.Errorf("%d records, %v", len(got), err)
	}
	if server.udp.Load() != 1 || server.tcp.Load() != 1 {
		t.Errorf("asked %d times by UDP and %d by TCP", server.udp.Load(), server.tcp.Load())
	}
}

func TestAnswersHaveALimit(t *testing.T) {
	t.Parallel()
	server := serve(t, func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if w.RemoteAddr().Network() == "udp" {
			m.Truncated = true
		} else {
			for i := range 1000 {
				m.Answer = append(m.Answer, &dns.MX{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeMX,
					Class: dns.ClassINET, Ttl: 1}, Preference: uint16(i), Mx: "mx.example."})
			}
		}
		w.WriteMsg(m)
	})
	got, err := resolver(t, server).MX(t.Context(), "example.com")
	if err != nil || len(got) != 200 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestNextServer(t *testing.T) {
	t.Parallel()
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := &nameserver{addr: nobody.LocalAddr().String()}
	nobody.Close()
	for name, bad := range map[string]*nameserver{
		"SERVFAIL": serve(t, rcode(dns.RcodeServerFailure)),
		"REFUSED":  serve(t, rcode(dns.RcodeRefused)),
		"silent":   serve(t, silence),
		"closed":   closed,
		"truncated, and TCP fails": serve(t, func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			if w.RemoteAddr().Network() == "udp" {
				w.WriteMsg(m)
			} else {
				w.Close()
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := serve(t, exampleZone)
			got, err := resolver(t, bad, good).MX(t.Context(), "example.com")
			if err != nil || len(got) != 2 || good.udp.Load() != 1 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestTriesEnd(t *testing.T) {
	t.Parallel()
	first, second := serve(t, rcode(dns.RcodeServerFailure)), serve(t, rcode(dns.RcodeRefused))
	_, err := resolver(t, first, second).MX(t.Context(), "example.com")
	if !errors.Is(err, resolve.ErrTemporary) || errors.Is(err, resolve.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if first.udp.Load() != 2 || second.udp.Load() != 2 {
		t.Errorf("asked %d and %d times", first.udp.Load(), second.udp.Load())
	}
}

func TestContextEndsTheWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := serve(t, func(*nameserver, dns.ResponseWriter, *dns.Msg) { cancel() })
	_, err := resolver(t, server).MX(ctx, "example.com")
	if !errors.Is(err, resolve.ErrTemporary) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if n := server.udp.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestForgeriesArePassedOver sends forged datagrams, as an attacker might, before the real response.
func TestForgeriesArePassedOver(t *testing.T) {
	t.Parallel()
	server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		forged := func(change func(*dns.Msg)) {
			m := new(dns.Msg).SetReply(q)
			m.Answer = append(m.Answer, &dns.MX{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeMX,
				Class: dns.ClassINET, Ttl: 1}, Mx: "evil.example."})
			change(m)
			w.WriteMsg(m)
		}
		forged(func(m *dns.Msg) { m.Id++ })
		forged(func(m *dns.Msg) { m.Question[0].Name = "other.example." })
		forged(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeA })
		forged(func(m *dns.Msg) { m.Question = nil })
		forged(func(m *dns.Msg) { m.Response = false })
		w.Write([]byte("no DNS at all"))
		w.Write([]byte{0})
		exampleZone(n, w, q)
	})
	got, err := resolver(t, server).MX(t.Context(), "example.com")
	if err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestServersWithoutEDNS queries a server that predates RFC 6891 and supports neither EDNS0 nor the AD bit.
func TestServersWithoutEDNS(t *testing.T) {
	t.Parallel()
	for _, code := range []int{dns.RcodeFormatError, dns.RcodeNotImplemented} {
		server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			if q.IsEdns0() != nil || q.AuthenticatedData {
				rcode(code)(n, w, q)
				return
			}
			exampleZone(n, w, q)
		})
		if got, err := resolver(t, server).MX(t.Context(), "example.com"); err != nil || len(got) != 2 {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// TestAliasesAreFollowedByUs queries a server that responds with an alias but does not follow it.
func TestAliasesAreFollowedByUs(t *testing.T) {
	t.Parallel()
	server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		name := q.Question[0].Name
		if !strings.HasPrefix(name, "alias") && !strings.HasPrefix(name, "z") {
			exampleZone(n, w, q)
			return
		}
		target := "example.com."
		if strings.HasPrefix(name, "z") {
			target = "z" + name
		}
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60},
			Target: target}}
		w.WriteMsg(m)
	})
	r := resolver(t, server)
	if got, err := r.MX(t.Context(), "alias.example.com"); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	before := server.udp.Load()
	if _, err := r.MX(t.Context(), "z.example.com"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("error %v", err)
	}
	if n := server.udp.Load() - before; n > 10 {
		t.Errorf("followed %d aliases", n)
	}
}

// DNS ignores records for other names in a response.
func TestRecordsOfOtherNames(t *testing.T) {
	t.Parallel()
	server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, text := range []string{
			"evil.example.com. 60 IN MX 1 evil.example.com.", "example.com. 60 IN MX 10 mx.example.com.",
			"evil.example.com. 60 IN CNAME evil.example.net.", "www.example.com. 60 IN CNAME example.com.",
		} {
			rr, err := dns.NewRR(text)
			if err != nil {
				t.Error(err)
			}
			if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		w.WriteMsg(m)
	})
	r := resolver(t, server)
	if got, err := r.MX(t.Context(), "example.com"); err != nil || len(got) != 1 || got[0].Host != "mx.example.com" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.CNAME(t.Context(), "www.example.com"); err != nil || got != "example.com" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.CNAME(t.Context(), "other.example.com"); !errors.Is(err, resolve.ErrNotFound) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestOneFamilyFails looks up names that have addresses in at most one family, while the look-up for the other family
// fails.
func TestOneFamilyFails(t *testing.T) {
	t.Parallel()
	server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeAAAA {
			rcode(dns.RcodeServerFailure)(n, w, q)
			return
		}
		exampleZone(n, w, q)
	})
	r := resolver(t, server)
	if got, err := r.Addrs(t.Context(), "four.example.com"); err != nil || !slices.Equal(got, addrs("192.0.2.4")) {
		t.Errorf("%v, %v", got, err)
	}
	// If a name has no addresses in one family and the look-up for the other family fails, the error is temporary. If
	// Addrs returned a definite error, mail would bounce.
	if got, err := r.Addrs(t.Context(), "example.com"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNewDNS(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"", "127.0.0.1", "dns.example:53", "127.0.0.1:port"} {
		if _, err := resolve.NewDNS([]string{server}); err == nil {
			t.Errorf("NewDNS accepts %q", server)
		}
	}
	if _, err := resolve.NewDNS([]string{"[::1]:53"}); err != nil {
		t.Error(err)
	}
}

func TestDNSPTR(t *testing.T) {
	t.Parallel()
	r := resolver(t, serve(t, zone(
		`1.2.0.192.in-addr.arpa. 300 IN PTR MX1.Example.com.`,
		`2.2.0.192.in-addr.arpa. 300 IN CNAME 2.sub.2.0.192.in-addr.arpa.`,
		`2.sub.2.0.192.in-addr.arpa. 300 IN PTR delegated.example.com.`,
		`1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. 300 IN PTR six.example.com.`,
	)))
	for addr, want := range map[string]string{
		"192.0.2.1": "mx1.example.com", "::ffff:192.0.2.1": "mx1.example.com", "192.0.2.2": "delegated.example.com",
		"2001:db8::1": "six.example.com",
	} {
		if names, err := r.PTR(t.Context(), netip.MustParseAddr(addr)); err != nil || !slices.Equal(names, []string{want}) {
			t.Errorf("%s: %q, %v", addr, names, err)
		}
	}
	if _, err := r.PTR(t.Context(), netip.MustParseAddr("192.0.2.9")); !errors.Is(err, resolve.ErrNoName) {
		t.Errorf("no record: %v", err)
	}
	if _, err := r.PTR(t.Context(), netip.Addr{}); !errors.Is(err, resolve.ErrNotFound) {
		t.Errorf("no address: %v", err)
	}
}
