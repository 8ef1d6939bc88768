package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const probeTimeout = 10 * time.Second

// errNoDNS means that this machine's DNS servers do not work at present.
var errNoDNS error = outage{}

type outage struct{}

func (outage) Error() string { return "our DNS servers do not answer any questions" }

// Outage reports that this installation failed, and not the host (see fault.IsOutage).
func (outage) Outage() bool { return true }

// explainDNS adds errNoDNS to an error of the look-up of a host's name if the DNS servers of this machine do not work.
// If they answer a question about the root zone, the host's own name servers are to blame, and err is returned
// unchanged.
func (g *Guard) explainDNS(ctx context.Context, err error) error {
	e, ok := errors.AsType[*net.DNSError](err)
	if !ok || e.IsNotFound || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, failed := g.resolver().LookupNS(ctx, ".")
	if e, ok := errors.AsType[*net.DNSError](failed); !ok || e.IsNotFound {
		return err
	}
	return fmt.Errorf("%w: %w", errNoDNS, err)
}

func (g *Guard) resolver() *net.Resolver {
	if g.opt.Resolver != nil {
		return g.opt.Resolver
	}
	return net.DefaultResolver
}
