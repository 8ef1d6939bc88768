package nameserver

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Times in SOA and NS records, in seconds. No secondary server uses refresh, retry and expire. They have usual values,
// because domain checkers complain about others.
const (
	refresh = 3600
	retry   = 600
	expire  = 14 * 24 * 3600
	apexTTL = 3600
	// negativeTTL is the time for which resolvers remember that a name or record does not exist (RFC 2308). It is
	// short, because customers wait for new records.
	negativeTTL = 60
)

const (
	maxServers = 13       // maximum number of NS records of a zone
	maxSet     = 16 << 10 // maximum size of the records of one name, in bytes; a response must fit into 64 KB
	maxNames   = 1 << 20  // maximum number of names in a zone
)

// Compiled is a validated zone in the form in which the server uses it. It is immutable.
type Compiled struct {
	name        string // without final dot
	serial      uint32
	fingerprint uint64
	soa         *dns.SOA
	names       map[string]*node // by lower-case name without final dot
}

// Name returns the zone's name, without a final dot.
func (c *Compiled) Name() string { return c.name }

// Serial returns the serial number in the zone's SOA record.
func (c *Compiled) Serial() uint32 { return c.serial }

// Names returns the number of names in the zone, including those without records.
func (c *Compiled) Names() int { return len(c.names) }

// node holds the records of a name. A node without records stands for a name that exists only because a longer name
// does (an empty non-terminal, RFC 4592 section 2.2.2).
type node struct {
	sets []rrset
	size int // size of all records, in bytes
}

// rrset is the list of all records of a name with the same type.
type rrset struct {
	typ     uint16
	records []dns.RR
}

// set returns the node's records of the given type, or nil.
func (n *node) set(typ uint16) []dns.RR {
	for _, s := range n.sets {
		if s.typ == typ {
			return s.records
		}
	}
	return nil
}

var seed = maphash.MakeSeed()

// Fingerprint returns a hash of the zone's content. Hashes of zones with different content are almost certainly
// different. A hash is valid only within this process.
func (z *Zone) Fingerprint() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	text := func(s string) {
		h.WriteString(s)
		h.WriteByte(0)
	}
	number := func(n uint32) {
		h.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	text(z.Name)
	number(z.Serial)
	number(uint32(len(z.NS)))
	for _, ns := range z.NS {
		text(ns)
	}
	text(z.Mailbox)
	for _, r := range z.Records {
		text(r.Name)
		text(r.Type)
		number(r.TTL)
		text(r.Value)
	}
	return h.Sum64()
}

// Fingerprint returns the fingerprint of the zone from which c was compiled.
func (c *Compiled) Fingerprint() uint64 { return c.fingerprint }

// Compile validates a zone. It returns an error if any field or record is invalid.
func Compile(z Zone) (*Compiled, error) {
	c, dropped, err := CompileShared(z)
	if err != nil {
		return nil, err
	}
	if len(dropped) > 0 {
		return nil, fmt.Errorf("zone %s: %w", z.Name, dropped[0])
	}
	return c, nil
}

// CompileShared validates a zone in which an invalid record must not affect the others. Invalid records are left out,
// and dropped says why. err is not nil if another field is invalid.
func CompileShared(z Zone) (c *Compiled, dropped []*RecordError, err error) {
	fail := func(err error) (*Compiled, []*RecordError, error) {
		return nil, nil, fmt.Errorf("zone %q: %w", z.Name, err)
	}
	if err := checkName(z.Name); err != nil {
		return fail(err)
	}
	if len(z.NS) == 0 || len(z.NS) > maxServers {
		return fail(fmt.Errorf("it has %d name servers instead of 1 to %d", len(z.NS), maxServers))
	}
	for i, ns := range z.NS {
		if err := checkName(ns); err != nil {
			return fail(fmt.Errorf("name server: %w", err))
		}
		if slices.Contains(z.NS[:i], ns) {
			return fail(fmt.Errorf("the name server %s is listed twice", ns))
		}
	}
	if err := checkMailbox(z.Mailbox); err != nil {
		return fail(fmt.Errorf("mailbox: %w", err))
	}
	c = &Compiled{name: z.Name, serial: z.Serial, fingerprint: z.Fingerprint(), names: make(map[string]*node, 8)}
	header := func(typ uint16) dns.RR_Header {
		return dns.RR_Header{Name: z.Name + ".", Rrtype: typ, Class: dns.ClassINET, Ttl: apexTTL}
	}
	c.soa = &dns.SOA{Hdr: header(dns.TypeSOA), Ns: z.NS[0] + ".", Mbox: z.Mailbox + ".", Serial: z.Serial,
		Refresh: refresh, Retry: retry, Expire: expire, Minttl: negativeTTL}
	apex := &node{}
	c.names[z.Name] = apex
	apex.add(c.soa)
	for _, ns := range z.NS {
		apex.add(&dns.NS{Hdr: header(dns.TypeNS), Ns: ns + "."})
	}
	for _, r := range z.Records {
		if err := c.add(r); err != nil {
			dropped = append(dropped, &RecordError{r.Name, r.Type, err})
		}
	}
	return c, dropped, nil
}

// add adds a record to the zone, and the names above the record's name as far as they are missing.
func (c *Compiled) add(r Record) error {
	rr, err := r.rr(c.name)
	if err != nil {
		return err
	}
	n := c.names[r.Name]
	if n == nil {
		if len(c.names) >= maxNames {
			return fmt.Errorf("the zone has more than %d names", maxNames)
		}
		n = &node{}
	}
	if err := n.check(rr); err != nil {
		return err
	}
	n.add(rr)
	c.names[r.Name] = n
	for name := r.Name; name != c.name; {
		_, name, _ = strings.Cut(name, ".")
		if c.names[name] != nil {
			break
		}
		c.names[name] = &node{}
	}
	return nil
}

// check reports whether rr may be added to the node.
func (n *node) check(rr dns.RR) error {
	typ := rr.Header().Rrtype
	for _, s := range n.sets {
		if (s.typ == dns.TypeCNAME) != (typ == dns.TypeCNAME) {
			return errors.New("a name with a CNAME record can have no other records (RFC 1034 section 3.6.2)")
		}
		if s.typ != typ {
			continue
		}
		if typ == dns.TypeCNAME {
			return errors.New("the name has two CNAME records")
		}
		if s.records[0].Header().Ttl != rr.Header().Ttl {
			return errors.New("the records of one name and type have different TTLs (RFC 2181 section 5.2)")
		}
		for _, other := range s.records {
			if dns.IsDuplicate(rr, other) {
				return errors.New("the record is listed twice")
			}
		}
	}
	if n.size+dns.Len(rr) > maxSet {
		return fmt.Errorf("the records of the name have more than %d bytes", maxSet)
	}
	return nil
}

func (n *node) add(rr dns.RR) {
	n.size += dns.Len(rr)
	typ := rr.Header().Rrtype
	for i := range n.sets {
		if n.sets[i].typ == typ {
			n.sets[i].records = append(n.sets[i].records, rr)
			return
		}
	}
	n.sets = append(n.sets, rrset{typ, []dns.RR{rr}})
}
