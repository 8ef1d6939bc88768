package nameserver

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	// maxQuery is the maximum size of a query in bytes. A question has at most 271 bytes; EDNS options and signatures
	// are the rest.
	maxQuery = 4096
	// maxUDP is the maximum size of a UDP response that no network fragments, in bytes (RFC 9715 section 3).
	maxUDP = 1232
	// plainUDP is the maximum size of a UDP response to a client without EDNS, in bytes.
	plainUDP = dns.MinMsgSize
)

// Query describes an answered or dropped query, for metrics.
type Query struct {
	Zone  string // the zone of the question, or ""
	Rcode int
	TCP   bool
	// Awaited is the awaited zone of the question, if the query was refused because the zone is missing; see NewSet.
	Awaited string
	// Limited says that the client network exceeded the rate limit: the response was dropped or truncated.
	Limited bool
	// Malformed says that the packet was no query and was dropped. The other fields except TCP are empty.
	Malformed bool
}

// respond returns the response to a message from a client, or nil if the message must be dropped. The response may be
// stored in buf.
func (s *Server) respond(message []byte, client netip.Addr, tcp bool, buf []byte) ([]byte, Query) {
	info := Query{TCP: tcp}
	malformed := func() ([]byte, Query) {
		info.Malformed = true
		return nil, info
	}
	if len(message) < headerSize || len(message) > maxQuery || message[2]&0x80 != 0 { // the last one is a response
		return malformed()
	}
	var q dns.Msg
	var r *dns.Msg
	var c class
	if isUnusual(message) {
		r, c = refuseUnusual(message, &info)
	} else if q.Unpack(message) != nil {
		return malformed()
	} else {
		r, c = s.answer(&q, &info)
	}
	limit := dns.MaxMsgSize
	if !tcp {
		switch s.limiter.allow(client, c) {
		case drop:
			info.Limited = true
			return nil, info
		case slip:
			info.Limited = true
			truncate(r)
		}
		limit = plainUDP
		if opt := q.IsEdns0(); opt != nil {
			limit = min(max(int(opt.UDPSize()), plainUDP), maxUDP)
		}
	}
	r.Compress = true
	packed, err := r.PackBuffer(buf)
	if err == nil && len(packed) > limit {
		truncate(r)
		packed, err = r.PackBuffer(buf)
	}
	if err != nil {
		// Compile has checked every record, so this must not happen. The client asks another server.
		r.Answer, r.Ns, r.Rcode = nil, nil, dns.RcodeServerFailure
		info.Rcode = r.Rcode
		if packed, err = r.PackBuffer(buf); err != nil {
			return malformed()
		}
	}
	return packed, info
}

// maxExtra is the maximum number of records in a query. Resolvers send an OPT record, and some sign with one or two
// more.
const maxExtra = 8

// isUnusual reports whether a message has several questions or many records. Reading them would cost time.
func isUnusual(message []byte) bool {
	count := func(at int) int { return int(binary.BigEndian.Uint16(message[at:])) }
	return count(4) > 1 || count(6)+count(8)+count(10) > maxExtra
}

// refuseUnusual returns the response to a message that isUnusual (RFC 9619 section 4), without its question.
func refuseUnusual(message []byte, info *Query) (*dns.Msg, class) {
	r := new(dns.Msg)
	r.Id, r.Response = binary.BigEndian.Uint16(message), true
	r.Opcode, r.Rcode = int(message[2]>>3)&0xf, dns.RcodeFormatError
	info.Rcode = r.Rcode
	return r, class{kind: kindError}
}

// truncate removes all records and sets the bit that makes the client repeat the query over TCP. A partial answer would
// be of no use, because resolvers discard it.
func truncate(r *dns.Msg) {
	r.Answer, r.Ns, r.Truncated = nil, nil, true
}

// answer returns the response to a query, without regard to its size, and its class for the rate limit.
func (s *Server) answer(q *dns.Msg, info *Query) (*dns.Msg, class) {
	r := new(dns.Msg)
	r.Id, r.Response, r.Opcode, r.RecursionDesired = q.Id, true, q.Opcode, q.RecursionDesired
	r.Question = q.Question
	fail := func(rcode int) (*dns.Msg, class) {
		r.Rcode, info.Rcode = rcode, rcode
		return r, class{kind: kindError}
	}
	if q.Opcode != dns.OpcodeQuery { // NOTIFY and UPDATE among them
		return fail(dns.RcodeNotImplemented)
	}
	opt, ok := edns(q)
	if !ok {
		return fail(dns.RcodeFormatError)
	}
	if opt != nil {
		r.SetEdns0(maxUDP, opt.Do())
		if opt.Version() != 0 {
			// The library packs the upper bits of the code into the OPT record.
			return fail(dns.RcodeBadVers)
		}
	}
	if len(q.Question) != 1 {
		return fail(dns.RcodeFormatError)
	}
	question := q.Question[0]
	if question.Qclass != dns.ClassINET || isMeta(question.Qtype) {
		return fail(dns.RcodeRefused)
	}
	set := s.zones.Load()
	if set == nil {
		return fail(dns.RcodeServerFailure)
	}
	key := lower(strings.TrimSuffix(question.Name, "."))
	z := set.find(key)
	if z == nil {
		info.Awaited = set.awaits(key)
		return fail(dns.RcodeRefused)
	}
	if question.Qtype == dns.TypeDS && key == z.name {
		// Only the parent zone knows whether the zone is signed (RFC 4035 section 3.1.4.1).
		if above := set.find(parentOf(key)); above != nil {
			z = above
		}
		info.Zone, r.Authoritative, r.Ns = z.name, true, []dns.RR{z.negative()}
		return r, class{kind: kindNoData, name: z.name}
	}
	o := set.lookUp(z, question.Name, key, question.Qtype)
	r.Authoritative, r.Rcode, r.Answer, r.Ns = true, o.rcode, o.answer, o.authority
	info.Zone, info.Rcode = z.name, o.rcode
	switch {
	case o.rcode == dns.RcodeNameError:
		return r, class{kind: kindNoName, name: z.name}
	case len(o.answer) == 0:
		return r, class{kind: kindNoData, name: z.name}
	}
	return r, class{kind: kindAnswer, name: o.owner, typ: question.Qtype}
}

// edns returns the OPT record of a query, or nil. ok is false if the query has several, or one that does not belong to
// the root (RFC 6891 section 6.1).
func edns(q *dns.Msg) (opt *dns.OPT, ok bool) {
	for _, rr := range q.Extra {
		o, is := rr.(*dns.OPT)
		if !is {
			continue
		}
		if opt != nil || o.Hdr.Name != "." {
			return nil, false
		}
		opt = o
	}
	return opt, true
}

// isMeta reports whether a type is one of those that no record has: transfers, signatures of messages and so on (RFC
// 6895 section 3.1). ANY is not among them.
func isMeta(typ uint16) bool {
	return typ == 0 || typ == dns.TypeOPT || typ >= 128 && typ < dns.TypeANY
}

// lower returns s with ASCII letters in lower case. Other bytes of names are escaped by the library.
func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
