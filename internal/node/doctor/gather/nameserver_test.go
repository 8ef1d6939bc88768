package gather

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/nameserver"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// resolverFor starts a DNS server that answers like a recursive resolver with the given records.
func resolverFor(t *testing.T, records ...string) *resolve.DNS {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			for _, text := range records {
				rr, err := dns.NewRR(text)
				if err == nil && strings.EqualFold(rr.Header().Name, q.Question[0].Name) &&
					rr.Header().Rrtype == q.Question[0].Qtype {
					m.Answer = append(m.Answer, rr)
				}
			}
			w.WriteMsg(m)
		})}
	go s.ActivateAndServe()
	<-started
	t.Cleanup(func() { s.Shutdown() })
	r, err := resolve.NewDNS([]string{packets.LocalAddr().String()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The facts tell a server that answers from one that is silent, and an address of the settings from one of the DNS.
func TestNameServers(t *testing.T) {
	t.Parallel()
	at, err := nameserver.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := nameserver.New(nameserver.Config{}, slog.New(slog.DiscardHandler))
	z, err := nameserver.Compile(nameserver.Zone{Name: "dns.host.example", Serial: 9, NS: []string{"ns1.dns.host.example"},
		Mailbox: "postmaster.host.example"})
	if err != nil {
		t.Fatal(err)
	}
	set, err := nameserver.NewSet([]*nameserver.Compiled{z})
	if err != nil {
		t.Fatal(err)
	}
	s.Use(set)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, at) }()
	t.Cleanup(func() { cancel(); <-ended })
	_, text, _ := net.SplitHostPort(at.Addr().String())
	port, _ := strconv.Atoi(text)

	c := &collector{Sources: Sources{AuthorityPort: uint16(port), Allowed: func(netip.Addr) bool { return true },
		Config: config.Config{DNSZone: "dns.host.example", DNSNames: []string{"ns1.dns.host.example", "ns2.dns.host.example"},
			DNSAddresses: []string{"ns1.dns.host.example=127.0.0.1", "ns2.dns.host.example=127.0.0.2"}},
		DNS: resolverFor(t, "ns1.dns.host.example. 60 IN A 127.0.0.1", "ns2.dns.host.example. 60 IN A 127.0.0.3")}}
	c.nameServers(t.Context())
	n := c.f.NameServers
	if n == nil || len(n.Servers) != 3 || n.Err == nil {
		t.Fatalf("%+v", n)
	}
	if x := n.Servers[0]; !x.UDP.Authoritative || x.UDP.Serial != 9 || !x.TCP.Authoritative || x.Recursion.Resolved ||
		x.Recursion.Err != nil || !x.Configured || !x.InDNS {
		t.Errorf("the server that answers: %+v", x)
	}
	if x := n.Servers[1]; x.UDP.Err == nil || x.TCP.Err == nil || !x.Configured || x.InDNS {
		t.Errorf("the silent server: %+v", x)
	}
	if x := n.Servers[2]; x.Configured || !x.InDNS || x.Addr.String() != "127.0.0.3" {
		t.Errorf("the address of the DNS: %+v", x)
	}
}
