package domains

import (
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// These are the keys of records that only one set-up has.
const (
	cnameFirst      = "cname-s1" // alias of the first DKIM selector; proves control with the set-up cname
	cnameSecond     = "cname-s2" // alias of the second DKIM selector, to which a rotation of keys changes
	cnameReturnPath = "cname-rp" // alias of the return-path host
	delegated       = "ns"       // the delegation; proves control with the set-up delegation
)

// delegationSeen is the key of a check without a record: it says whether the parent zone delegates the domain to this
// installation's name servers. From then on, they answer for the domain. The check of the record is verified when they
// do.
const delegationSeen = "ns-seen"

// These are the DKIM selectors of the set-up cname.
const (
	selectorFirst  = "s1"
	selectorSecond = "s2"
)

// recordList collects the records of a domain.
type recordList struct {
	d     *Domain
	root  string // the registrable domain
	below string // "mail" of mail.example.com, "" at the apex
	all   []Record
}

func newRecordList(d *Domain) *recordList {
	root, err := publicsuffix.EffectiveTLDPlusOne(d.Name)
	if err != nil {
		root = d.Name
	}
	return &recordList{d: d, root: root, below: strings.TrimSuffix(strings.TrimSuffix(d.Name, root), ".")}
}

// relative returns the name of a label below the domain, relative to the registrable domain.
func (l *recordList) relative(label string) string { return strings.TrimSuffix(label+"."+l.below, ".") }

func (l *recordList) add(r Record) {
	c := l.d.checks[r.Key]
	switch r.Status = c.Status; {
	case r.Key == proof && l.d.inReceivingGrace():
		r.Status = TemporaryFailure
	case r.Status == "":
		r.Status = NotStarted
	}
	r.setLookUp(c)
	if r.Hidden = r.Status != Verified && l.d.HidesRecords() && countsAsHidden(r.Key); r.Hidden {
		r.Unanswered = false // The answer about the delegation is missing, and not one about this record.
	}
	if r.Key == delegated && l.d.awaitsServers() {
		r.Servers = l.d.checks[delegationSeen].Found
	}
	l.all = append(l.all, r)
}

// addBelow adds a record at a label below the domain.
func (l *recordList) addBelow(key, kind, typ, label, value string, priority int) {
	l.add(Record{Key: key, Kind: kind, Type: typ, Name: l.relative(label), FQDN: label + "." + l.d.Name, Value: value,
		Priority: priority})
}

// Records returns the records of the domain's set-up with their states. The CAA record is included only if a look-up
// found that it is needed.
func (c *Config) Records(d *Domain) []Record { return c.recordsOf(d, d.setup()) }

// recordsInUse returns the records of the set-up, followed by those of the former set-up with other keys.
func (c *Config) recordsInUse(d *Domain) (all []Record) {
	seen := map[string]bool{}
	for _, setup := range d.setupsInUse() {
		for _, r := range c.recordsOf(d, setup) {
			if !seen[r.Key] {
				all = append(all, r)
			}
		}
		for _, r := range all {
			seen[r.Key] = true
		}
	}
	return all
}

func (c *Config) recordsOf(d *Domain, setup string) []Record {
	l, r := newRecordList(d), c.region(d.Region)
	switch setup {
	case SetupDelegation:
		for _, server := range c.nameServers(d) {
			name := l.below
			if name == "" {
				name = d.Name
			}
			l.add(Record{Key: delegated, Kind: "Delegation", Type: "NS", Name: name, FQDN: d.Name, Value: server})
		}
		return l.all
	case SetupCNAME:
		if d.Sending {
			l.addBelow(cnameReturnPath, "SPF", "CNAME", d.ReturnPath, c.target(d, "rp"), 0)
		}
		l.addBelow(cnameFirst, "DKIM", "CNAME", selectorFirst+"._domainkey", c.target(d, selectorFirst), 0)
		if d.Sending {
			l.addBelow(cnameSecond, "DKIM", "CNAME", selectorSecond+"._domainkey", c.target(d, selectorSecond), 0)
		}
	default:
		if d.Sending {
			l.addBelow("mx", "SPF", "MX", d.ReturnPath, r.BounceHost, 10)
			l.addBelow("spf", "SPF", "TXT", d.ReturnPath, r.spf(), 0)
		}
		rsa, ed25519 := c.selectorsIn(setup, d)
		l.addBelow(proof, "DKIM", "TXT", rsa+"._domainkey", d.rsa.record, 0)
		if d.Sending {
			l.addBelow("dkim-ed25519", "DKIM", "TXT", ed25519+"._domainkey", d.ed25519.record, 0)
		}
	}
	c.addShared(l, r)
	return l.all
}

// addShared adds the records that the set-ups records and cname have in common.
func (c *Config) addShared(l *recordList, r Region) {
	d := l.d
	if d.Receiving {
		name := l.below
		if name == "" {
			name = d.Name
		}
		l.add(Record{Key: "receiving", Kind: "Receiving", Type: "MX", Name: name, FQDN: d.Name, Value: r.InboundHost,
			Priority: 10})
	}
	if d.TrackingSubdomain == "" {
		return
	}
	host := d.TrackingSubdomain + "." + d.Name
	l.add(Record{Key: "tracking", Kind: "Tracking", Type: "CNAME", Name: host, FQDN: host, Value: r.TrackingHost})
	if _, needed := d.checks["caa"]; needed {
		l.add(Record{Key: "caa", Kind: "TrackingCAA", Type: "CAA", Name: l.root, FQDN: l.root, Value: c.caa()})
	}
}

// spf returns the SPF record of a return-path host.
func (r Region) spf() string { return "v=spf1 include:" + r.SPFInclude + " ~all" }

// caa returns the CAA record that allows certificates for hosts of a domain.
func (c *Config) caa() string { return `0 issue "` + c.CAAIssuer + `"` }

// target returns the name in the operator's zone to which one of the domain's CNAME records points.
func (c *Config) target(d *Domain, label string) string {
	return d.setupToken + "." + label + "." + c.DNSZone
}

// nameServers returns the names of the servers to which the domain is delegated. They are unique to the domain. If the
// owner of a deleted domain has left a delegation in place, it names the servers of no other domain.
func (c *Config) nameServers(d *Domain) (all []string) {
	for i := range c.DNSNames {
		all = append(all, c.target(d, "ns"+strconv.Itoa(i+1)))
	}
	return all
}
