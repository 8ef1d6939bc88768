package dnsadvice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/authority"
)

// spread checks whether all servers have a record that is right on some of them.
func (c *checker) spread(w *Wanted, found Findings) {
	var without []string
	seconds := uint32(0)
	for _, a := range found.Servers {
		var values []string
		for _, r := range a.Records {
			values = append(values, r.Value)
		}
		switch {
		case !a.Definite():
		case w.present(values):
			seconds = max(seconds, a.TTL)
		default:
			without = append(without, a.Server)
		}
	}
	if len(without) > 0 {
		slices.Sort(without)
		c.about(w, "servers_differ", Note, without, "Some of the zone's name servers do not have the record yet.",
			"Wait some minutes; if it lasts, ask your DNS provider why its servers differ.")
		return
	}
	if len(found.Servers) == 0 || found.State == Unknown || w.present(found.Visible) {
		return
	}
	for _, a := range c.at(c.Random, "TXT").Servers {
		if found.State != Present {
			seconds = max(seconds, a.TTL) // how long servers remember that the record was missing
		}
	}
	c.about(w, "not_visible_yet", Note, found.Visible,
		fmt.Sprintf("The record is set, but not yet visible everywhere, for up to %d seconds.", seconds), "Wait; there is "+
			"nothing to do.")
}

// aliases returns the target of the CNAME record at a name itself.
func (c *checker) aliases(name string) []string { return c.values(name, "CNAME") }

// own returns the records of a type that a name has beside an alias: those of answers that do not contain the alias.
func (c *checker) own(name, typ string) (values []string) {
	for _, a := range c.at(name, typ).Servers {
		if a.Outcome == authority.Found && len(a.Aliases) == 0 {
			for _, r := range a.Records {
				values = append(values, r.Value)
			}
		}
	}
	return values
}

// alias reports other records beside a CNAME record.
func (c *checker) alias(w *Wanted) {
	if len(c.aliases(w.Name)) == 0 {
		return
	}
	for _, typ := range []string{"TXT", "MX"} {
		if others := c.own(w.Name, typ); len(others) > 0 {
			c.about(w, "cname_with_others", Error, append(c.aliases(w.Name), others...),
				"The name has a CNAME record and other records, so that servers find one or the other.",
				"Delete the records that this page does not list for the name.")
			return
		}
	}
}

// aliasInstead adds the problem that the name of a record is an alias.
func (c *checker) aliasInstead(w *Wanted) bool {
	target := c.aliases(w.Name)
	if len(target) == 0 {
		return false
	}
	if own := c.own(w.Name, w.Type); len(own) > 0 {
		c.about(w, "cname_with_others", Error, append(target, own...),
			"The name has a CNAME record and other records, so that servers find one or the other.",
			"Delete the CNAME record at this name.")
		return true
	}
	c.about(w, "cname_instead", Error, target, "The name is an alias, so that its own records do not count.",
		"Delete the CNAME record at this name, or choose another name.")
	return true
}

// addresses adds the problem that a name has addresses in place of a CNAME record. It returns false if the name has
// none.
func (c *checker) addresses(w *Wanted) bool {
	found := append(c.values(w.Name, "A"), c.values(w.Name, "AAAA")...)
	if len(found) == 0 {
		return false
	}
	target := c.Targets[w.Value]
	switch {
	case len(target) > 0 && !slices.ContainsFunc(found, func(a string) bool { return !slices.Contains(target, a) }):
		c.about(w, "cname_flattened", Error, found, "The provider publishes the addresses of the target in place of the alias.",
			"Add a CNAME record, and turn off what your provider calls CNAME flattening, ALIAS or ANAME for this name.")
	case c.Provider.Proxy:
		c.about(w, "cname_proxied", Error, found, "The proxy of "+c.Provider.Name+" answers in place of the CNAME record.",
			"Set the proxy status of the record to DNS only.")
	default:
		c.about(w, "address_instead", Error, found, "The name has an address record, but needs a CNAME record.",
			"Delete the address records and add the CNAME record on this page.")
	}
	return true
}

