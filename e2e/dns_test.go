package e2e

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// nameServer is a DNS server on loopback whose records a test can change. For all names without records, it answers
// NXDOMAIN.
type nameServer struct {
	t    *testing.T
	addr string

	// signed is a zone whose answers the server marks as authenticated, as a server that validates signatures would; ""
	// if there is none.
	signed string

	mu      sync.Mutex
	records []dns.RR
}

// rootSOA is the record of the root zone by which a server shows that it validates signatures.
var rootSOA = &dns.SOA{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60}, Ns: "ns.example.",
	Mbox: "hostmaster.example.", Serial: 1}

// startDNS starts a DNS server without records that stops when the test ends.
func startDNS(t *testing.T) *nameServer {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{t: t, addr: packets.LocalAddr().String()}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }, Handler: s}
	go server.ActivateAndServe()
	<-started
	t.Cleanup(func() { server.Shutdown() })
	return s
}

// add adds records in the format of zone files.
func (s *nameServer) add(records ...string) {
	s.t.Helper()
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil || rr == nil {
			s.t.Fatalf("%q is not a record: %v", text, err)
		}
		s.mu.Lock()
		s.records = append(s.records, rr)
		s.mu.Unlock()
	}
}

func (s *nameServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	answer := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
	s.mu.Lock()
	for _, rr := range s.records {
		if rr.Header().Name != strings.ToLower(q.Question[0].Name) {
			continue
		}
		answer.Rcode = dns.RcodeSuccess
		if rr.Header().Rrtype == q.Question[0].Qtype {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	s.mu.Unlock()
	if name := strings.ToLower(q.Question[0].Name); s.signed != "" && (name == "." || dns.IsSubDomain(s.signed, name)) {
		answer.AuthenticatedData = true
		if name == "." {
			answer.Rcode = dns.RcodeSuccess
			answer.Answer = append(answer.Answer, rootSOA)
		}
	}
	w.WriteMsg(answer)
}
