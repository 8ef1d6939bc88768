package netguard_test

import (
	"net"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// nameserver responds to all questions with failures, except that missing.test does not exist. The parameter root is
// the response to the question about the root zone. The result is the server's address, and a function that stops it.
func nameserver(t *testing.T, root int) (addr string, stop func()) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		code := dns.RcodeServerFailure
		switch q.Question[0].Name {
		case ".":
			code = root
		case "missing.test.":
			code = dns.RcodeNameError
		}
		m := new(dns.Msg).SetRcode(q, code)
		m.RecursionAvailable = true
		w.WriteMsg(m)
	})
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	return packets.LocalAddr().String(), func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	}
}

// If the machine's DNS servers do not respond at all, a fetch fails with an outage. If only the host's name cannot be
// looked up, the fetch fails as with any other error of the host, however the servers respond to other questions.
func TestFetchWithoutDNS(t *testing.T) {
	t.Parallel()
	for name, root := range map[string]int{"answers": dns.RcodeSuccess, "refuses": dns.RcodeRefused,
		"fails": dns.RcodeServerFailure} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, stop := nameserver(t, root)
			g := netguard.New(netguard.Options{DNSServers: []string{addr}})
			fetch := func(host string, ours bool) {
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
			stop()
			fetch("broken.test", true)
		})
	}
}
