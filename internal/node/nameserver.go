package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/mail/nameserver"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/zones"
)

// nameServer is what a node with the role dns has for it.
type nameServer struct {
	server  *nameserver.Server // nil without the role
	zones   *zones.Service
	sockets []*nameserver.Sockets // open sockets that Run will serve
}

// newNameServer builds the name server of a node with the role dns.
func (n *Node) newNameServer(resources.Hooks) (err error) {
	c := n.Config
	if !n.Has("dns") || n.o.Beside {
		return nil
	}
	s := &n.nameServer
	s.server = nameserver.New(nameserver.Config{RateLimit: c.DNSRateLimit, Observe: n.observeQuery},
		n.Log.With("listener", "dns"))
	var servers []zones.Server
	for _, x := range c.NameServers() {
		servers = append(servers, zones.Server(x))
	}
	s.zones, err = zones.New(zones.Config{Zone: c.DNSZone, Servers: servers,
		Mailbox: nameserver.MailboxName(c.ZoneContact())},
		zones.Deps{Content: n.Domains.Zones, Check: n.Domains.CheckDelegation, Publish: s.server.Use, Log: n.Log,
			Now: n.DB.Now})
	if err != nil {
		return err
	}
	n.DB.OnHint(domains.HintTopic, func(string) { s.zones.Changed() })
	n.DB.OnListening(s.zones.Changed) // hints may have been lost
	return nil
}

// ListenDNS opens the sockets of the name server if this node has the role dns.
func (n *Node) ListenDNS() error {
	if n.nameServer.server == nil || len(n.nameServer.sockets) > 0 {
		return nil
	}
	for _, address := range n.Config.DNSListen {
		s, err := nameserver.Listen(address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("listen at dns_listen: %w: another DNS server of this machine uses the port (`ss -lnp sport = 53` "+
				"shows it): name only the public addresses of this machine in dns_listen, such as 192.0.2.1:53", err)
		case err != nil:
			return listenError("dns_listen", err)
		}
		n.nameServer.sockets = append(n.nameServer.sockets, s)
		n.Log.Info("listening", "dns", s.Addr().String())
	}
	return nil
}

// DNSAddr returns the address of the first open sockets of the name server, or "".
func (n *Node) DNSAddr() string {
	if len(n.nameServer.sockets) == 0 {
		return ""
	}
	return n.nameServer.sockets[0].Addr().String()
}

// serveDNS answers DNS queries until ctx ends.
func (n *Node) serveDNS(ctx context.Context, g *errgroup.Group) {
	s := &n.nameServer
	if s.server == nil {
		return
	}
	g.Go(func() error { return s.zones.Run(ctx) })
	for _, at := range s.sockets {
		g.Go(func() error { return s.server.Serve(ctx, at) })
	}
}

// closeDNS closes the sockets that were never served.
func (n *Node) closeDNS() {
	for _, s := range n.nameServer.sockets {
		if err := s.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			n.Log.Warn("could not close the sockets of the name server", "error", err)
		}
	}
}

// observeQuery is called after each DNS query.
func (n *Node) observeQuery(q nameserver.Query) {
	if q.Malformed {
		n.metrics.QueryDropped("malformed")
		return
	}
	zone := "customer"
	switch q.Zone {
	case "":
		zone = "none"
	case n.Config.DNSZone:
		zone = "own"
	}
	n.metrics.Query(zone, dns.RcodeToString[q.Rcode])
	if q.Awaited != "" {
		n.nameServer.zones.Queried(q.Awaited)
	}
	if q.Limited {
		n.metrics.QueryDropped("rate_limit")
	}
}

// checkZones is a check of /readyz.
func (n *Node) checkZones(context.Context) error { return n.nameServer.zones.Problem() }

// zonesCondition is about the zones of the name server. While the database is away, no alarm can be stored, so a node
// that has not read its zones yet has no alarm.
func (n *Node) zonesCondition() alarms.Condition {
	node, text := n.Config.Hostname, "The name server on "+n.Config.Hostname+" has read all zones."
	problem := n.nameServer.zones.Problem()
	if problem != nil {
		text = fmt.Sprintf("On %s, %v.", node, problem)
	}
	return alarms.Condition{Cause: "dns_zones", Node: node,
		Bad: problem != nil && !n.nameServer.zones.State().ReadAt.IsZero(), Good: problem == nil,
		Title: "the name server has a problem with its zones", Text: text}
}

// zonesInUse returns the state of the name server's zones; ok is false without the role dns.
func (n *Node) zonesInUse() (z telemetry.Zones, ok bool) {
	if n.nameServer.server == nil {
		return z, false
	}
	s := n.nameServer.zones.State()
	return telemetry.Zones{Number: s.Zones, BadZones: s.BadZones, BadRecords: s.BadRecords, ReadAt: s.ReadAt}, true
}
