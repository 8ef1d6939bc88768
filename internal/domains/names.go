package domains

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
)

// dnsName is a name at which a domain has records.
type dnsName struct {
	name    string
	host    bool     // of return paths or of tracked links; otherwise the domain itself
	field   string   // of the API, by which it was chosen
	records []string // keys of the records that stand there; none at names that only go on working
}

// names are where the domain has records, its own name first.
func (d *Domain) names() []dnsName {
	all := []dnsName{{d.Name, false, "name", []string{proof, "dkim-ed25519", "receiving"}}}
	if d.Sending {
		all = append(all, dnsName{d.returnPathHost(), true, "custom_return_path", []string{"mx", "spf"}})
	}
	if d.TrackingSubdomain != "" {
		all = append(all, dnsName{d.TrackingSubdomain + "." + d.Name, true, "tracking_subdomain", []string{"tracking"}})
	}
	for _, label := range d.OldTracking {
		all = append(all, dnsName{label + "." + d.Name, true, "tracking_subdomain", nil})
	}
	return all
}

// kept reports whether the domain keeps other teams from a name of its own: a record of its stands there.
func (d *Domain) kept(n dnsName) bool {
	return len(n.records) == 0 || slices.ContainsFunc(n.records, func(key string) bool {
		s := d.checks[key].Status
		return s == Verified || s == TemporaryFailure
	})
}

// occupy enters the names that the domain has proved to be its team's, and gives the others up. It returns those that
// are another team's already: the unique index decides, also between two that come at the same time. The domain's row
// must be there.
func (s *Service) occupy(ctx context.Context, tx *db.Tx, d *Domain) (lost []dnsName, err error) {
	var wanted []dnsName
	if d.proved() && !d.Placeholder {
		wanted = slices.DeleteFunc(d.names(), func(n dnsName) bool { return !d.kept(n) })
	}
	// All transactions go through the names in one order, so that none waits for another that waits for it.
	slices.SortFunc(wanted, func(a, b dnsName) int { return strings.Compare(a.name, b.name) })
	others, err := takeNames(ctx, tx, d, wanted)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(wanted, func(n dnsName) bool { _, other := others[n.name]; return !other }), nil
}

// notFound is what was found, but for records at names that are another team's: they were not put there for this
// domain.
func notFound(found map[string]finding, lost []dnsName) map[string]finding {
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

// checkFree refuses a domain one of whose names is another team's, or which stands below a host of another team's. What
// the domain with the id but has is no hindrance.
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
		return taken(dnsName{d.Name, false, "name", nil})
	}
	for _, n := range names {
		if _, other := others[n.name]; other && n.host {
			return taken(n)
		}
	}
	return nil
}

// taken is the fault of a name that is another team's.
func taken(n dnsName) error {
	if !n.host {
		return fault.Forbiddenf("name", "The domain `%s` is, or stands below, a host of another team's domain: of its return "+
			"path or its tracked links. Add another domain.", n.name)
	}
	return fault.Forbiddenf(n.field, "The host `%s`, which follows from the `%s` field, is another team's. Choose "+
		"another label.", n.name, n.field)
}

// takenOr is the error, or else the fault of the first name that is another team's.
func takenOr(err error, lost []dnsName) error {
	if err != nil {
		return err
	}
	return taken(lost[0])
}

// checkReserved refuses names that the operator has given other uses.
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

// reserved reports whether a name is one of the operator's own hosts, or in or below a domain at which the operator
// gives names out.
func (c *Config) reserved(name string) bool {
	for _, d := range append([]string{c.ManagedDomain}, c.SandboxDomains...) {
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
