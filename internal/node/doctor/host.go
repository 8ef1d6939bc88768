package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Host is what the DNS says of the host name.
type Host struct {
	Addrs []Address
	Err   error // of the look-up of the addresses
}

// Address is an address of the host name.
type Address struct {
	Addr   netip.Addr
	Public bool     // other servers can reach the address
	Names  []string // of the PTR record
	Err    error    // of the look-up of the names
	// Confirmed are those of the names whose own addresses include Addr.
	Confirmed []string
}

// Source is the address from which emails leave.
type Source struct {
	Local  netip.Addr // of a connection to a mail host; invalid if there was none
	Public bool       // other servers see Local, because no router replaces it
}

// contains reports whether the host name has an address.
func (h *Host) contains(a netip.Addr) bool {
	return slices.ContainsFunc(h.Addrs, func(x Address) bool { return x.Addr == a })
}

// addresses returns the addresses of the host name.
func (h *Host) addresses() (all []netip.Addr) {
	for _, a := range h.Addrs {
		all = append(all, a.Addr)
	}
	return all
}

func checkHost(f *Facts) []Finding {
	name, addr, ptr := one{id: "host.name"}, one{id: "host.address"}, one{id: "host.ptr"}
	host := f.Config.Hostname
	if !domains.IsPublicHost(host) {
		name.add(Failure, host, "hostname is not a name that other servers can look up. Many refuse email from such a host.",
			"Set hostname to a full host name, such as mail.example.com.")
		return name.all
	}
	name.ok(host, "hostname is a full host name.")
	switch {
	case errors.Is(f.Host.Err, resolve.ErrNotFound):
		addr.add(Failure, host, "The host name has no address record, so servers that look it up refuse email from it.",
			"Add an A record for "+host+" with the address of this machine.")
		return append(name.all, addr.all...)
	case f.Host.Err != nil:
		addr.add(NotChecked, host, "The DNS servers gave no answer about the host name.", "See the finding dns.servers.")
		return append(name.all, addr.all...)
	}
	for _, a := range f.Host.Addrs {
		if !a.Public {
			addr.add(Failure, host+" ("+a.Addr.String()+")", "The host name leads to an address that other servers cannot "+
				"reach.", "Publish the public address of this machine as "+recordType(a.Addr)+" record of "+host+".")
			continue
		}
		addr.ok(host+" ("+a.Addr.String()+")", "The host name leads to a public address.")
		ptr.checkPTR(host, &a)
	}
	return slices.Concat(name.all, addr.all, ptr.all)
}

func recordType(a netip.Addr) string {
	if a.Is4() {
		return "A"
	}
	return "AAAA"
}

// checkPTR checks that an address leads back to the host name, as RFC 5321 section 4.1.4 and large providers demand.
func (o *one) checkPTR(host string, a *Address) {
	subject := a.Addr.String()
	advice := "Ask the provider of the address to set its PTR record to " + host + "; this is often called reverse DNS."
	if a.Addr.Is6() {
		advice += " Otherwise, remove the AAAA record, and send from an IPv4 address only."
	}
	switch {
	case errors.Is(a.Err, resolve.ErrNotFound) || a.Err == nil && len(a.Names) == 0:
		o.add(Failure, subject, "The address has no PTR record. Gmail, Yahoo, Apple and many others refuse email from "+
			"such addresses.", advice)
	case a.Err != nil:
		o.add(NotChecked, subject, "The DNS servers gave no answer about the PTR record.", "See the finding dns.servers.")
	case slices.Contains(a.Names, host):
		o.ok(subject, "The PTR record leads to %s, which leads back to the address.", host)
	case len(a.Confirmed) > 0:
		o.add(Warning, subject, fmt.Sprintf("The PTR record leads to %s, but this node calls itself %s. Some servers "+
			"accept less email from such hosts.", joined(a.Confirmed), host), advice+" Or set hostname to "+a.Confirmed[0]+".")
	default:
		o.add(Failure, subject, fmt.Sprintf("The PTR record leads to %s, which does not lead back to the address. Gmail, "+
			"Yahoo, Apple and many others refuse email from such addresses.", joined(a.Names)), advice)
	}
}

// checkSource checks that emails leave from an address of the host name.
func checkSource(f *Facts) []Finding {
	o := one{id: "host.source"}
	if f.Source == nil || f.Host.Err != nil || len(f.Host.Addrs) == 0 {
		return nil
	}
	seen := f.Source.Local
	if f.Outside != nil && f.Outside.Client.IsValid() && !f.Source.Public {
		seen = f.Outside.Client
	} else if !seen.IsValid() {
		o.add(NotChecked, f.Config.Hostname, "No connection to another server was made, so the address from which emails "+
			"leave is not known.", "See the finding smtp.out.")
		return o.all
	} else if !f.Source.Public {
		o.add(NotChecked, f.Config.Hostname, "This machine is behind a router that replaces its address, so the address "+
			"that other servers see is not known here.", askOutside)
		return o.all
	}
	if f.Host.contains(seen) {
		o.ok(seen.String(), "Emails leave from an address of %s.", f.Config.Hostname)
		return o.all
	}
	o.add(Failure, seen.String(), fmt.Sprintf("Emails leave from this address, but %s leads to %s. Receivers compare "+
		"the two.", f.Config.Hostname, joined(f.Host.addresses())), "Add the address as "+recordType(seen)+" record of "+
		f.Config.Hostname+" and to the SPF record of "+f.Config.SPFInclude+", and set its PTR record. Or make this "+
		"machine send from the published address.")
	return o.all
}

// sameName reports whether two host names are equal.
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}
