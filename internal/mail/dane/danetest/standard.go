package danetest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
)

// standard makes the domains of the lab.
func (b *builder) standard() {
	self := b.leaf(nil, "another.name")
	b.hostCertificates(self)
	b.authorities()
	b.chains()
	b.names()
	b.unusable(self)
	b.strength(self)
	b.transport(self)
	b.zones(self)
	b.aliases(self)
	b.broken(self)
	b.severalHosts(self)
}

// hostCertificates makes domains whose records describe the certificate of the host (usage 3).
func (b *builder) hostCertificates(self *pair) {
	plain := server{cert: send(self)}
	for selector := range 2 {
		for matching := range 3 {
			m := mark(selector == 1 && matching == 1)
			b.make(b.lab0, m, Verified, fmt.Sprintf("ee 3%d%d", selector, matching), func(d *domain) {
				d.host(plain, tlsa(3, selector, matching, self))
			})
			b.make(b.lab0, rare, Waits, fmt.Sprintf("ee other 3%d%d", selector, matching), func(d *domain) {
				d.host(plain, tlsa(3, selector, matching, b.leaf(nil, "stranger")))
			})
		}
	}
	for _, c := range []struct {
		about string
		m     mark
		o     option
	}{{"ee expired", sample, expired}, {"ee not yet valid", rare, future}, {"ee of a client", rare, clientOnly}} {
		b.make(b.lab0, c.m, Verified, c.about, func(d *domain) {
			leaf := b.leaf(nil, "another.name", c.o)
			d.host(server{cert: send(leaf)}, tlsa(3, 1, 1, leaf))
		})
	}
	b.make(b.lab0, sample, Waits, "ee wrong digest", func(d *domain) { d.host(plain, other(3, 1, 1, 32)) })
	b.make(b.lab0, rare, Verified, "ee one of two", func(d *domain) {
		d.host(plain, other(3, 1, 1, 32), tlsa(3, 1, 1, self))
	})
	b.make(b.lab0, rare, Waits, "ee of the issuer", func(d *domain) {
		root := b.authority(nil, "root")
		leaf := b.leaf(root, "mx1."+d.name)
		d.host(server{cert: send(leaf, root)}, tlsa(3, 1, 1, root))
	})
	b.make(b.lab0, rare, Verified, "ee among thirty", func(d *domain) {
		var all []string
		for i := range 30 {
			all = append(all, fmt.Sprintf("3 1 1 %064x", i))
		}
		d.host(plain, append(all, tlsa(3, 1, 1, self))...)
	})
	b.make(b.lab0, rare, Encrypted, "ee for another port", func(d *domain) {
		d.rr("_26._tcp.%s. TLSA %s", d.host(plain), other(3, 1, 1, 32))
	})
}

// authorities makes domains whose records describe an authority (usage 2).
func (b *builder) authorities() {
	root := b.authority(nil, "root")
	middle := b.authority(root, "middle")
	for selector := range 2 {
		for matching := range 3 {
			m := mark(selector == 0 && matching == 1)
			b.make(b.lab0, m, Verified, fmt.Sprintf("ta 2%d%d", selector, matching), func(d *domain) {
				leaf := b.leaf(middle, "mx1."+d.name)
				d.host(server{cert: send(leaf, middle, root)}, tlsa(2, selector, matching, root))
			})
		}
	}
	b.make(b.lab0, rare, Verified, "ta in the dns only", func(d *domain) {
		d.host(server{cert: send(b.leaf(root, "mx1."+d.name))}, tlsa(2, 0, 0, root))
	})
	b.make(b.lab0, rare, Verified, "ta key in the dns only", func(d *domain) {
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), middle)}, tlsa(2, 1, 0, root))
	})
	// The leaf is not the authority; its key is that of one.
	b.make(b.lab0, rare, Verified, "ta key of a self signed leaf", func(d *domain) {
		leaf := b.leaf(nil, "mx1."+d.name)
		d.host(server{cert: send(leaf)}, tlsa(2, 1, 0, leaf))
	})
	b.make(b.lab0, rare, Waits, "ta key of an expired root", func(d *domain) {
		old := b.authority(nil, "old", expired)
		d.host(server{cert: send(b.leaf(old, "mx1."+d.name), old)}, tlsa(2, 1, 0, old))
	})
	b.make(b.lab0, rare, Waits, "ta key of a stranger", func(d *domain) {
		stranger := b.authority(nil, "root")
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), middle)}, tlsa(2, 1, 0, stranger))
	})
	b.make(b.lab0, rare, Waits, "ta not sent", func(d *domain) {
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), middle)}, tlsa(2, 0, 1, root))
	})
	b.make(b.lab0, rare, Verified, "ta in the middle", func(d *domain) {
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), middle)}, tlsa(2, 1, 1, middle))
	})
	b.make(b.lab0, rare, Waits, "ta unrelated but sent", func(d *domain) {
		stranger := b.authority(nil, "root")
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), middle, root, stranger)}, tlsa(2, 0, 1, stranger))
	})
	b.make(b.lab0, sample, Waits, "ta is the leaf", func(d *domain) {
		leaf := b.leaf(root, "mx1."+d.name)
		d.host(server{cert: send(leaf, root)}, tlsa(2, 0, 1, leaf))
	})
	b.make(b.lab0, rare, Waits, "ta is a self signed leaf", func(d *domain) {
		leaf := b.leaf(nil, "mx1."+d.name)
		d.host(server{cert: send(leaf)}, tlsa(2, 0, 1, leaf))
	})
	b.make(b.lab0, rare, Verified, "ta or ee", func(d *domain) {
		leaf := b.leaf(root, "another.name")
		d.host(server{cert: send(leaf, root)}, tlsa(2, 0, 1, root), tlsa(3, 1, 1, leaf))
	})
}

