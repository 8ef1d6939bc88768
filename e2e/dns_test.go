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

	mu      sync.Mutex
	records []dns.RR
}

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
	w.WriteMsg(answer)
}
