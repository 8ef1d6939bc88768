package domains

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// dnsName is a DNS name at which a domain has records.
type dnsName struct {
	name    string
	host    bool     // true for return-path and link-tracking hosts, false for the domain itself
	field   string   // the API field that determines the name
	records []string // keys of the records at this name; nil for former tracking hosts
	tracked bool     // links in sent emails may point to this name
}

// names returns the DNS names at which the domain has records, starting with the domain's own name.
func (d *Domain) names() []dnsName {
	all := []dnsName{{d.Name, false, "name", []string{proof, "dkim-ed25519", "receiving", cnameFirst, cnameSecond,
		delegated}, false}}
	if d.Sending {
		all = append(all, dnsName{d.returnPathHost(), true, "custom_return_path", []string{"mx", "spf", cnameReturnPath,
			delegated}, false})
	}
	links := func(label string, records []string) {
		all = append(all, dnsName{label + "." + d.Name, true, "tracking_subdomain", records,
			slices.Contains(d.Tracked, label)})
	}
	if d.TrackingSubdomain != "" {
		links(d.TrackingSubdomain, []string{"tracking", delegated})
	}
	for _, label := range d.Tracked {
		if label != d.TrackingSubdomain {
			links(label, nil)
		}
	}
	return all
}

// reserves reports whether the domain reserves a name. A name is reserved if one of the domain's records was found
// there or if links in sent emails may point to the name.
func (d *Domain) reserves(n dnsName) bool {
	return n.tracked || slices.ContainsFunc(n.records, func(key string) bool {
		s := d.checks[key].Status
		return s == Verified || s == TemporaryFailure
	})
}

// registerNames registers the names that a proved domain reserves, and releases all other names registered for the
// domain. The result contains the names that are already registered for another team. A unique index prevents
// concurrent transactions from registering a name twice. The row for the domain must exist.
func (s *Service) registerNames(ctx context.Context, tx *db.Tx, d *Domain) (lost []dnsName, err error) {
	var wanted []dnsName
	if d.proved() && !d.Placeholder {
		wanted = slices.DeleteFunc(d.names(), func(n dnsName) bool { return !d.reserves(n) })
	}
	// All transactions insert names in the same order, so that they cannot deadlock.
	slices.SortFunc(wanted, func(a, b dnsName) int { return strings.Compare(a.name, b.name) })
	others, err := takeNames(ctx, tx, d, wanted)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(wanted, func(n dnsName) bool { _, other := others[n.name]; return !other }), nil
}

// withRecordsAbsent returns a copy of the findings in which all records at lost names are absent, because those names
// belong to another team's domain.
func withRecordsAbsent(found map[string]finding, lost []dnsName) map[string]finding {
	found = maps.Clone(found)
	for _, n := range lost {
		for _, key := range n.records {
			if _, asked := found[key]; asked {
				found[key] = absent
			}
		}
	}
	return found
}

// checkFree returns an error if one of the names belongs to another team, or if the domain is at or below another
// team's host. The parameter but is the id of a domain whose names are ignored.
func (s *Service) checkFree(ctx context.Context, r db.Reader, d *Domain, names []dnsName, but string) error {
	var asked, above []string
	for name := d.Name; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		above = append(above, name)
	}
	for _, n := range names {
		asked = append(asked, n.name)
	}
	others, err := namesOfOthers(ctx, r, d.TeamID, but, append(asked, above...))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(above, func(name string) bool { return others[name] }) {
		return nameTaken(dnsName{name: d.Name, field: "name"})
	}
	for _, n := range names {
		if _, other := others[n.name]; other && n.host {
			return nameTaken(n)
		}
	}
	return nil
}

// nameTaken returns the fault for a name that belongs to another team.
func nameTaken(n dnsName) error {
	if !n.host {
		return fault.Forbiddenf("name",
			"The domain `%s` is, or stands below, a host of another team's domain: of its return "+
				"path or its tracked links. Add another domain.", n.name)
	}
	return fault.Forbiddenf(n.field, "The host `%s`, which follows from the `%s` field, is another team's. Choose "+
		"another label.", n.name, n.field)
}

// errorOrNameTaken returns err if it is not nil. If err is nil, errorOrNameTaken returns the fault for the first name
// in lost.
func errorOrNameTaken(err error, lost []dnsName) error {
	if err != nil {
		return err
	}
	return nameTaken(lost[0])
}

// checkReserved returns an error if one of the names is reserved for the operator.
func (c *Config) checkReserved(names []dnsName) error {
	for _, n := range names {
		if !c.reserved(n.name) {
			continue
		}
		if !n.host {
			return fault.Invalidf("name", "The domain `%s` belongs to this service. Add a domain that you own.", n.name)
		}
		return fault.Invalidf(n.field, "The host `%s`, which follows from the `%s` field, belongs to this service. "+
			"Choose another label.", n.name, n.field)
	}
	return nil
}

// Suggest returns the name of the first label below a domain that is not reserved for the operator. If all names are
// reserved, it returns the first one.
func (c *Config) Suggest(domain string, labels ...string) string {
	i := slices.IndexFunc(labels, func(label string) bool { return !c.reserved(label + "." + domain) })
	return labels[max(i, 0)] + "." + domain
}

// reserved reports whether a name is one of the operator's hosts, or at or below the managed domain, a sandbox domain
// or the zone of this installation's name servers.
func (c *Config) reserved(name string) bool {
	for _, d := range append([]string{c.ManagedDomain, c.DNSZone}, c.SandboxDomains...) {
		if d != "" && (name == d || strings.HasSuffix(name, "."+d)) {
			return true
		}
	}
	hosts := slices.Clone(c.Hosts)
	for _, r := range append([]Region{c.Default}, slices.Collect(maps.Values(c.Regions))...) {
		hosts = append(hosts, r.BounceHost, r.InboundHost, r.TrackingHost)
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) })
}