// chains makes domains whose hosts send wrong or unordered chains.
func (b *builder) chains() {
	root := b.authority(nil, "root")
	stranger := b.authority(nil, "stranger")
	for _, c := range []struct {
		about                string
		m                    mark
		want                 Verdict
		ofRoot, middle, leaf option
	}{
		{"chain plain", rare, Verified, nil, nil, nil},
		{"chain leaf expired", rare, Waits, nil, nil, expired},
		{"chain leaf not yet valid", rare, Waits, nil, nil, future},
		{"chain leaf of a client", rare, Waits, nil, nil, clientOnly},
		{"chain leaf of any use", rare, Verified, nil, nil, anyUse},
		{"chain middle expired", sample, Waits, nil, expired, nil},
		{"chain middle no authority", rare, Waits, nil, noAuthority, nil},
		{"chain middle may not issue", rare, Waits, nil, noIssuing, nil},
		{"chain middle of a client", rare, Waits, nil, clientOnly, nil},
		{"chain middle is the last", rare, Verified, nil, noFurther, nil},
		{"chain root expired", rare, Waits, expired, nil, nil},
		{"chain root no authority", rare, Waits, noAuthority, nil, nil},
		{"chain root may not issue", rare, Waits, noIssuing, nil, nil},
		{"chain too long", rare, Waits, noFurther, nil, nil},
	} {
		b.make(b.lab0, c.m, c.want, c.about, func(d *domain) {
			with := func(o option) (all []option) {
				if o != nil {
					all = append(all, o)
				}
				return all
			}
			top := b.authority(nil, "top", with(c.ofRoot)...)
			middle := b.authority(top, "middle", with(c.middle)...)
			leaf := b.leaf(middle, "mx1."+d.name, with(c.leaf)...)
			d.host(server{cert: send(leaf, middle, top)}, tlsa(2, 0, 1, top))
		})
	}
	middle := b.authority(root, "middle")
	b.make(b.lab0, rare, Verified, "chain in disorder", func(d *domain) {
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), root, middle)}, tlsa(2, 0, 1, root))
	})
	b.make(b.lab0, rare, Verified, "chain padded", func(d *domain) {
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), stranger, middle, stranger, root, middle)},
			tlsa(2, 0, 1, root))
	})
	b.make(b.lab0, rare, Waits, "chain without its middle", func(d *domain) {
		d.host(server{cert: send(b.leaf(middle, "mx1."+d.name), root)}, tlsa(2, 0, 1, root))
	})
}

// names makes domains whose certificates, issued by an authority in the DNS, are for different names.
func (b *builder) names() {
	root := b.authority(nil, "root")
	with := func(d *domain, name string) {
		d.host(server{cert: send(b.leaf(root, name), root)}, tlsa(2, 0, 1, root))
	}
	b.make(b.lab0, sample, Verified, "name of the domain", func(d *domain) { with(d, d.name) })
	b.make(b.lab0, rare, Waits, "name of another host", func(d *domain) { with(d, "mx2."+d.name) })
	b.make(b.lab0, rare, Verified, "name with a wildcard", func(d *domain) { with(d, "*."+d.name) })
	b.make(b.lab0, rare, Waits, "name with a deep wildcard", func(d *domain) { with(d, "*.mx1."+d.name) })
	b.make(b.lab0, rare, Verified, "name in upper case", func(d *domain) { with(d, strings.ToUpper("mx1."+d.name)) })
	b.make(b.lab0, rare, Waits, "name not in the extension", func(d *domain) {
		leaf := b.leaf(root, "mx1."+d.name, func(c *x509.Certificate) { c.DNSNames = []string{"another.name"} })
		d.host(server{cert: send(leaf, root)}, tlsa(2, 0, 1, root))
	})
	b.make(b.lab0, rare, Verified, "xn--bcher-kva", func(d *domain) { with(d, d.name) })
	for _, c := range []struct {
		about  string
		m      mark
		before bool
	}{{"name before the alias", rare, true}, {"name after the alias", sample, false}} {
		b.make(b.lab0, c.m, Verified, c.about, func(d *domain) {
			target := "target." + d.name
			name := target
			if c.before {
				name = d.name
			}
			d.rr("%s. CNAME %s.", d.name, target)
			host := "host." + target
			d.rr("%s. MX 10 %s.", target, host)
			d.rr("%s. A %s", host, d.address(server{cert: send(b.leaf(root, name), root)}))
			d.tlsa(host, tlsa(2, 0, 1, root))
		})
	}
}

