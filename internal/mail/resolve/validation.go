package resolve

import (
	"context"
	"slices"
	"sync"

	"github.com/miekg/dns"
)

// Validation describes how a DNS server treats signatures (DNSSEC).
type Validation struct {
	Server string
	Err    error // the server did not answer the question about the signed name
	Known  bool  // the signed name has an address, so the other fields mean something
	// Authentic is whether the server marks the answer about the signed name as validated (the AD bit, RFC 4035 section
	// 3.2.3).
	Authentic bool
	// RefusesBogus is whether the server answers the question about the bogus name with an error, unless the question
	// turns validation off (the CD bit).
	RefusesBogus bool
	// BogusUnknown is whether the server answered no question about the bogus name, so RefusesBogus means nothing.
	BogusUnknown bool
}

// Validates asks each server for the address of a name with a valid signature and of a name with a wrong one. The
// answers say whether a server validates signatures. If bogus is "", only the first question is asked. The servers that
// were named as validating ones come last.
func (d *DNS) Validates(ctx context.Context, signed, bogus string) []Validation {
	servers := slices.Clone(d.servers)
	if d.named {
		for _, s := range d.secure {
			if !slices.ContainsFunc(servers, func(other *server) bool { return other.addr == s.addr }) {
				servers = append(servers, s)
			}
		}
	}
	all := make([]Validation, len(servers))
	var asked sync.WaitGroup
	for i, s := range servers {
		asked.Go(func() { all[i] = validation(ctx, s.addr, signed, bogus) })
	}
	asked.Wait()
	return all
}

func validation(ctx context.Context, server, signed, bogus string) Validation {
	v := Validation{Server: server, BogusUnknown: true}
	m, err := try(ctx, server, question{signed, dns.TypeA}, false)
	if err != nil {
		v.Err = err
		return v
	}
	v.Known = m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0
	v.Authentic = m.AuthenticatedData
	if bogus == "" {
		return v
	}
	unchecked, err := try(ctx, server, question{bogus, dns.TypeA}, true)
	if err != nil || !definite(unchecked) {
		return v // its name servers do not answer
	}
	checked, err := try(ctx, server, question{bogus, dns.TypeA}, false)
	v.BogusUnknown = err != nil
	v.RefusesBogus = err == nil && checked.Rcode == dns.RcodeServerFailure
	return v
}

// Servers returns the addresses and ports of the DNS servers.
func (d *DNS) Servers() (addrs []string) {
	for _, s := range d.servers {
		addrs = append(addrs, s.addr)
	}
	return addrs
}
