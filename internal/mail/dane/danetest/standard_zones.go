package danetest

// zones makes domains in zones of each kind, with and without MX records.
func (b *builder) zones(self *pair) {
	plain := server{cert: send(self)}
	right, wrong := tlsa(3, 1, 1, self), other(3, 1, 1, 32)
	for _, c := range []struct {
		about string
		zone  *zone
		m     mark
		// An opt-out span of NSEC3 proves no absence, so it proves nothing about wildcards (RFC 5155 section 6).
		wildRight, wildWrong Verdict
	}{
		{"nsec", b.lab0, sample, Verified, Waits}, {"nsec3", b.hashed, rare, Verified, Waits},
		{"opted out", b.optedOut, rare, Encrypted, Encrypted}, {"below", b.below, rare, Verified, Waits},
	} {
		b.make(c.zone, rare, Verified, c.about+" right", func(d *domain) { d.host(plain, right) })
		b.make(c.zone, rare, Waits, c.about+" wrong", func(d *domain) { d.host(plain, wrong) })
		b.make(c.zone, c.m, Encrypted, c.about+" without tlsa", func(d *domain) { d.host(plain) })
		b.make(c.zone, rare, c.wildRight, c.about+" wildcard tlsa", func(d *domain) {
			d.rr("*._tcp.%s. TLSA %s", d.host(plain), right)
		})
		b.make(c.zone, rare, c.wildWrong, c.about+" wildcard tlsa wrong", func(d *domain) {
			d.rr("*.%s. TLSA %s", d.host(plain), wrong)
		})
		b.make(c.zone, rare, c.wildRight, c.about+" wildcard for all", func(d *domain) {
			d.mx("mx1.sub." + d.name)
			d.rr("*.sub.%s. A %s", d.name, d.address(plain))
			d.rr("*.sub.%s. TLSA %s", d.name, right)
		})
		m := c.m
		for _, k := range []struct {
			about   string
			want    Verdict
			records []string
		}{{"right", Verified, []string{right}}, {"wrong", Waits, []string{wrong}}, {"without tlsa", Encrypted, nil}} {
			b.make(c.zone, m, k.want, c.about+" no mx "+k.about, func(d *domain) {
				d.rr("%s. A %s", d.name, d.address(plain))
				d.tlsa(d.name, k.records...)
			})
			m = rare
		}
	}
	b.make(b.unsigned, sample, Encrypted, "unsigned wrong", func(d *domain) { d.host(plain, wrong) })
	b.make(b.unsigned, rare, Encrypted, "unsigned without tlsa", func(d *domain) { d.host(plain) })
	b.make(b.unsigned, rare, Clear, "unsigned without starttls", func(d *domain) { d.host(server{}, right) })
	b.make(b.unsigned, rare, Encrypted, "unsigned no mx wrong", func(d *domain) {
		d.rr("%s. A %s", d.name, d.address(plain))
		d.tlsa(d.name, wrong)
	})
	// The MX records are not authenticated, so somebody may have replaced them (RFC 7672 section 2.2.1).
	b.make(b.unsigned, rare, Encrypted, "unsigned with a signed host", func(d *domain) {
		name := "host-of-unsigned." + Zone
		d.mx(name)
		b.lab0.add(name + ". A " + d.address(plain))
		b.lab0.add(d.place(name) + ". TLSA " + wrong)
	})
	b.make(b.lab0, rare, Encrypted, "signed with an unsigned host", func(d *domain) {
		name := "host-of-signed.unsigned." + Zone
		d.mx(name)
		b.unsigned.add(name+". A "+d.address(plain), d.place(name)+". TLSA "+wrong)
	})
}

