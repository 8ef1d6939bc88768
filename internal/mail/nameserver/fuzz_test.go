package nameserver

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// newFuzzServer returns a server with a zone that has every kind of record, an alias and a wildcard.
func newFuzzServer(t testing.TB) *Server {
	z := Zone{Name: "mail.acme.example", Serial: 7, NS: []string{"ns1.host.example"}, Mailbox: "postmaster.host.example",
		Records: []Record{
			{Name: "mail.acme.example", Type: "MX", TTL: 300, Value: "10 in.host.example"},
			{Name: "big.mail.acme.example", Type: "TXT", TTL: 300, Value: strings.Repeat("A", 4000)},
			{Name: "*.wild.mail.acme.example", Type: "TXT", TTL: 60, Value: `say "a\b"`},
			{Name: "alias.mail.acme.example", Type: "CNAME", TTL: 60, Value: "x.wild.mail.acme.example"},
			{Name: "loop.mail.acme.example", Type: "CNAME", TTL: 60, Value: "loop.mail.acme.example"},
			{Name: "mail.acme.example", Type: "CAA", TTL: 60, Value: `0 issue "ca.example"`},
			{Name: "_25._tcp.mail.acme.example", Type: "TLSA", TTL: 60, Value: "3 1 1 " + strings.Repeat("ab", 32)},
		}}
	c, err := Compile(z)
	if err != nil {
		t.Fatal(err)
	}
	set, err := NewSet([]*Compiled{c})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{}, slog.New(slog.DiscardHandler))
	s.Use(set)
	return s
}

// FuzzRespond sends arbitrary packets. A response is a well-formed message with the id and, if the query had a question
// that could be read, the question of the query. A UDP response is never larger than 1232 bytes.
func FuzzRespond(f *testing.F) {
	for _, name := range []string{"mail.acme.example.", "big.mail.acme.example.", `a\.\000b.WILD.mail.acme.example.`,
		"alias.mail.acme.example.", "loop.mail.acme.example.", "other.example.", "."} {
		for _, typ := range []uint16{dns.TypeTXT, dns.TypeANY, dns.TypeAXFR, dns.TypeDS} {
			q := new(dns.Msg).SetQuestion(name, typ)
			if typ == dns.TypeANY {
				q.SetEdns0(4096, true)
			}
			packed, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packed, typ == dns.TypeDS)
		}
	}
	s := newFuzzServer(f)
	f.Fuzz(func(t *testing.T, message []byte, tcp bool) {
		response, info := s.respond(message, netip.MustParseAddr("192.0.2.1"), tcp, make([]byte, 100))
		if info.Malformed != (response == nil) || info.TCP != tcp {
			t.Fatalf("response %x, info %+v", response, info)
		}
		if response == nil {
			return
		}
		if !tcp && len(response) > maxUDP {
			t.Fatalf("%d bytes", len(response))
		}
		var q, r dns.Msg
		if err := r.Unpack(response); err != nil {
			t.Fatalf("%v: %x", err, response)
		}
		if !r.Response || r.RecursionAvailable || !bytes.Equal(response[:2], message[:2]) || r.Rcode != info.Rcode {
			t.Fatalf("%v, info %+v", r.MsgHdr, info)
		}
		if q.Unpack(message) == nil && len(q.Question) == 1 && len(r.Question) == 1 && q.Question[0] != r.Question[0] {
			t.Fatalf("asked %v, answered %v", q.Question, r.Question)
		}
		if r.Authoritative != (info.Zone != "") {
			t.Fatalf("authoritative %v, zone %q", r.Authoritative, info.Zone)
		}
	})
}
