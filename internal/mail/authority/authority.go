// Package authority asks the authoritative name servers of a zone, without recursion. It finds the zone of a name and
// its servers, reads the delegation of a name at the servers of the parent zone, and compares what all servers of a
// zone answer.
//
// # Invariants
//
//   - The client asks at most 8 servers of a zone, all at the same time, and each at no more than two addresses. A time
//     limit applies to each address.
//   - Only addresses that Client.Allow accepts are asked, because the owner of a zone chooses them.
//   - An answer counts only if the server says that it is authoritative (the AA bit). The other outcomes are
//     distinguished: a refusal, a failure, a referral, an answer without authority, and silence.
//   - Aliases are followed only within one answer and at most 8 times. No further server is asked about their target.
//
// # Failures
//
// The error is resolve.ErrNotFound if the zone or delegation does not exist. It is resolve.ErrTemporary if the servers
// could not be found, or if none of them gave a usable answer.
//
// # Out of scope
//
// The package does not begin at the root servers: the given resolver finds the names and addresses of the servers. It
// caches nothing, and does not check DNSSEC signatures.
package authority

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/resolve"
)

const (
	port         = 53
	askTimeout   = 3 * time.Second
	maxServers   = 8   // servers of a zone that are asked
	maxAddresses = 2   // addresses of a server that are asked, one after the other
	maxLabels    = 24  // labels of a name for which a zone is searched
	maxRecords   = 100 // records of an answer that are read
	maxAliases   = 8
	udpSize      = 1232 // maximum size of a UDP response that no network fragments, in bytes (RFC 9715 section 3)
)

// Client asks authoritative servers. A Client is safe for concurrent use.
type Client struct {
	// DNS finds name servers and their addresses. It must also be a resolve.NameServers.
	DNS resolve.Resolver
	// Port is the port of the servers; 0 means 53. Tests set it.
	Port uint16
	// Allow reports whether a server's address may be asked. nil allows all.
	Allow func(netip.Addr) bool
	// Timeout limits the time to ask one address; 0 means 3 s.
	Timeout time.Duration
}

// Outcome says how a server answered.
type Outcome string

// These are the outcomes.
const (
	Found     Outcome = "found"      // the server has records of the type
	NoRecords Outcome = "no_records" // the server has the name, but no records of the type
	NoName    Outcome = "no_name"    // the server has no such name
	Referred  Outcome = "referred"   // the server names other servers, to which the name is delegated
	Lame      Outcome = "lame"       // the server answers, but is not authoritative for the name
	Refused   Outcome = "refused"    // the server refuses to answer
	Failed    Outcome = "failed"     // the server reports a failure
	Silent    Outcome = "silent"     // the server does not answer
	NoAddress Outcome = "no_address" // the server's name has no address
	Forbidden Outcome = "forbidden"  // Client.Allow forbids all addresses of the server
)

// Answer is what one server answered.
type Answer struct {
	Server  string     // the server's name
	Addr    netip.Addr // the address that answered; not valid if none did
	Outcome Outcome
	Records []Record // of the wanted type, after aliases; for Referred, the NS records of the delegation
	Aliases []Record // CNAME records from the name to the one that has the records
	// TTL is how long resolvers may keep this answer, in seconds: the least TTL of the records, or the negative TTL of
	// the zone.
	TTL uint32
	Err error // why the server gave no usable answer; nil for Found, NoRecords and NoName
}

// Definite reports whether the server said what the zone contains.
func (a Answer) Definite() bool {
	return a.Outcome == Found || a.Outcome == NoRecords || a.Outcome == NoName
}

// Record is one record of an answer.
type Record struct {
	Name    string // ASCII, in lower case, without the final dot
	Type    string // such as TXT
	TTL     uint32
	Value   string   // in presentation form; TXT: the whole text without quotes; MX: "10 host"
	Strings []string // the character strings of a TXT record
}

// Zone returns the closest zone that contains name, and the names of its servers. If name is the apex of a zone, that
// zone is returned.
func (c *Client) Zone(ctx context.Context, name string) (zone string, servers []string, err error) {
	finder, ok := c.DNS.(resolve.NameServers)
	if !ok {
		return "", nil, fmt.Errorf("find the zone of %s: the resolver cannot look up name servers", name)
	}
	name = clean(name)
	for n := 0; name != "" && n < maxLabels; n++ {
		servers, err = finder.NS(ctx, name)
		if err == nil {
			slices.Sort(servers)
			servers = slices.Compact(servers)
			return name, servers[:min(len(servers), maxServers)], nil
		}
		if !errors.Is(err, resolve.ErrNotFound) {
			return "", nil, fmt.Errorf("find the zone of %s: %w", name, err)
		}
		name = parent(name)
	}
	return "", nil, fmt.Errorf("find a zone: %w", resolve.ErrNotFound)
}

