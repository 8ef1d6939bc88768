package resolve

import (
	"context"
	"fmt"

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
