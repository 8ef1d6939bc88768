package domains

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/nameserver"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	zonePage  = 500             // domains that are read at a time
	zonesMax  = 200_000         // maximum number of domains that have names in zones of this installation
	recordTTL = uint32(60 * 60) // seconds for which resolvers keep records; a rotation of keys waits for it
	// factZone is the name of the fact with the version of the operator's zone.
	factZone = "dns_zone_version"
)

// Zones returns what this installation's name servers answer: the zone of each delegated domain, and the names of other
// domains in the operator's zone. Zones contain the same records on every node. A deleted domain keeps a zone with the
// records that senders still need. Domains whose delegation was not found are awaited. The content is partial if more
// than zonesMax domains have names in zones.
//
// Zones uses no network: the name servers answer nothing before the zones are there, so a look-up of a name in one of
// them would wait for itself. What a look-up must find is stored by the job that verifies a domain.
//
// The serial number of a zone grows when the content changes. Zones stores it with a checksum of the content, so that
// all nodes and restarted ones have the same number.
func (s *Service) Zones(ctx context.Context) (c nameserver.Content, err error) {
	if s.c.DNSZone == "" {
		return c, nil
	}
	withdrawn, err := s.withdrawnRecords(ctx)
	if err != nil {
		return c, err
	}
	operator := zoneBuilder{name: s.c.DNSZone}
	if err := s.addZones(ctx, &c, &operator, withdrawn); err != nil {
		return c, err
	}
	c.Zones = append(c.Zones, s.withoutDomains(withdrawn, c.Zones)...)
	z := operator.zone(s.nameServerZone())
	version, err := db.FactIn(ctx, s.DB.Reader, factZone)
	if err != nil {
		return c, err
	}
	// Package zones adds the addresses to the zone.
	checksum := checksumOf(&z, s.c.DNSAddresses...)
	if z.Serial, err = s.operatorSerial(ctx, version, checksum); err != nil {
		return c, err
	}
	c.Zones = append(c.Zones, z)
	return c, nil
}

// addZones adds to c the zones and the awaited names of domains, page by page, and their other names to the operator's
// zone.
func (s *Service) addZones(ctx context.Context, c *nameserver.Content, operator *zoneBuilder,
	withdrawn map[string]WithdrawnRecords) error {
	after, left := "", s.zonesMax
	for {
		size := min(zonePage, left)
		all, err := domainsWithNames(ctx, s.DB.Reader, after, max(size, 1))
		if err != nil {
			return fmt.Errorf("read the domains that have zones: %w", err)
		}
		if size == 0 {
			c.Partial = len(all) > 0
			return nil
		}
		made, err := s.zonesOf(ctx, all, operator, withdrawn)
		if err != nil {
			return err
		}
		c.Zones = append(c.Zones, made...)
		for i := range all {
			if d := &all[i]; d.setup() == SetupDelegation && !d.Served() {
				c.Awaited = append(c.Awaited, d.Name)
			}
		}
		if len(all) < size {
			return nil
		}
		left -= len(all)
		after = all[len(all)-1].setupToken
	}
}

// zoneMailbox returns the mailbox in the SOA records of all zones.
func (c *Config) zoneMailbox() string {
	return nameserver.MailboxName(cmp.Or(c.DNSContact, "hostmaster@"+c.DNSZone))
}

// nameServerZone returns the operator's zone without records.
func (s *Service) nameServerZone() nameserver.Zone {
	return nameserver.Zone{Name: s.c.DNSZone, NS: s.c.DNSNames, Mailbox: s.c.zoneMailbox()}
}

// zonesOf returns the zones of delegated domains, and adds the names of all domains to the operator's zone.
//
// The zone of a domain also has the records that a deleted domain of the same name still needs.
func (s *Service) zonesOf(ctx context.Context, all []Domain, operator *zoneBuilder,
	withdrawn map[string]WithdrawnRecords) ([]nameserver.Zone, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var ids []string
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	keys, err := s.keysInZones(ctx, ids)
	if err != nil {
		return nil, err
	}
	var served []*Domain
	for i := range all {
		d := &all[i]
		if d.uses(SetupCNAME) {
			s.addTargets(operator, d, keys[d.ID])
		}
		if d.Served() {
			served = append(served, d)
		}
	}
	advised, err := s.knownAdvisedOfAll(ctx, served)
	if err != nil {
		return nil, err
	}
	var zones []nameserver.Zone
	for _, d := range served {
		records := advised[d.ID]
		for _, r := range withdrawn[d.Name].Records {
			if !slices.ContainsFunc(advised[d.ID], func(a AdvisedRecord) bool { return a.Name == r.Name }) {
				records = append(slices.Clip(records), r)
			}
		}
		zones = append(zones, s.zoneOf(d, keys[d.ID], records))
	}
	return zones, s.number(ctx, zones, served)
}

