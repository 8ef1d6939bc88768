package danetest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// builder makes the domains of a lab.
type builder struct {
	*kit
	lab *Lab
	all bool // whether to make all domains, or only a sample of them

	lab0, hashed, optedOut, below, unsigned, late, wrongDS *zone
	addresses                                              int
}

func newBuilder(l *Lab, all bool) *builder {
	b := &builder{kit: &kit{t: l.t}, lab: l, all: all}
	zoneOf := func(z zone) *zone {
		l.zones = append(l.zones, &z)
		return &z
	}
	b.lab0 = zoneOf(zone{name: Zone})
	b.hashed = zoneOf(zone{name: "nsec3." + Zone, options: []string{"-n"}})
	b.optedOut = zoneOf(zone{name: "optout." + Zone, options: []string{"-n", "-p"}})
	b.below = zoneOf(zone{name: "below." + Zone})
	b.unsigned = zoneOf(zone{name: "unsigned." + Zone, unsafe: true})
	b.late = zoneOf(zone{name: "late." + Zone, options: []string{"-i", "20250101000000", "-e", "20250201000000"}})
	b.wrongDS = zoneOf(zone{name: "wrongds." + Zone, badDS: true})
	b.lab0.add("ns." + Zone + ". A 127.0.0.1")
	return b
}

// domain is a domain that is being made.
type domain struct {
	b     *builder
	z     *zone
	name  string
	hosts []string
}

// mark says whether a domain belongs to the sample that make test uses.
type mark bool

const (
	sample mark = true
	rare   mark = false
)

// make adds a domain to a zone and calls f, which adds its records. It does nothing if the lab has only the sample and
// the domain is not in it. The parameter about describes the domain in a few words, and becomes its label.
func (b *builder) make(z *zone, m mark, want Verdict, about string, f func(d *domain)) {
	if m == rare && !b.all {
		return
	}
	d := &domain{b: b, z: z, name: strings.ReplaceAll(strings.ToLower(about), " ", "-") + "." + z.name}
	f(d)
	b.lab.Domains = append(b.lab.Domains, Domain{d.name, want, len(d.hosts)})
	if len(d.hosts) > 1 {
		for i, name := range d.hosts {
			d.rr(strconv.Itoa(i+1)+".%s. MX 10 %s.", d.name, name)
		}
	}
}

// rr adds a record to the zone of the domain.
func (d *domain) rr(format string, args ...any) { d.z.add(fmt.Sprintf(format, args...)) }

// address adds a host at a new address, and returns the address. The host starts with the lab.
func (d *domain) address(s server) string {
	n := d.b.addresses
	d.b.addresses++
	ip := fmt.Sprintf("127.10.%d.%d", n/200, n%200+1)
	l := d.b.lab
	l.hosts[d.name] = append(l.hosts[d.name], &host{server: s, addr: net.JoinHostPort(ip, strconv.Itoa(l.Port))})
	return ip
}

// place returns the name of the TLSA records of a host.
func (d *domain) place(host string) string { return fmt.Sprintf("_%d._tcp.%s", d.b.lab.Port, host) }

// tlsa adds TLSA records at a host.
func (d *domain) tlsa(host string, records ...string) {
	for _, r := range records {
		d.rr("%s. TLSA %s", d.place(host), r)
	}
}

// next returns the name of the next mail host of the domain and adds it to the MX records.
func (d *domain) next() string {
	name := fmt.Sprintf("mx%d.%s", len(d.hosts)+1, d.name)
	d.mx(name)
	return name
}

// mx adds a mail host that is already known.
func (d *domain) mx(name string) {
	d.hosts = append(d.hosts, name)
	d.rr("%s. MX %d %s.", d.name, len(d.hosts)*10, name)
}

// host adds a mail host with TLSA records and returns its name.
func (d *domain) host(s server, records ...string) string {
	name := d.next()
	d.rr("%s. A %s", name, d.address(s))
	d.tlsa(name, records...)
	return name
}

// edit changes a record after the zone was signed.
func (d *domain) edit(owner, kind, from, to string) {
	d.z.edits = append(d.z.edits, edit{owner, kind, from, to})
}
