package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// These are the meaning and the advice of findings about questions that the other installation could not answer.
const (
	silentOutside = "The DNS servers of the other installation gave no answer about the name."
	tryLater      = "Run doctor again later, or ask another installation."
)

// checkOutside compares what the DNS says elsewhere with what it says here.
func checkOutside(f *Facts) []Finding {
	o := one{id: "outside"}
	x := f.Outside
	if x == nil {
		return nil
	}
	if x.Problem != "" {
		o.add(Warning, x.From, "The other installation did not look: "+x.Problem+".", "Check the address given by --from, "+
			"and its API key, which needs full access.")
		return o.all
	}
	host := f.Config.Hostname
	seen := x.Addrs[host]
	here := f.Host.addresses()
	switch {
	case f.Host.Err != nil:
	case len(seen) == 0 && x.Silent[host]:
		o.add(NotChecked, host, silentOutside, tryLater)
		return o.all
	case len(seen) == 0:
		o.add(Failure, host, "Others find no address of the host name.", "Add its A record to the public DNS.")
		return o.all
	case !sameAddrs(seen, here):
		o.add(Warning, host, fmt.Sprintf("Others find the addresses %s, and this machine %s.", joined(seen), joined(here)),
			"If you have just changed the record, wait until its TTL is over. Otherwise, correct /etc/hosts or the inner DNS.")
	default:
		o.ok(host, "Others find the same addresses as this machine.")
	}
	for _, a := range seen {
		names := x.Names[a]
		if slices.ContainsFunc(names, func(n string) bool { return sameName(n, host) }) {
			o.ok(a.String(), "Others find the PTR record that leads to %s.", host)
			continue
		}
		if len(names) == 0 && x.Silent[host] {
			o.add(NotChecked, a.String(), silentOutside, tryLater)
			continue
		}
		found := "no PTR record"
		if len(names) > 0 {
			found = "the names " + strings.Join(names, ", ")
		}
		o.add(Failure, a.String(), "Others find "+found+" for the address, so they refuse email from it.",
			"Ask the provider of the address to set its PTR record to "+host+".")
	}
	return o.all
}

func sameAddrs(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}