// keysInZones returns the DKIM records of domains, by the id of the domain. The RSA key that signs comes first. Reads of
// the two tables with keys are not one snapshot. A key that begins to sign between them would be in neither, so the
// keys that sign are read again.
func (s *Service) keysInZones(ctx context.Context, ids []string) (map[string][]PublishedKey, error) {
	before, err := s.publishedKeys(ctx, s.DB.Reader, ids...)
	if err != nil {
		return nil, err
	}
	all, err := signingRecords(ctx, s.DB.Reader, &s.c, ids)
	if err != nil {
		return nil, fmt.Errorf("read the DKIM keys that sign: %w", err)
	}
	for id, keys := range before {
		for _, k := range keys {
			if !slices.Contains(all[id], k) {
				all[id] = append(all[id], k)
			}
		}
	}
	return all, nil
}

// addTargets adds the names to which a domain's CNAME records point.
func (s *Service) addTargets(b *zoneBuilder, d *Domain, keys []PublishedKey) {
	done := map[string]bool{}
	for i, k := range keys {
		if i == 0 { // the RSA key that signs
			k.Selector = s.c.selectorIn(SetupCNAME, k.Selector)
		}
		if (k.Selector == selectorFirst || k.Selector == selectorSecond) && !done[k.Selector] {
			b.add(s.c.target(d, k.Selector), "TXT", k.Record)
			done[k.Selector] = true
		}
	}
	if r := s.c.region(d.Region); d.Sending {
		b.add(s.c.target(d, "rp"), "MX", "10 "+r.BounceHost)
		b.add(s.c.target(d, "rp"), "TXT", r.spf())
	}
}

// zoneOf returns the zone of a delegated domain, without its serial number.
func (s *Service) zoneOf(d *Domain, keys []PublishedKey, advised []AdvisedRecord) nameserver.Zone {
	b, r := zoneBuilder{name: d.Name}, s.c.region(d.Region)
	// Bounces go to the return-path host, so no mail has the domain itself as its return path.
	b.add(d.Name, "TXT", "v=spf1 -all")
	if d.Receiving {
		b.add(d.Name, "MX", "10 "+r.InboundHost)
	}
	if d.Sending {
		b.add(d.returnPathHost(), "MX", "10 "+r.BounceHost)
		b.add(d.returnPathHost(), "TXT", r.spf())
	}
	for i, k := range keys {
		k.Record = restricted(k.Record)
		b.add(k.Selector+"._domainkey."+d.Name, "TXT", k.Record)
		// With the set-up cname, the key that signs may have had another selector. Mail under way still names it.
		alias := s.c.selectorIn(SetupCNAME, k.Selector)
		named := func(other PublishedKey) bool { return other.Selector == alias }
		if i == 0 && d.uses(SetupCNAME) && !slices.ContainsFunc(keys, named) {
			b.add(alias+"._domainkey."+d.Name, "TXT", k.Record)
		}
	}
	labels := slices.Clone(d.Tracked)
	if d.TrackingSubdomain != "" && !slices.Contains(labels, d.TrackingSubdomain) {
		labels = append(labels, d.TrackingSubdomain)
	}
	for _, label := range labels {
		b.add(label+"."+d.Name, "CNAME", r.TrackingHost)
	}
	for _, rec := range advised {
		b.add(rec.Name, rec.Type, rec.Value)
	}
	if s.c.CAAIssuer != "" {
		// The nearest CAA record counts (RFC 8659 section 3), so those of the parent domain do not matter.
		b.add(d.Name, "CAA", s.c.caa())
	}
	return b.zone(nameserver.Zone{Name: d.Name, NS: s.c.nameServers(d), Mailbox: s.c.zoneMailbox()})
}

// zoneBuilder collects the records of a zone.
type zoneBuilder struct {
	name    string
	records []nameserver.Record
	types   map[string]string // by name: CNAME, or another type
}