// textInstead adds the problem that the value is in a TXT record.
func (c *checker) textInstead(w *Wanted) bool {
	for _, v := range c.values(w.Name, "TXT") {
		if strings.EqualFold(strings.TrimSuffix(strings.TrimSpace(v), "."), w.Value) {
			c.about(w, "text_instead", Error, []string{v}, "The value is in a TXT record.",
				"Delete the TXT record and add a record of the type "+w.Type+".")
			return true
		}
	}
	return false
}

// doubled returns the name at which a record is if its provider has added the zone a second time.
func doubled(name, zone string) string { return name + "." + zone }

// shortened returns the names at which a record is if its owner left out a part of the name. These are the name with
// the zone in place of the domain, the domain itself, and the zone itself.
func shortened(name, domain, zone string) (all []string) {
	if domain != zone && below(name, domain) && name != domain {
		all = append(all, strings.TrimSuffix(name, domain)+zone)
	}
	for _, n := range []string{domain, zone} {
		if n != name && below(name, n) && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// elsewhere adds the problem that the record is at another name.
func (c *checker) elsewhere(w *Wanted) bool {
	if c.Zone == "" {
		return false
	}
	if at := doubled(w.Name, c.Zone); w.present(c.values(at, w.Type)) {
		c.about(w, "name_doubled", Error, []string{at}, "The record is at "+at+", because the provider adds the zone to the name.",
			fmt.Sprintf("Enter %s as the name, without %s.", c.Provider.EnterName(c.Zone, w.Name), c.Zone))
		return true
	}
	for _, at := range shortened(w.Name, c.Domain, c.Zone) {
		if w.present(c.values(at, w.Type)) {
			c.about(w, "name_short", Error, []string{at}, "The record is at "+at+", but must be at "+w.Name+".",
				fmt.Sprintf("Enter %s as the name.", c.Provider.EnterName(c.Zone, w.Name)))
			return true
		}
	}
	return false
}

// delegation checks an NS record at the parent's servers.
func (c *checker) delegation(w *Wanted) {
	found := c.at(w.Name, "NS")
	values := c.values(w.Name, "NS")
	switch {
	case len(found.Servers) == 0 || !slices.ContainsFunc(found.Servers, func(a authority.Answer) bool {
		return a.Definite() || a.Outcome == authority.Referred
	}):
	case w.present(values):
		for _, v := range values {
			ours := func(w Wanted) bool { return w.Type == "NS" && strings.EqualFold(w.Value, v) }
			if !slices.ContainsFunc(c.Wanted, ours) && !c.has("delegation_differs") {
				c.about(w, "delegation_differs", Error, values, "The domain is delegated to other name servers too.",
					"Delete the NS records that this page does not list.")
			}
		}
	case len(values) == 0:
		c.about(w, "missing", Error, nil, "The servers of the zone above do not delegate "+w.Name+" to "+w.Value+".",
			"Add the NS record at the DNS provider of the zone above.")
	case slices.ContainsFunc(c.Wanted, func(w Wanted) bool { return w.Type == "NS" && w.present(values) }):
		c.about(w, "delegation_partial", Warning, values, "The name server "+w.Value+" is missing in the delegation.",
			"Add the NS record at the DNS provider of the zone above.")
	case !c.has("delegation_differs"):
		c.about(w, "delegation_differs", Error, values, "The domain is delegated to other name servers.",
			"Replace the NS records at the DNS provider of the zone above.")
	}
}

// has reports whether a code was already added.
func (c *checker) has(code string) bool {
	return slices.ContainsFunc(c.problems, func(p Problem) bool { return p.Code == code })
}

// wildcard checks whether a random name below _domainkey has a TXT record. Only a wildcard record can cause this.
func (c *checker) wildcard() {
	if found := c.values(c.Random, "TXT"); c.Random != "" && len(found) > 0 {
		c.add("wildcard", Warning, "", "*._domainkey."+c.Domain, "TXT", shorten(found...),
			"A wildcard record answers for every DKIM selector, so that signatures with unknown selectors are not simply missing.",
			"Replace the wildcard TXT record with records for the names that you use.")
	}
}
