package nameserver

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

// Set is an immutable set of zones.
type Set struct {
	zones map[string]*Compiled // by name without final dot

	// between holds the names that lie between the apex of a zone and a zone of the set below it. Without it, the upper
	// zone would deny that these names exist, and resolvers would conclude that the lower zone does not exist either
	// (RFC 8020).
	between map[string]struct{}

	awaited map[string]struct{} // see NewSet
}

// NewSet returns the set of the given zones. If two zones have the same name, the set has the first one, and the error
// names the other one. The parameter awaited has names of zones that the set may have soon: the server refuses queries
// about them, and names them in Query.Awaited.
func NewSet(zones []*Compiled, awaited ...string) (*Set, error) {
	s := &Set{zones: make(map[string]*Compiled, len(zones)), between: map[string]struct{}{}}
	var err error
	for _, z := range zones {
		if s.zones[z.name] != nil {
			err = fmt.Errorf("the zone %s exists twice; only the first one is used", z.name)
			continue
		}
		s.zones[z.name] = z
	}
	for name := range s.zones {
		s.markBetween(name)
	}
	if len(awaited) > 0 {
		s.awaited = make(map[string]struct{}, len(awaited))
	}
	for _, name := range awaited {
		s.awaited[name] = struct{}{}
	}
	return s, err
}

// markBetween adds the names between the apex of a zone and the zone above it, if there is one.
func (s *Set) markBetween(name string) {
	var above []string
	for {
		_, parent, ok := strings.Cut(name, ".")
		if !ok {
			return
		}
		if s.zones[parent] != nil {
			break
		}
		above = append(above, parent)
		name = parent
	}
	for _, n := range above {
		s.between[n] = struct{}{}
	}
}

// Len returns the number of zones.
func (s *Set) Len() int { return len(s.zones) }

// Zone returns the zone with the given name, or nil.
func (s *Set) Zone(name string) *Compiled { return s.zones[name] }

// find returns the zone that a name lies in, or nil. The name is in lower case and has no final dot.
func (s *Set) find(name string) *Compiled {
	for name != "" {
		if z := s.zones[name]; z != nil {
			return z
		}
		name = parentOf(name)
	}
	return nil
}

// awaits returns the awaited zone that a name lies in, or "".
func (s *Set) awaits(name string) string {
	for ; name != "" && len(s.awaited) > 0; name = parentOf(name) {
		if _, ok := s.awaited[name]; ok {
			return name
		}
	}
	return ""
}

// parentOf removes the first label of a name; it returns "" for a name with one label.
func parentOf(name string) string {
	i, end := dns.NextLabel(name, 0)
	if end {
		return ""
	}
	return name[i:]
}

// outcome is the result of looking up a question in a zone.
type outcome struct {
	rcode     int
	answer    []dns.RR // the records with the owner names of the zone; owners has the names to send
	authority []dns.RR
	owner     string // name in the zone that answered: that of a record, a wildcard, or the apex if there is none
}

// maxChain is the maximum number of CNAME records that one answer follows.
const maxChain = 8

// lookUp answers the question for a name in zone z. The name is as the client wrote it, with a final dot; key is the
// same name in lower case without the final dot.
func (s *Set) lookUp(z *Compiled, name, key string, typ uint16) outcome {
	var o outcome
	for range maxChain {
		n, owner := s.node(z, key)
		if o.owner == "" {
			o.owner = owner
		}
		if n == nil {
			o.rcode = dns.RcodeNameError
			o.authority = []dns.RR{z.negative()}
			return o
		}
		if typ == dns.TypeANY && len(n.sets) > 0 {
			// RFC 8482 section 4.2: one made-up record instead of everything.
			o.answer = append(o.answer, &dns.HINFO{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeHINFO,
				Class: dns.ClassINET, Ttl: apexTTL}, Cpu: "RFC8482"})
			return o
		}
		if set := n.set(typ); set != nil {
			o.answer = appendAs(o.answer, set, name)
			return o
		}
		alias := n.set(dns.TypeCNAME)
		if alias == nil {
			o.authority = []dns.RR{z.negative()}
			return o
		}
		o.answer = appendAs(o.answer, alias, name)
		name = alias[0].(*dns.CNAME).Target
		key = strings.TrimSuffix(name, ".")
		if s.find(key) != z {
			return o // the resolver continues elsewhere
		}
	}
	return o // a loop, or nearly one; the resolver decides
}

// node returns the node that answers for a name, and the node's name in the zone. It is that of the name itself or of a
// wildcard. If neither exists, node returns nil and the zone's name.
func (s *Set) node(z *Compiled, key string) (*node, string) {
	if n := s.exact(z, key); n != nil {
		return n, key
	}
	for encloser := parentOf(key); encloser != ""; encloser = parentOf(encloser) {
		if s.exact(z, encloser) == nil {
			continue
		}
		// This is the closest encloser: no wildcard above it applies (RFC 4592 section 3.3.1).
		if n := z.names["*."+encloser]; n != nil {
			return n, "*." + encloser
		}
		break
	}
	return nil, z.name
}

var emptyNode = &node{}

// exact returns the node with exactly this name, or nil.
func (s *Set) exact(z *Compiled, key string) *node {
	if n := z.names[key]; n != nil {
		return n
	}
	if len(s.between) > 0 {
		if _, ok := s.between[key]; ok {
			return emptyNode
		}
	}
	return nil
}

// appendAs appends copies of the records, with another owner name.
func appendAs(all, records []dns.RR, name string) []dns.RR {
	for _, rr := range records {
		c := dns.Copy(rr)
		c.Header().Name = name
		all = append(all, c)
	}
	return all
}

// negative returns the SOA record for answers without records. Resolvers remember the absence for its TTL (RFC 2308
// section 3).
func (c *Compiled) negative() dns.RR {
	soa := *c.soa
	soa.Hdr.Ttl = negativeTTL
	return &soa
}