// add adds a record. Records outside the zone are left out, and so is a record that would stand beside an alias,
// because a zone with such a record is not valid. The record that was added first stays.
func (b *zoneBuilder) add(name, typ, value string) {
	name = strings.ToLower(name)
	if name != b.name && !strings.HasSuffix(name, "."+b.name) {
		return
	}
	if b.types == nil {
		b.types = map[string]string{}
	}
	was, taken := b.types[name]
	if taken && (was == "CNAME" || typ == "CNAME") || typ == "CNAME" && name == b.name || !isRecordValue(typ, value) {
		return
	}
	b.types[name] = typ
	rec := nameserver.Record{Name: name, Type: typ, TTL: recordTTL, Value: value}
	if !slices.Contains(b.records, rec) {
		b.records = append(b.records, rec)
	}
}

// isRecordValue reports whether a record can have the value. A value that depends on settings may be empty.
func isRecordValue(typ, value string) bool {
	switch typ {
	case "MX":
		_, host, _ := strings.Cut(value, " ")
		return isHostname(host)
	case "CNAME":
		return value != ""
	case "A", "AAAA":
		_, err := netip.ParseAddr(value)
		return err == nil
	}
	return value != ""
}

// zone returns z with the records in an order that depends only on them.
func (b *zoneBuilder) zone(z nameserver.Zone) nameserver.Zone {
	slices.SortFunc(b.records, func(x, y nameserver.Record) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Value, y.Value))
	})
	z.Records = b.records
	return z
}

// checksumOf returns a checksum of a zone without its serial number, and of further content of the zone.
func checksumOf(z *nameserver.Zone, further ...string) string {
	sum := sha256.New()
	for _, text := range further {
		fmt.Fprintf(sum, "%q\n", text)
	}
	fmt.Fprintf(sum, "%q %q %q\n", z.Name, z.NS, z.Mailbox)
	for _, r := range z.Records {
		fmt.Fprintf(sum, "%q %s %d %q\n", r.Name, r.Type, r.TTL, r.Value)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// number sets the serial numbers of zones. The zones that have changed get new numbers, which are stored.
func (s *Service) number(ctx context.Context, zones []nameserver.Zone, served []*Domain) error {
	if len(zones) == 0 {
		return nil
	}
	var ids []string
	sums := make([]string, len(zones))
	for i := range zones {
		ids, sums[i] = append(ids, served[i].ID), checksumOf(&zones[i])
	}
	set := func(versions map[string]zoneVersion) (changed bool) {
		for i := range zones {
			v := versions[ids[i]]
			changed = changed || v.checksum != sums[i]
			zones[i].Serial = v.serial
		}
		return changed
	}
	versions, err := zoneVersions(ctx, s.DB.Reader, ids)
	if err != nil || !set(versions) {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Serialize(ctx, factZone); err != nil { // another node may number the same zones
			return fmt.Errorf("wait for others that number zones: %w", err)
		}
		versions, err := zoneVersions(ctx, tx.Reader, ids)
		if err != nil {
			return err
		}
		for i, d := range served {
			if v := versions[d.ID]; v.checksum != sums[i] {
				v = zoneVersion{sums[i], nextSerial(v.serial, tx.Now())}
				versions[d.ID] = v
				saveZoneVersion(ctx, tx, d.TeamID, d.ID, v)
			}
		}
		set(versions)
		return nil
	})
}

// nextSerial returns a serial number that is greater than was. It is the time in seconds, so that a zone that was
// deleted and comes back does not get an earlier number.
func nextSerial(was uint32, now time.Time) uint32 { return max(was+1, uint32(now.Unix())) }

// operatorSerial returns the serial number of the operator's zone. The parameter version is the stored version.
func (s *Service) operatorSerial(ctx context.Context, version, checksum string) (uint32, error) {
	parse := func(version string) (serial uint32, same bool) {
		text, sum, _ := strings.Cut(version, " ")
		n, _ := strconv.ParseUint(text, 10, 32) // 0 before the first version
		return uint32(n), sum == checksum
	}
	serial, same := parse(version)
	if same {
		return serial, nil
	}
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Serialize(ctx, factZone); err != nil {
			return fmt.Errorf("wait for others that number zones: %w", err)
		}
		stored, err := db.FactIn(ctx, tx.Reader, factZone)
		if err != nil {
			return err
		}
		if serial, same = parse(stored); same {
			return nil
		}
		serial = nextSerial(serial, tx.Now())
		db.SetFact(ctx, tx, factZone, strconv.FormatUint(uint64(serial), 10)+" "+checksum)
		return nil
	})
	return serial, err
}