// Delegation returns the names of the servers to which the parent zone delegates name, in alphabetical order. Only
// referrals count. An authoritative answer about name proves no delegation, because a server may hold that zone without
// the consent of the parent zone's owner.
//
// If the parent's servers differ, Delegation returns the names that all answering servers list. The error is
// resolve.ErrNotFound if there is no such name, or if a server answers that name is not delegated.
func (c *Client) Delegation(ctx context.Context, name string) ([]string, error) {
	name = clean(name)
	above := parent(name)
	if above == "" {
		return nil, fmt.Errorf("delegation of %q: %w", name, resolve.ErrNotFound)
	}
	_, servers, err := c.Zone(ctx, above)
	if err != nil {
		return nil, fmt.Errorf("delegation of %s: %w", name, err)
	}
	var common []string
	var last error
	answered := false
	for _, a := range c.ask(ctx, servers, name, dns.TypeNS) {
		var names []string
		switch {
		case a.Outcome == Referred:
			for _, r := range a.Records {
				if r.Name == name {
					names = append(names, r.Value)
				}
			}
		case !a.Definite():
			last = cmp.Or(last, a.Err)
			continue
		}
		if answered {
			common = slices.DeleteFunc(common, func(s string) bool { return !slices.Contains(names, s) })
		} else {
			common, answered = names, true
		}
	}
	switch {
	case !answered:
		return nil, fmt.Errorf("delegation of %s: %w: %w", name, resolve.ErrTemporary, last)
	case len(common) == 0:
		return nil, fmt.Errorf("delegation of %s: %w", name, resolve.ErrNotFound)
	}
	slices.Sort(common)
	return slices.Compact(common), nil
}

// Ask asks every server of the name's zone for the records of a type, such as TXT. The answers are in the order of the
// servers' names. The error is that of Zone.
func (c *Client) Ask(ctx context.Context, name, typ string) ([]Answer, error) {
	_, servers, err := c.Zone(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.AskServers(ctx, servers, name, typ)
}

// AskServers is like Ask for servers that Zone has already found.
func (c *Client) AskServers(ctx context.Context, servers []string, name, typ string) ([]Answer, error) {
	qtype, ok := dns.StringToType[strings.ToUpper(typ)]
	if !ok {
		return nil, fmt.Errorf("ask for %s: no such type of DNS records", typ)
	}
	if _, ok := dns.IsDomainName(name); !ok {
		return nil, fmt.Errorf("%w: %q is not a DNS name", resolve.ErrNotFound, name)
	}
	return c.ask(ctx, servers[:min(len(servers), maxServers)], clean(name), qtype), nil
}

// AskAddrs asks a server at the first two of the given addresses until one answers. It makes no look-ups and ignores
// Allow.
func (c *Client) AskAddrs(ctx context.Context, server string, addrs []netip.Addr, name, typ string) Answer {
	a := Answer{Server: server, Outcome: NoAddress, Err: fmt.Errorf("%s has no address", server)}
	qtype, ok := dns.StringToType[strings.ToUpper(typ)]
	if !ok {
		a.Err = fmt.Errorf("ask for %s: no such type of DNS records", typ)
		return a
	}
	c.askAt(ctx, &a, addrs, clean(name), qtype)
	return a
}

// ask asks all servers at the same time.
func (c *Client) ask(ctx context.Context, servers []string, name string, qtype uint16) []Answer {
	all := make([]Answer, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() { all[i] = c.askServer(ctx, s, name, qtype) })
	}
	wait.Wait()
	return all
}

// askServer asks one server, at its second address if the first one does not answer.
func (c *Client) askServer(ctx context.Context, server, name string, qtype uint16) Answer {
	a := Answer{Server: server}
	lookUp, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, askTimeout))
	addrs, err := c.DNS.Addrs(lookUp, server)
	cancel()
	if err != nil {
		a.Outcome, a.Err = NoAddress, fmt.Errorf("address of %s: %w", server, err)
		return a
	}
	if c.Allow != nil {
		addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return !c.Allow(addr) })
	}
	if len(addrs) == 0 {
		a.Outcome, a.Err = Forbidden, fmt.Errorf("%s has no public address", server)
		return a
	}
	c.askAt(ctx, &a, addrs, name, qtype)
	return a
}

// askAt asks addresses of a server until one answers, and adds what it answers to a.
func (c *Client) askAt(ctx context.Context, a *Answer, addrs []netip.Addr, name string, qtype uint16) {
	for _, addr := range addrs[:min(len(addrs), maxAddresses)] {
		m, err := c.exchange(ctx, addr, name, qtype)
		if err != nil {
			a.Outcome, a.Err = Silent, err
			continue
		}
		a.Addr, a.Err = addr, nil
		a.read(m, name, qtype)
		return
	}
}

