package netguard_test

import (
	"context"
	"net"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// If the machine's DNS servers do not answer at all, a fetch fails with an outage. If only the host's name cannot be
// looked up, the fetch fails as with any other error of the host.
func TestFetchWithoutDNS(t *testing.T) {
	t.Parallel()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := packets.LocalAddr().String()
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		switch q.Question[0].Name {
		case ".":
			m := new(dns.Msg).SetReply(q)
			m.RecursionAvailable = true
			m.Answer = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNS, Class: dns.ClassINET},
				Ns: "a.root.test."}}
			w.WriteMsg(m)
		case "missing.test.":
			w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeNameError))
		default:
			w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	g := netguard.New(netguard.Options{Resolver: &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}})
	fetch := func(host string, ours bool) {
		t.Helper()
		f, err := g.Fetch(t.Context(), "team", "http://"+host+"/file", 1000)
		if err == nil {
			f.Close()
		}
		if err == nil || fault.IsOutage(err) != ours {
			t.Errorf("%s: %v is an outage: %v, want %v", host, err, fault.IsOutage(err), ours)
		}
	}
	fetch("broken.test", false)
	fetch("missing.test", false)
	if err := server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	<-ended
	fetch("broken.test", true)
}
