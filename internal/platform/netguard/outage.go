package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// errNoDNS means that this machine's DNS servers do not work at present.
var errNoDNS error = outage{}

type outage struct{}

func (outage) Error() string { return "our DNS servers do not answer any questions" }

// Outage reports that this installation failed, and not the host (see fault.IsOutage).
func (outage) Outage() bool { return true }

// explainDNS adds errNoDNS to an error of the look-up of a host's name if the DNS servers of this machine are silent.
// If a server responds to a question about the root zone, even with a refusal, the host's own name servers are to
// blame, and err is returned unchanged.
func (g *Guard) explainDNS(ctx context.Context, err error) error {
	e, ok := errors.AsType[*net.DNSError](err)
	if !ok || e.IsNotFound || ctx.Err() != nil {
		return err
	}
	silent, _, _ := g.probes.Do("", func() (any, error) {
		// The probe reads the machine's settings each time, as the look-ups do, because they may change.
		d, err := resolve.NewDNS(g.opt.DNSServers)
		return err == nil && !d.Responds(ctx), nil
	})
	if !silent.(bool) {
		return err
	}
	return fmt.Errorf("%w: %w", errNoDNS, err)
}

// resolver returns the resolver for the names of hosts, or nil for the machine's resolver.
func (o *Options) resolver() *net.Resolver {
	if len(o.DNSServers) == 0 {
		return nil
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, o.DNSServers[0])
	}}
}