// exchange asks one address over UDP, without EDNS0 if the server does not know it, and over TCP if the response is
// truncated.
func (c *Client) exchange(ctx context.Context, addr netip.Addr, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, askTimeout))
	defer cancel()
	server := netip.AddrPortFrom(addr, cmp.Or(c.Port, port)).String()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	query.RecursionDesired = false
	query.SetEdns0(udpSize, false)
	m, err := resolve.Exchange(ctx, "udp", server, query)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		query.Id, query.Extra = dns.Id(), nil
		m, err = resolve.Exchange(ctx, "udp", server, query)
	}
	if err == nil && m.Truncated {
		query.Id = dns.Id()
		m, err = resolve.Exchange(ctx, "tcp", server, query)
	}
	return m, err
}

// read sets the outcome and the records from a response.
func (a *Answer) read(m *dns.Msg, name string, qtype uint16) {
	fail := func(o Outcome, format string, args ...any) {
		a.Outcome, a.Err = o, fmt.Errorf("%s "+format, append([]any{a.Server}, args...)...)
	}
	answer := m.Answer[:min(len(m.Answer), maxRecords)]
	above := m.Ns[:min(len(m.Ns), maxRecords)]
	switch {
	case m.Rcode == dns.RcodeRefused:
		fail(Refused, "refuses to answer for %s", name)
		return
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		fail(Failed, "answers %s", cmp.Or(dns.RcodeToString[m.Rcode], fmt.Sprint(m.Rcode)))
		return
	case !m.Authoritative:
		if a.Records = delegations(above, name); len(a.Records) > 0 && len(answer) == 0 {
			fail(Referred, "names other servers for %s", name)
		} else {
			fail(Lame, "is not authoritative for %s", name)
			a.Records = nil
		}
		return
	}
	end := a.follow(answer, name, qtype)
	for _, rr := range answer {
		if rr.Header().Rrtype == qtype && clean(rr.Header().Name) == end {
			a.add(&a.Records, rr)
		}
	}
	switch {
	case len(a.Records) > 0:
		a.Outcome = Found
		return
	case m.Rcode == dns.RcodeNameError:
		a.Outcome = NoName
	default:
		a.Outcome = NoRecords
	}
	for _, rr := range above {
		if soa, ok := rr.(*dns.SOA); ok {
			a.TTL = min(soa.Minttl, soa.Hdr.Ttl) // RFC 2308 section 5
		}
	}
}

// follow collects the aliases of an answer and returns the name at their end.
func (a *Answer) follow(answer []dns.RR, name string, qtype uint16) string {
	if qtype == dns.TypeCNAME {
		return name
	}
	for range maxAliases {
		i := slices.IndexFunc(answer, func(rr dns.RR) bool {
			return rr.Header().Rrtype == dns.TypeCNAME && clean(rr.Header().Name) == name
		})
		loops := slices.ContainsFunc(a.Aliases, func(r Record) bool { return r.Name == name })
		if i < 0 || loops {
			break
		}
		a.add(&a.Aliases, answer[i])
		name = a.Aliases[len(a.Aliases)-1].Value
	}
	return name
}

// add appends a record to a list, and lowers the TTL of the answer to that of the record.
func (a *Answer) add(list *[]Record, rr dns.RR) {
	if r := newRecord(rr); len(a.Records)+len(a.Aliases) == 0 {
		a.TTL = r.TTL
		*list = append(*list, r)
	} else {
		a.TTL = min(a.TTL, r.TTL)
		*list = append(*list, r)
	}
}

// delegations returns the NS records of a referral for name or a name above it.
func delegations(above []dns.RR, name string) (all []Record) {
	for _, rr := range above {
		owner := clean(rr.Header().Name)
		if ns, ok := rr.(*dns.NS); ok && owner != "" && (owner == name || strings.HasSuffix(name, "."+owner)) {
			all = append(all, newRecord(ns))
		}
	}
	return all
}

// newRecord converts a record of the DNS library.
func newRecord(rr dns.RR) Record {
	h := rr.Header()
	r := Record{Name: clean(h.Name), TTL: h.Ttl,
		Type: cmp.Or(dns.TypeToString[h.Rrtype], fmt.Sprintf("TYPE%d", h.Rrtype))}
	switch rr := rr.(type) {
	case *dns.TXT:
		for _, s := range rr.Txt {
			r.Strings = append(r.Strings, resolve.Unescape(s))
		}
		r.Value = strings.Join(r.Strings, "")
	case *dns.CNAME:
		r.Value = clean(rr.Target)
	case *dns.NS:
		r.Value = clean(rr.Ns)
	case *dns.MX:
		r.Value = fmt.Sprintf("%d %s", rr.Preference, cmp.Or(clean(rr.Mx), "."))
	default:
		r.Value = strings.TrimPrefix(rr.String(), h.String())
	}
	return r
}

// clean returns name in lower case, without the final dot.
func clean(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// parent returns the name without its first label, "" for a top-level domain.
func parent(name string) string {
	_, above, _ := strings.Cut(name, ".")
	return above
}
