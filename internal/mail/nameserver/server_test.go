package nameserver_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/nameserver"
)

// running is a name server on loopback.
type running struct {
	t       testing.TB
	addr    string
	server  *nameserver.Server
	stop    func() // ends the server and waits for its end
	mu      sync.Mutex
	queries []nameserver.Query
}

// start starts a server with zones, which stops when the test ends.
func start(t testing.TB, c nameserver.Config, zones ...nameserver.Zone) *running {
	t.Helper()
	at, err := nameserver.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, addr: at.Addr().String()}
	c.Observe = func(q nameserver.Query) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queries = append(r.queries, q)
	}
	r.server = nameserver.New(c, slog.New(slog.DiscardHandler))
	if len(zones) > 0 {
		r.use(zones...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(ctx, at) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *running) use(zones ...nameserver.Zone) {
	r.t.Helper()
	var all []*nameserver.Compiled
	for _, z := range zones {
		all = append(all, compile(r.t, z))
	}
	s, err := nameserver.NewSet(all)
	if err != nil {
		r.t.Fatal(err)
	}
	r.server.Use(s)
}

// exchange sends a query over a network and returns the response.
func (r *running) exchange(network string, q *dns.Msg) *dns.Msg {
	r.t.Helper()
	c := dns.Client{Net: network, Timeout: 10 * time.Second, UDPSize: 4096}
	a, _, err := c.Exchange(q, r.addr)
	if err != nil {
		r.t.Fatalf("%s %v: %v", network, q.Question, err)
	}
	return a
}

func question(name string, typ uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, typ) }

// raw sends bytes over UDP and returns the response, or nil if the server answers a later query first.
func (r *running) raw(message []byte) []byte {
	r.t.Helper()
	c, err := net.Dial("udp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	sentinel := question("mail.acme.example.", dns.TypeSOA)
	sentinel.Id = 0xfffe
	last, err := sentinel.Pack()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range [][]byte{message, last} {
		if _, err := c.Write(m); err != nil {
			r.t.Fatal(err)
		}
	}
	// Several goroutines read the socket, so the responses may come in any order. Both are awaited, or the sentinel and
	// the count of dropped packets.
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	var found []byte
	seen := false
	for {
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil {
			r.t.Fatalf("neither a response nor a dropped packet: %v", err)
		}
		if n >= 2 && binary.BigEndian.Uint16(buf) == 0xfffe {
			seen = true
		} else {
			found = buf[:n]
		}
		if found != nil && seen {
			return found
		}
		if seen && r.malformed() > 0 {
			return nil
		}
		if seen {
			c.Write(last)
		}
	}
}

// malformed returns the number of dropped packets.
func (r *running) malformed() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.queries {
		if q.Malformed {
			n++
		}
	}
	return n
}