// aliases makes domains with aliases on the way to the TLSA records.
func (b *builder) aliases(self *pair) {
	plain := server{cert: send(self)}
	right, wrong := tlsa(3, 1, 1, self), other(3, 1, 1, 32)
	for _, c := range []struct {
		about          string
		m              mark
		want           Verdict
		target, atHost []string
	}{
		{"alias records at the target", sample, Verified, []string{right}, nil},
		{"alias wrong at the target", rare, Waits, []string{wrong}, nil},
		{"alias records at the alias", rare, Verified, nil, []string{right}},
		{"alias wrong at the alias", rare, Waits, nil, []string{wrong}},
		{"alias right at the target alone", rare, Verified, []string{right}, []string{wrong}},
		{"alias wrong at the target alone", rare, Waits, []string{wrong}, []string{right}},
		{"alias without records", rare, Encrypted, nil, nil},
	} {
		b.make(b.lab0, c.m, c.want, c.about, func(d *domain) {
			host, target := d.next(), "target."+d.name
			d.rr("%s. CNAME %s.", host, target)
			d.rr("%s. A %s", target, d.address(plain))
			d.tlsa(target, c.target...)
			d.tlsa(host, c.atHost...)
		})
	}
	for _, c := range []struct {
		about  string
		want   Verdict
		record string
	}{{"alias to unsigned right", Verified, right}, {"alias to unsigned wrong", Waits, wrong}} {
		b.make(b.lab0, rare, c.want, c.about, func(d *domain) {
			host, target := d.next(), "target-"+string(c.want)+".unsigned."+Zone
			d.rr("%s. CNAME %s.", host, target)
			b.unsigned.add(target + ". A " + d.address(plain))
			d.tlsa(host, c.record)
		})
	}
	b.make(b.lab0, rare, Encrypted, "alias in an unsigned zone", func(d *domain) {
		alias, target := "alias-to-signed.unsigned."+Zone, "target."+d.name
		d.mx(alias)
		b.unsigned.add(alias + ". CNAME " + target + ".")
		d.rr("%s. A %s", target, d.address(plain))
		d.tlsa(target, wrong)
	})
	for _, c := range []struct {
		about  string
		m      mark
		want   Verdict
		record string
	}{{"tlsa alias right", sample, Verified, right}, {"tlsa alias wrong", rare, Waits, wrong}} {
		b.make(b.lab0, c.m, c.want, c.about, func(d *domain) {
			d.rr("%s. CNAME _dane.%s.", d.place(d.host(plain)), d.name)
			d.rr("_dane.%s. TLSA %s", d.name, c.record)
		})
	}
	b.make(b.lab0, rare, Encrypted, "tlsa alias to unsigned", func(d *domain) {
		d.rr("%s. CNAME _dane.unsigned.%s.", d.place(d.host(plain)), Zone)
		b.unsigned.add("_dane.unsigned." + Zone + ". TLSA " + wrong)
	})
	b.make(b.lab0, rare, Encrypted, "tlsa alias to nothing", func(d *domain) {
		d.rr("%s. CNAME _none.%s.", d.place(d.host(plain)), d.name)
	})
}

