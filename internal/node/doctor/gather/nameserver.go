package gather

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/doctor"
)

const (
	nameServerTime = 5 * time.Second
	dnsPort        = 53
	// foreignName is a name outside all zones of this installation.
	foreignName = "a.root-servers.net."
)

// nameServers queries the parent zone of dns_zone and each address of the name servers.
func (c *collector) nameServers(ctx context.Context) {
	if c.Config.DNSZone == "" {
		return
	}
	n := &doctor.NameServers{Zone: c.Config.DNSZone}
	parent := &authority.Client{DNS: c.dns(), Port: c.AuthorityPort, Allow: c.Allowed}
	n.Delegated, n.Err = parent.Delegation(ctx, n.Zone)
	for _, s := range c.Config.NameServers() {
		n.Servers = append(n.Servers, c.addressesOf(ctx, s)...)
	}
	var all sync.WaitGroup
	for i := range n.Servers {
		s := &n.Servers[i]
		all.Go(func() { s.UDP = c.askNameServer(ctx, s.Addr, "udp", n.Zone) })
		all.Go(func() { s.TCP = c.askNameServer(ctx, s.Addr, "tcp", n.Zone) })
		all.Go(func() { s.Recursion = c.askNameServer(ctx, s.Addr, "udp", foreignName) })
	}
	all.Wait()
	c.f.NameServers = n
}

// addressesOf returns the addresses of a name server in the settings and in the DNS.
func (c *collector) addressesOf(ctx context.Context, s config.NameServer) (all []doctor.NameServer) {
	found, err := c.dns().Addrs(ctx, s.Name)
	found = found[:min(len(found), addrsMax)]
	for _, a := range slices.Concat(s.Addrs, found) {
		if slices.ContainsFunc(all, func(x doctor.NameServer) bool { return x.Addr == a }) {
			continue
		}
		// If the look-up failed, the address counts as found, so that doctor reports no difference.
		unknown := err != nil && !errors.Is(err, resolve.ErrNotFound)
		all = append(all, doctor.NameServer{Name: s.Name, Addr: a, Configured: slices.Contains(s.Addrs, a),
			InDNS: unknown || slices.Contains(found, a)})
	}
	return all
}

// askNameServer queries an address for the SOA record of a zone, or for the A record of foreignName.
func (c *collector) askNameServer(ctx context.Context, a netip.Addr, network, name string) (r doctor.NameAnswer) {
	ctx, cancel := context.WithTimeout(ctx, nameServerTime)
	defer cancel()
	port := uint16(dnsPort)
	if c.AuthorityPort != 0 {
		port = c.AuthorityPort
	}
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeSOA)
	q.RecursionDesired = name == foreignName
	if q.RecursionDesired {
		q.Question[0].Qtype = dns.TypeA
	}
	m, err := resolve.Exchange(ctx, network, net.JoinHostPort(a.String(), strconv.Itoa(int(port))), q)
	switch {
	case err != nil:
		r.Err = err
		return r
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeRefused:
		r.Err = fmt.Errorf("the response code is %s", dns.RcodeToString[m.Rcode])
	}
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.SOA:
			r.Authoritative = m.Authoritative && strings.EqualFold(rr.Hdr.Name, dns.Fqdn(name))
			r.Serial = rr.Serial
		case *dns.A:
			r.Resolved = true
		}
	}
	return r
}
