package resolve

import (
	"context"
	"fmt"
	"slices"

	"github.com/miekg/dns"
)

// NameServers looks up the name servers of zones. DNS and Fake implement it.
type NameServers interface {
	// NS returns the NS records at name itself, without following aliases, as the zone itself lists them. ErrNotFound
	// means that name is not the apex of a zone.
	NS(ctx context.Context, name string) ([]string, error)
}

// NS implements NameServers.
func (d *DNS) NS(ctx context.Context, name string) (servers []string, err error) {
	name = clean(name)
	answer, err := d.ask(ctx, question{name, dns.TypeNS}, false)
	if err != nil {
		return nil, err
	}
	for _, rr := range answer.records {
		if ns, ok := rr.(*dns.NS); ok && clean(rr.Header().Name) == name {
			servers = append(servers, clean(ns.Ns))
		}
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: NS %s", ErrNotFound, name)
	}
	return servers, nil
}

// SignatureChecker finds out why a DNS server fails. DNS and Fake implement it.
type SignatureChecker interface {
	// WrongSignatures reports whether a server fails to answer the question for the TXT records at name only because it
	// finds wrong DNSSEC signatures. It makes up to three queries to each server.
	WrongSignatures(ctx context.Context, name string) bool
}

// WrongSignatures implements SignatureChecker. Unlike secure look-ups, it also asks servers that DNS does not believe.
func (d *DNS) WrongSignatures(ctx context.Context, name string) bool {
	q := question{clean(name), dns.TypeTXT}
	for _, s := range d.servers {
		m, err := try(ctx, s.addr, q, false)
		if err == nil && wrongSignatures(ctx, s.addr, q, m) {
			return true
		}
	}
	return false
}

// WrongSignatures implements SignatureChecker.
func (f Fake) WrongSignatures(_ context.Context, name string) bool {
	return slices.Contains(f.Bogus, clean(name)) || slices.Contains(f.Bogus, "txt "+clean(name))
}