// broken makes domains with wrong signatures. All of them wait: somebody may have forged the answer.
func (b *builder) broken(self *pair) {
	plain := server{cert: send(self)}
	right := tlsa(3, 1, 1, self)
	b.make(b.lab0, sample, Waits, "tlsa changed after signing", func(d *domain) {
		d.edit(d.place(d.host(plain, right)), "TLSA", "3 1 1", "3 1 0")
	})
	b.make(b.lab0, rare, Waits, "tlsa changed and no starttls", func(d *domain) {
		d.edit(d.place(d.host(server{}, right)), "TLSA", "3 1 1", "3 1 0")
	})
	b.make(b.lab0, rare, Waits, "tlsa signature removed", func(d *domain) {
		d.edit(d.place(d.host(plain, right)), "RRSIG", "TLSA", "")
	})
	b.make(b.lab0, rare, Waits, "tlsa removed after signing", func(d *domain) {
		d.edit(d.place(d.host(server{}, right)), "TLSA", "3 1 1", "")
	})
	b.make(b.lab0, rare, Waits, "tlsa absence without proof", func(d *domain) {
		name := d.host(server{})
		d.edit(name, "NSEC", "A", "")
		d.edit(name, "RRSIG", "NSEC", "")
	})
	b.make(b.lab0, rare, Waits, "mx changed after signing", func(d *domain) {
		d.edit(d.name, "MX", "10", "20")
		d.host(server{}, right)
	})
	b.make(b.lab0, rare, Waits, "address changed after signing", func(d *domain) {
		d.edit(d.host(server{}, right), "A", "127.10.", "127.11.")
	})
	b.make(b.late, sample, Waits, "signatures expired", func(d *domain) { d.host(server{}, right) })
	b.make(b.late, rare, Waits, "signatures expired no mx", func(d *domain) {
		d.rr("%s. A %s", d.name, d.address(server{}))
	})
	b.make(b.lab0, rare, Waits, "signatures of the host expired", func(d *domain) {
		name := "host-of-late.late." + Zone
		d.mx(name)
		b.late.add(name+". A "+d.address(server{}), d.place(name)+". TLSA "+right)
	})
	b.make(b.lab0, rare, Waits, "signatures of a tlsa alias expired", func(d *domain) {
		d.rr("%s. CNAME _dane.late.%s.", d.place(d.host(server{})), Zone)
		b.late.add("_dane.late." + Zone + ". TLSA " + right)
	})
	b.make(b.wrongDS, rare, Waits, "key replaced", func(d *domain) { d.host(server{}, right) })
}

// severalHosts makes domains with several mail hosts. The first one that may be used gets the email.
func (b *builder) severalHosts(self *pair) {
	good, none := server{cert: send(self)}, server{}
	right, wrong := tlsa(3, 1, 1, self), other(3, 1, 1, 32)
	bogus := func(d *domain) { d.edit(d.place(d.host(none, right)), "TLSA", "3 1 1", "3 1 0") }
	insecure := func(d *domain, label string, s server) {
		name := label + ".unsigned." + Zone
		d.mx(name)
		b.unsigned.add(name+". A "+d.address(s), d.place(name)+". TLSA "+wrong)
	}
	for _, c := range []struct {
		about string
		m     mark
		want  Verdict
		f     func(d *domain)
	}{
		{"hosts wrong right", sample, Verified, func(d *domain) { d.host(good, wrong); d.host(good, right) }},
		{"hosts right wrong", rare, Verified, func(d *domain) { d.host(good, right); d.host(good, wrong) }},
		{"hosts wrong wrong", rare, Waits, func(d *domain) { d.host(good, wrong); d.host(none, wrong) }},
		{"hosts wrong unlisted", rare, Encrypted, func(d *domain) { d.host(good, wrong); d.host(good) }},
		{"hosts stripped plain", rare, Clear, func(d *domain) { d.host(none, right); d.host(none) }},
		{"hosts bogus right", rare, Verified, func(d *domain) { bogus(d); d.host(good, right) }},
		{"hosts bogus unlisted", rare, Encrypted, func(d *domain) { bogus(d); d.host(good) }},
		{"hosts bogus bogus", rare, Waits, func(d *domain) { bogus(d); bogus(d) }},
		{"hosts insecure right", rare, Encrypted, func(d *domain) { insecure(d, "first-of-two", good); d.host(good, right) }},
		{"hosts right insecure", rare, Verified, func(d *domain) { d.host(good, right); insecure(d, "second-of-two", none) }},
		{"hosts wrong insecure", rare, Clear, func(d *domain) { d.host(good, wrong); insecure(d, "second-plain", none) }},
		{"hosts wrong bogus right", rare, Verified, func(d *domain) { d.host(good, wrong); bogus(d); d.host(good, right) }},
	} {
		b.make(b.lab0, c.m, c.want, c.about, c.f)
	}
}
