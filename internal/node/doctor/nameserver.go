package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// NameServers holds the delegation of dns_zone and the answers of the installation's name servers.
type NameServers struct {
	Zone string // dns_zone
	// Delegated lists the name servers to which the parent zone delegates Zone. Err says why they are not known.
	Delegated []string
	Err       error
	Servers   []NameServer
}

// NameServer holds the answers of one address of a name server.
type NameServer struct {
	Name       string
	Addr       netip.Addr
	UDP, TCP   NameAnswer
	Recursion  NameAnswer // to a query for a name outside the installation's zones
	Configured bool       // the address is in dns_addresses
	InDNS      bool       // the name has the address in the DNS
}

// NameAnswer is the answer of a name server.
type NameAnswer struct {
	Err           error
	Authoritative bool
	Serial        uint32
	Resolved      bool // the server resolved a name outside the installation's zones
}

// checkNameServers judges the delegation of dns_zone and the answers of its servers.
func checkNameServers(f *Facts) []Finding {
	n := f.NameServers
	if n == nil {
		return nil
	}
	delegation, servers, recursion, serials := one{id: "nameserver.delegation"}, one{id: "nameserver.answers"},
		one{id: "nameserver.recursion"}, one{id: "nameserver.serials"}
	var want []string
	for _, s := range f.Config.NameServers() {
		want = append(want, s.Name)
	}
	slices.Sort(want)
	switch {
	case n.Err != nil && !errors.Is(n.Err, resolve.ErrNotFound):
		delegation.add(NotChecked, n.Zone, "No name server of the parent zone answered the question about the delegation of "+
			"dns_zone: "+sentence(n.Err), "Run doctor again later. If this lasts, see the finding dns.servers, and check the "+
			"name servers of the parent zone.")
	case n.Err != nil:
		delegation.add(Failure, n.Zone, "The parent zone does not delegate dns_zone: "+sentence(n.Err)+" Domains that were "+
			"set up by NS or CNAME records do not work.", "Add NS records for "+joined(want)+" at the DNS provider of the parent "+
			"zone, with their addresses (glue).")
	case !slices.Equal(n.Delegated, want):
		delegation.add(Failure, n.Zone, "The parent zone delegates dns_zone to "+joined(n.Delegated)+", but dns_names has "+
			joined(want)+".", "Correct the NS records at the DNS provider of the parent zone, or dns_names.")
	case len(want) == 1:
		delegation.add(Warning, n.Zone, "Only one name server answers for dns_zone. While it is down, receivers cannot "+
			"check the signatures of customers' emails.", "Set up a second name server on another machine.")
	default:
		delegation.ok(n.Zone, "The parent zone delegates dns_zone to the servers of dns_names.")
	}
	counts := map[uint32][]string{}
	for _, s := range n.Servers {
		checkNameServer(&s, n.Zone, &servers)
		subject := fmt.Sprintf("%s (%s)", s.Name, s.Addr)
		if s.UDP.Err == nil && s.UDP.Authoritative {
			counts[s.UDP.Serial] = append(counts[s.UDP.Serial], subject)
		}
		switch {
		case s.Recursion.Err != nil: // the finding nameserver.answers has the cause
		case s.Recursion.Resolved:
			recursion.add(Failure, subject, "The server answers queries for all names (open resolver), so attackers can use it "+
				"to flood others. A DNS server other than Postrider answers at this address.", "Stop the other server, or let it "+
				"listen at loopback addresses only.")
		default:
			recursion.ok(subject, "The server refuses queries for other names.")
		}
	}
	switch {
	case len(counts) > 1:
		serials.add(Warning, n.Zone, "The name servers have different versions of dns_zone, so resolvers get different answers.",
			"If the difference lasts for more than a minute, check the logs of the nodes with the role dns.")
	case len(counts) == 1:
		serials.ok(n.Zone, "All name servers that answer have the same version of dns_zone.")
	}
	return slices.Concat(delegation.all, servers.all, recursion.all, serials.all)
}

// checkNameServer judges the answers of one address.
func checkNameServer(s *NameServer, zone string, o *one) {
	subject := fmt.Sprintf("%s (%s)", s.Name, s.Addr)
	var silent, other []string
	for _, x := range []struct {
		transport string
		a         NameAnswer
	}{{"UDP", s.UDP}, {"TCP", s.TCP}} {
		switch {
		case x.a.Err != nil:
			silent = append(silent, x.transport)
		case !x.a.Authoritative:
			other = append(other, x.transport)
		}
	}
	switch {
	case len(silent) > 0:
		cause := s.UDP.Err
		if cause == nil {
			cause = s.TCP.Err
		}
		o.add(Failure, subject, "The server does not answer over "+strings.Join(silent, " and ")+": "+sentence(cause),
			"Start the node with the role dns, and open port 53 for UDP and TCP in the firewall.")
	case len(other) > 0:
		o.add(Failure, subject, "The server answers, but not for "+zone+".", "Check that a node with the role dns and the same "+
			"dns_zone runs at this address, and that no other DNS server does.")
	case s.Configured && !s.InDNS:
		o.add(Warning, subject, "dns_addresses has this address, but the name does not lead to it in the DNS.",
			"Correct dns_addresses, or the address records and the glue of the name.")
	case !s.Configured:
		o.add(Warning, subject, "The name leads to this address, which is not in dns_addresses. Delegated domains do not "+
			"use it.", "Add it to dns_addresses, or remove the address record.")
	default:
		o.ok(subject, "The server answers over UDP and TCP.")
	}
}
