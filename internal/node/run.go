package node

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
)

// Run runs all services until ctx ends, then stops the HTTP listeners and all services, and waits until they have
// stopped. The listeners serve HTTP without TLS; Run opens the others itself. A node for which ServesHTTP returns false
// is given no HTTP listeners.
func (n *Node) Run(ctx context.Context, listeners ...net.Listener) error {
	if err := errors.Join(n.listenInbound(), n.ListenSubmission(), n.ListenHTTPS(), n.ListenDNS(), n.listenMetrics()); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	defer n.runObservation(ctx)()
	n.serveSMTP(ctx, g)
	n.serveDNS(ctx, g)
	served, shut := context.WithCancel(context.WithoutCancel(ctx)) // served ends after the last request
	defer shut()
	g.Go(func() error { return n.RequestLog.Run(served) })
	g.Go(func() error { return n.Tracking.Run(served) })
	g.Go(func() error { return n.Users.Run(served) })
	g.Go(func() error { return n.Teams.Run(served) })
	g.Go(func() error { return n.Grants.Run(served) })
	n.serveHTTP(ctx, g, shut, listeners)
	g.Go(func() error { return n.certs.Run(ctx) })
	g.Go(func() error { return n.DB.Run(ctx) })
	g.Go(func() error { return n.followMoves(ctx) })
	g.Go(func() error { return n.watchDestinations(ctx) })
	g.Go(func() error { return n.Partitions().Run(ctx) })
	if n.Has("jobs") {
		g.Go(func() error { return n.rekey(ctx) })
		g.Go(func() error { return n.backfill(ctx) })
	}
	g.Go(func() error { return n.shares.Run(ctx) })
	g.Go(func() error { return n.EventStream.Run(ctx) })
	g.Go(func() error { return n.Emails.Index.Run(ctx) })
	g.Go(func() error { return n.Domains.Run(ctx) })
	g.Go(func() error { return n.Contacts.Run(ctx) })
	g.Go(func() error {
		err := n.runner.Run(ctx)
		n.Delivery.Run(ctx) // closes all idle connections, because ctx has ended
		n.storeCounts(ctx)
		return err
	})
	if sendsDMARCReports(n.Config) {
		g.Go(func() error { return n.DMARCReports.Run(ctx) })
	}
	if n.Has("delivery") {
		g.Go(func() error { return n.Delivery.Run(ctx) })
		g.Go(func() error { return n.TLSReports.Run(ctx) })
	}
	err := g.Wait()
	if to := n.movedTo.Load(); to != nil {
		return fmt.Errorf("this installation was moved to %s, and this node stopped afterwards: set database_url to that "+
			"database", *to)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return explain(n.Config, err)
}