// lines returns the records in zone-file form, without the owner and class, sorted.
func lines(all []dns.RR) string {
	var out []string
	for _, rr := range all {
		if rr.Header().Rrtype == dns.TypeOPT {
			continue
		}
		fields := strings.SplitN(strings.ReplaceAll(rr.String(), "\t", " "), " ", 5)
		out = append(out, strings.Join(append(fields[:2:2], fields[3:]...), " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

const soa = "mail.acme.example. 60 SOA a.ns1.dns.host.example. postmaster.host.example. 7 3600 600 1209600 60"

func TestAnswers(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	for _, c := range []struct {
		name      string
		typ       uint16
		rcode     int
		answer    string
		authority string
	}{
		{"mail.acme.example.", dns.TypeSOA, 0, strings.Replace(soa, " 60 ", " 3600 ", 1), ""},
		{"mail.acme.example.", dns.TypeNS, 0, "mail.acme.example. 3600 NS a.ns1.dns.host.example.\n" +
			"mail.acme.example. 3600 NS a.ns2.dns.host.example.", ""},
		{"mail.acme.example.", dns.TypeMX, 0, "mail.acme.example. 300 MX 10 in.host.example.", ""},
		{"mail.acme.example.", dns.TypeTXT, 0, `mail.acme.example. 300 TXT "v=spf1 include:host.example ~all"`, ""},
		{"mail.acme.example.", dns.TypeCAA, 0, `mail.acme.example. 60 CAA 0 issue "ca.example; validationmethods=dns-01"`,
			""},
		{"null.mail.acme.example.", dns.TypeMX, 0, "null.mail.acme.example. 60 MX 0 .", ""},
		{"v4.mail.acme.example.", dns.TypeA, 0, "v4.mail.acme.example. 60 A 192.0.2.1\nv4.mail.acme.example. 60 A 192.0.2.2",
			""},
		{"v6.mail.acme.example.", dns.TypeAAAA, 0, "v6.mail.acme.example. 60 AAAA 2001:db8::1", ""},
		{"_25._tcp.in.mail.acme.example.", dns.TypeTLSA, 0, "_25._tcp.in.mail.acme.example. 60 TLSA 3 1 1 " +
			strings.Repeat("ab", 32), ""},

		// Absences.
		{"v4.mail.acme.example.", dns.TypeAAAA, 0, "", soa},
		{"mail.acme.example.", dns.TypeA, 0, "", soa},
		{"_domainkey.mail.acme.example.", dns.TypeTXT, 0, "", soa}, // exists because of a longer name
		{"_tcp.in.mail.acme.example.", dns.TypeTXT, 0, "", soa},
		{"in.mail.acme.example.", dns.TypeA, 0, "", soa},
		{"none.mail.acme.example.", dns.TypeA, dns.RcodeNameError, "", soa},
		{"a.b.c.none.mail.acme.example.", dns.TypeA, dns.RcodeNameError, "", soa},
		{"below.v4.mail.acme.example.", dns.TypeA, dns.RcodeNameError, "", soa},
		{`a\.b.mail.acme.example.`, dns.TypeA, dns.RcodeNameError, "", soa},
		{"mail.acme.example.", dns.TypeDS, 0, "", soa},
		{"v4.mail.acme.example.", 65280, 0, "", soa}, // a type for private use

		// Aliases.
		{"alias.mail.acme.example.", dns.TypeCNAME, 0, "alias.mail.acme.example. 60 CNAME second.mail.acme.example.", ""},
		{"alias.mail.acme.example.", dns.TypeA, 0, "alias.mail.acme.example. 60 CNAME second.mail.acme.example.\n" +
			"second.mail.acme.example. 60 CNAME v4.mail.acme.example.\nv4.mail.acme.example. 60 A 192.0.2.1\n" +
			"v4.mail.acme.example. 60 A 192.0.2.2", ""},
		{"second.mail.acme.example.", dns.TypeTXT, 0, "second.mail.acme.example. 60 CNAME v4.mail.acme.example.", soa},
		{"dangling.mail.acme.example.", dns.TypeA, dns.RcodeNameError,
			"dangling.mail.acme.example. 60 CNAME none.mail.acme.example.", soa},
		{"away.mail.acme.example.", dns.TypeA, 0, "away.mail.acme.example. 60 CNAME tracking.host.example.", ""},

		// Wildcards (RFC 4592).
		{"any.wild.mail.acme.example.", dns.TypeTXT, 0, `any.wild.mail.acme.example. 60 TXT "from the wildcard"`, ""},
		{"a.b.wild.mail.acme.example.", dns.TypeTXT, 0, `a.b.wild.mail.acme.example. 60 TXT "from the wildcard"`, ""},
		{`a\.b.wild.mail.acme.example.`, dns.TypeTXT, 0, `a\.b.wild.mail.acme.example. 60 TXT "from the wildcard"`, ""},
		{"any.wild.mail.acme.example.", dns.TypeA, 0, "", soa},
		{"*.wild.mail.acme.example.", dns.TypeTXT, 0, `*.wild.mail.acme.example. 60 TXT "from the wildcard"`, ""},
		{"wild.mail.acme.example.", dns.TypeTXT, 0, "", soa},
		{"host.wild.mail.acme.example.", dns.TypeTXT, 0, "", soa},                     // the name exists
		{"x.host.wild.mail.acme.example.", dns.TypeTXT, dns.RcodeNameError, "", soa},  // below a name that exists
		{"below.wild.mail.acme.example.", dns.TypeTXT, 0, "", soa},                    // exists without records
		{"x.below.wild.mail.acme.example.", dns.TypeTXT, dns.RcodeNameError, "", soa}, // the encloser is below
		{"x.*.wild.mail.acme.example.", dns.TypeTXT, dns.RcodeNameError, "", soa},     // below the wildcard itself
		{"x.to.mail.acme.example.", dns.TypeA, 0, "v4.mail.acme.example. 60 A 192.0.2.1\n" + // and its address
			"v4.mail.acme.example. 60 A 192.0.2.2\nx.to.mail.acme.example. 60 CNAME v4.mail.acme.example.", ""},

		// ANY (RFC 8482).
		{"mail.acme.example.", dns.TypeANY, 0, `mail.acme.example. 3600 HINFO "RFC8482" ""`, ""},
		{"none.mail.acme.example.", dns.TypeANY, dns.RcodeNameError, "", soa},
		{"in.mail.acme.example.", dns.TypeANY, 0, "", soa},
	} {
		for _, network := range []string{"udp", "tcp"} {
			a := r.exchange(network, question(c.name, c.typ))
			what := fmt.Sprintf("%s %s %s", network, c.name, dns.TypeToString[c.typ])
			if a.Rcode != c.rcode || !a.Authoritative || a.RecursionAvailable || a.Truncated {
				t.Errorf("%s: %v", what, a.MsgHdr)
			}
			if got := lines(a.Answer); got != c.answer {
				t.Errorf("%s: answer\n%s\nwant\n%s", what, got, c.answer)
			}
			if got := lines(a.Ns); got != c.authority {
				t.Errorf("%s: authority\n%s\nwant\n%s", what, got, c.authority)
			}
		}
	}
}

// A long text is split into strings that readers join, and bytes that zone files escape arrive unchanged.
func TestTexts(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	text := func(name string) string {
		a := r.exchange("udp", question(name, dns.TypeTXT))
		if len(a.Answer) != 1 {
			t.Fatalf("%s: %v", name, a)
		}
		// The library escapes bytes in the strings, as zone files do.
		buf := make([]byte, dns.MaxMsgSize)
		end, err := dns.PackRR(a.Answer[0], buf, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		data := buf[end-int(a.Answer[0].Header().Rdlength) : end]
		var b strings.Builder
		for len(data) > 0 {
			n := 1 + int(data[0])
			b.Write(data[1:n])
			data = data[n:]
		}
		return b.String()
	}
	if got, want := text("odd.mail.acme.example."), `say "a\b" and é; twice`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := text("s1._domainkey.mail.acme.example."); got != "v=DKIM1; k=rsa; p="+strings.Repeat("A", 392) {
		t.Errorf("got %q", got)
	}
}

// Resolvers vary the case of letters to recognise forged responses. The response has the same letters.
func TestCaseIsKept(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	for name, found := range map[string]bool{"MaIl.aCMe.ExamPLe.": true, "aNY.wiLD.maIL.acme.exAMple.": true,
		"noNE.mail.ACME.example.": false} {
		a := r.exchange("udp", question(name, dns.TypeTXT))
		if a.Question[0].Name != name || found != (len(a.Answer) == 1) || found && a.Answer[0].Header().Name != name {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestLoopEnds(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	a := r.exchange("udp", question("loop1.mail.acme.example.", dns.TypeA))
	if a.Rcode != dns.RcodeSuccess || len(a.Answer) == 0 || len(a.Answer) > 8 {
		t.Errorf("%v", a)
	}
}

// Names outside the zones, and everything that is not a plain question, are refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	with := func(change func(*dns.Msg)) *dns.Msg {
		q := question("mail.acme.example.", dns.TypeTXT)
		change(q)
		return q
	}
	opcode := func(code int) *dns.Msg { return with(func(q *dns.Msg) { q.Opcode = code }) }
	for name, c := range map[string]struct {
		q    *dns.Msg
		want int
	}{
		"another domain": {question("acme.example.", dns.TypeTXT), dns.RcodeRefused},
		"similar domain": {question("xmail.acme.example.", dns.TypeTXT), dns.RcodeRefused},
		"root":           {question(".", dns.TypeNS), dns.RcodeRefused},
		"AXFR":           {question("mail.acme.example.", dns.TypeAXFR), dns.RcodeRefused},
		"IXFR":           {question("mail.acme.example.", dns.TypeIXFR), dns.RcodeRefused},
		"TKEY":           {question("mail.acme.example.", dns.TypeTKEY), dns.RcodeRefused},
		"chaos":          {with(func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		"class ANY":      {with(func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		"version":        {question("version.bind.", dns.TypeTXT), dns.RcodeRefused},
		"NOTIFY":         {opcode(dns.OpcodeNotify), dns.RcodeNotImplemented},
		"UPDATE":         {opcode(dns.OpcodeUpdate), dns.RcodeNotImplemented},
		"STATUS":         {opcode(dns.OpcodeStatus), dns.RcodeNotImplemented},
		"no question":    {with(func(q *dns.Msg) { q.Question = nil }), dns.RcodeFormatError},
		"two OPT": {with(func(q *dns.Msg) { q.SetEdns0(1232, false); q.Extra = append(q.Extra, q.Extra[0]) }),
			dns.RcodeFormatError},
		"OPT elsewhere": {with(func(q *dns.Msg) {
			q.SetEdns0(1232, false)
			q.Extra[0].Header().Name = "a.example."
		}), dns.RcodeFormatError},
	} {
		for _, network := range []string{"udp", "tcp"} {
			a := r.exchange(network, c.q)
			if a.Rcode != c.want || a.Authoritative || len(a.Answer)+len(a.Ns) > 0 || a.RecursionAvailable {
				t.Errorf("%s by %s: %v", name, network, a)
			}
		}
	}
	two := with(func(q *dns.Msg) { q.Question = append(q.Question, q.Question[0]) })
	packed, err := two.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.raw(packed); len(got) != 12 || got[3]&0xf != dns.RcodeFormatError {
		t.Errorf("two questions: response %x", got)
	}
}

func TestMalformedPacketsAreDropped(t *testing.T) {
	t.Parallel()
	for name, message := range map[string][]byte{
		"empty":    {},
		"short":    make([]byte, 11),
		"response": {0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"cut":      {0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, 'm', 'a'},
		"loop":     {0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1},
		"huge":     make([]byte, 5000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nameserver.Config{}, sample())
			if got := r.raw(message); got != nil {
				t.Errorf("response %x", got)
			}
		})
	}
}

func TestEDNS(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	q := question("mail.acme.example.", dns.TypeMX)
	if a := r.exchange("udp", q); a.IsEdns0() != nil {
		t.Errorf("a client without EDNS gets %v", a)
	}
	q.SetEdns0(4096, true)
	a := r.exchange("udp", q)
	if opt := a.IsEdns0(); opt == nil || opt.UDPSize() != 1232 || !opt.Do() || opt.Version() != 0 || len(a.Answer) != 1 {
		t.Errorf("%v", a)
	}
	q.IsEdns0().SetVersion(1)
	a = r.exchange("udp", q)
	if opt := a.IsEdns0(); a.Rcode != dns.RcodeBadVers || opt == nil || opt.Version() != 0 || len(a.Answer) != 0 {
		t.Errorf("an unknown version gets %v", a)
	}
}

// A response that does not fit into UDP comes over TCP.
func TestTruncation(t *testing.T) {
	t.Parallel()
	z := sample()
	for _, c := range "abcd" {
		z.Records = append(z.Records, nameserver.Record{Name: "big.mail.acme.example", Type: "TXT", TTL: 60,
			Value: strings.Repeat(string(c), 400)})
	}
	r := start(t, nameserver.Config{}, z)
	q := question("big.mail.acme.example.", dns.TypeTXT)
	for _, size := range []uint16{0, 512, 4096} { // even 4096 counts as 1232
		if size > 0 {
			q.SetEdns0(size, false)
		}
		if a := r.exchange("udp", q); !a.Truncated || len(a.Answer) != 0 || a.Rcode != dns.RcodeSuccess {
			t.Errorf("size %d: %v", size, a)
		}
		if a := r.exchange("tcp", q); a.Truncated || len(a.Answer) != 4 {
			t.Errorf("size %d over TCP: %v", size, a)
		}
		q.Extra = nil
	}
	// One record fits into 1232 bytes, but not into 512.
	q = question("s1._domainkey.mail.acme.example.", dns.TypeTXT)
	z.Records[2].Value += strings.Repeat("B", 200)
	r.use(z)
	if a := r.exchange("udp", q); !a.Truncated {
		t.Errorf("without EDNS: %v", a)
	}
	q.SetEdns0(1232, false)
	if a := r.exchange("udp", q); a.Truncated || len(a.Answer) != 1 {
		t.Errorf("with EDNS: %v", a)
	}
}

// A name between two zones exists, although the upper zone has no such record (RFC 8020).
func TestZoneBelowAnother(t *testing.T) {
	t.Parallel()
	lower := sample()
	lower.Name, lower.Records = "x.y.z.mail.acme.example", nil
	r := start(t, nameserver.Config{}, sample(), lower)
	for _, c := range []struct {
		name, authority string
		typ             uint16
		rcode           int
	}{
		{"x.y.z.mail.acme.example.", "x.y.z.mail.acme.example.", dns.TypeTXT, 0},
		{"n.x.y.z.mail.acme.example.", "x.y.z.mail.acme.example.", dns.TypeTXT, dns.RcodeNameError},
		{"y.z.mail.acme.example.", "mail.acme.example.", dns.TypeTXT, 0},
		{"z.mail.acme.example.", "mail.acme.example.", dns.TypeTXT, 0},
		{"n.z.mail.acme.example.", "mail.acme.example.", dns.TypeTXT, dns.RcodeNameError},
		{"x.y.z.mail.acme.example.", "mail.acme.example.", dns.TypeDS, 0}, // the upper zone answers
	} {
		a := r.exchange("udp", question(c.name, c.typ))
		if a.Rcode != c.rcode || len(a.Ns) != 1 || a.Ns[0].Header().Name != c.authority {
			t.Errorf("%s: %v", c.name, a)
		}
	}
}

func TestWithoutZones(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{})
	if a := r.exchange("udp", question("mail.acme.example.", dns.TypeTXT)); a.Rcode != dns.RcodeServerFailure {
		t.Errorf("before the zones are known: %v", a)
	}
	r.use(sample())
	if a := r.exchange("udp", question("mail.acme.example.", dns.TypeTXT)); len(a.Answer) != 1 {
		t.Errorf("afterwards: %v", a)
	}
}

// Zones are replaced while queries are answered: no answer mixes two versions, and none fails.
func TestZonesAreReplacedAtOnce(t *testing.T) {
	t.Parallel()
	version := func(n int) nameserver.Zone {
		z := sample()
		z.Records = nil
		for _, name := range []string{"a", "b"} {
			z.Records = append(z.Records, nameserver.Record{Name: name + ".mail.acme.example", Type: "TXT", TTL: 60,
				Value: fmt.Sprint(n)})
		}
		z.Records = append(z.Records, nameserver.Record{Name: "a.mail.acme.example", Type: "MX", TTL: 60,
			Value: fmt.Sprintf("%d b.mail.acme.example", n)})
		z.Serial = uint32(n)
		return z
	}
	r := start(t, nameserver.Config{}, version(0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; n < 50; n++ {
			r.use(version(n))
		}
	}()
	for last := 0; ; {
		a := r.exchange("udp", question("a.mail.acme.example.", dns.TypeTXT))
		var n int
		if len(a.Answer) != 1 {
			t.Fatalf("%v", a)
		}
		fmt.Sscan(a.Answer[0].(*dns.TXT).Txt[0], &n)
		if n < last {
			t.Fatalf("version %d after %d", n, last)
		}
		last = n
		select {
		case <-done:
			if last == 49 {
				return
			}
		default:
		}
	}
}

// On a socket for all addresses, a response leaves from the address that was asked.
func TestAnswersFromTheAddressThatWasAsked(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{":0", "0.0.0.0:0"} {
		at, err := nameserver.Listen(listen)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(at.Addr().String())
		s := nameserver.New(nameserver.Config{}, slog.New(slog.DiscardHandler))
		set, _ := nameserver.NewSet([]*nameserver.Compiled{compile(t, sample())})
		s.Use(set)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, at) }()
		for _, host := range []string{"127.0.0.1", "127.0.0.53"} {
			// A connected socket accepts only packets from the address to which it sends.
			c := dns.Client{Timeout: 10 * time.Second}
			if _, _, err := c.Exchange(question("mail.acme.example.", dns.TypeMX), net.JoinHostPort(host, port)); err != nil {
				t.Errorf("listen at %s, ask %s: %v", listen, host, err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestRateLimitOverUDP(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{RateLimit: 1}, sample())
	q := question("mail.acme.example.", dns.TypeMX)
	for range 2 { // the burst
		if a := r.exchange("udp", q); a.Truncated || len(a.Answer) != 1 {
			t.Fatalf("below the limit: %v", a)
		}
	}
	a := r.exchange("udp", q)
	if !a.Truncated || len(a.Answer) != 0 {
		t.Errorf("above the limit: %v", a)
	}
	if a := r.exchange("tcp", q); len(a.Answer) != 1 {
		t.Errorf("over TCP: %v", a)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.queries); n != 4 || !r.queries[2].Limited || r.queries[3].Limited || !r.queries[3].TCP ||
		r.queries[0].Zone != "mail.acme.example" {
		t.Errorf("observed %+v", r.queries)
	}
}

// A refused query about an awaited zone is told apart from others.
func TestAwaitedZones(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{})
	set, err := nameserver.NewSet([]*nameserver.Compiled{compile(t, sample())}, "mail.later.example", sample().Name)
	if err != nil {
		t.Fatal(err)
	}
	r.server.Use(set)
	for name, want := range map[string]string{"Mail.Later.example.": "mail.later.example",
		"a.b.mail.later.example.": "mail.later.example", "later.example.": "", "xmail.later.example.": "", ".": "",
		sample().Name + ".": ""} {
		r.exchange("udp", new(dns.Msg).SetQuestion(name, dns.TypeTXT))
		r.mu.Lock()
		if got := r.queries[len(r.queries)-1].Awaited; got != want {
			t.Errorf("%s: awaited %q, want %q", name, got, want)
		}
		r.mu.Unlock()
	}
}
