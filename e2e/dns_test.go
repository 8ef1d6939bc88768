//go:build postfix || chaos

package e2e

import (
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// serveDNS starts a DNS server on loopback with the given records and returns its address. For all other names, the DNS
// server answers NXDOMAIN.
func serveDNS(t *testing.T, records ...string) string {
	t.Helper()
	var rrs []dns.RR
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		rrs = append(rrs, rr)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
		for _, rr := range rrs {
			if rr.Header().Name != strings.ToLower(q.Question[0].Name) {
				continue
			}
			answer.Rcode = dns.RcodeSuccess
			if rr.Header().Rrtype == q.Question[0].Qtype {
				answer.Answer = append(answer.Answer, rr)
			}
		}
		w.WriteMsg(answer)
	})
	go server.ActivateAndServe()
	<-started
	t.Cleanup(func() { server.Shutdown() })
	return packets.LocalAddr().String()
}