// unusable makes domains some of whose records must be ignored.
func (b *builder) unusable(self *pair) {
	plain := server{cert: send(self)}
	for _, c := range []struct {
		about, record string
		m             mark
	}{
		{"usage 0", other(0, 0, 1, 32), rare},
		{"usage 1", other(1, 1, 1, 32), sample},
		{"usage 255", other(255, 1, 1, 32), rare},
		{"selector 2", other(3, 2, 1, 32), rare},
		{"matching 3", other(3, 1, 3, 32), rare},
		{"matching 255", other(3, 1, 255, 32), rare},
		{"digest too short", other(3, 1, 1, 31), rare},
		{"digest too long", other(3, 1, 1, 33), rare},
		{"digest of the wrong type", other(3, 1, 2, 32), rare},
		{"certificate that is none", other(3, 0, 0, 40), rare},
		{"key that is none", other(2, 1, 0, 40), rare},
	} {
		b.make(b.lab0, c.m, Encrypted, "unusable "+c.about, func(d *domain) { d.host(plain, c.record) })
	}
	b.make(b.lab0, sample, Waits, "unusable without starttls", func(d *domain) { d.host(server{}, other(1, 1, 1, 32)) })
	b.make(b.lab0, rare, Encrypted, "unusable and expired", func(d *domain) {
		d.host(server{cert: send(b.leaf(nil, "another.name", expired))}, other(0, 0, 1, 32))
	})
	b.make(b.lab0, rare, Verified, "unusable and right", func(d *domain) {
		d.host(plain, other(1, 1, 1, 32), tlsa(3, 1, 1, self))
	})
	b.make(b.lab0, rare, Waits, "unusable and wrong", func(d *domain) {
		d.host(plain, tlsa(1, 1, 1, self), other(3, 1, 1, 32))
	})
}

// strength makes domains with digests of different strength (RFC 7671 section 9).
func (b *builder) strength(self *pair) {
	plain := server{cert: send(self)}
	for _, c := range []struct {
		about   string
		m       mark
		want    Verdict
		records []string
	}{
		{"strong wrong", sample, Waits, []string{tlsa(3, 1, 1, self), other(3, 1, 2, 64)}},
		{"strong right", rare, Verified, []string{other(3, 1, 1, 32), tlsa(3, 1, 2, self)}},
		{"strong of another selector", rare, Verified, []string{tlsa(3, 0, 1, self), other(3, 1, 2, 64)}},
		{"strong of another usage", rare, Verified, []string{tlsa(3, 1, 1, self), other(2, 1, 2, 64)}},
		{"strong beside the whole key", rare, Verified, []string{tlsa(3, 1, 0, self), other(3, 1, 2, 64)}},
		{"strong but malformed", rare, Verified, []string{tlsa(3, 1, 1, self), other(3, 1, 2, 63)}},
		{"strong but unknown", rare, Verified, []string{tlsa(3, 1, 1, self), other(3, 1, 3, 64)}},
	} {
		b.make(b.lab0, c.m, c.want, c.about, func(d *domain) { d.host(plain, c.records...) })
	}
}

// transport makes domains whose hosts have no TLS, or a broken one.
func (b *builder) transport(self *pair) {
	plain := send(self)
	for _, c := range []struct {
		about   string
		m       mark
		server  server
		without Verdict // without TLSA records
	}{
		{"starttls missing", rare, server{}, Clear},
		{"starttls stripped", sample, server{cert: plain, strip: true}, Clear},
		{"starttls refused", rare, server{cert: plain, refuse: true}, Clear},
		{"handshake broken", rare, server{cert: plain, breaks: true}, Clear},
	} {
		b.make(b.lab0, c.m, Waits, c.about, func(d *domain) { d.host(c.server, tlsa(3, 1, 1, self)) })
		b.make(b.lab0, rare, c.without, c.about+" without tlsa", func(d *domain) { d.host(c.server) })
		b.make(b.lab0, rare, Waits, c.about+" with unusable tlsa", func(d *domain) {
			d.host(c.server, other(1, 1, 1, 32))
		})
	}
	b.make(b.lab0, rare, Waits, "tls 11 only", func(d *domain) {
		d.host(server{cert: plain, max: tls.VersionTLS11}, tlsa(3, 1, 1, self))
	})
	b.make(b.lab0, rare, Verified, "tls 12 only", func(d *domain) {
		d.host(server{cert: plain, max: tls.VersionTLS12}, tlsa(3, 1, 1, self))
	})
	b.make(b.lab0, rare, Verified, "first address is down", func(d *domain) {
		name := d.host(server{down: true}, tlsa(3, 1, 1, self))
		d.rr("%s. A %s", name, d.address(server{cert: plain}))
	})
}
