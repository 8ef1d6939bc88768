package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run runs all services until ctx ends, then stops the HTTP listeners and all services, and waits until they have
// stopped. A node without the role api is given no HTTP listeners.
func (n *Node) Run(ctx context.Context, listeners ...net.Listener) error {
	if err := errors.Join(n.listenInbound(), n.ListenSubmission()); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	n.serveSMTP(ctx, g)
	server := &http.Server{Handler: n.handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute,
		WriteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(n.Log.Handler(), slog.LevelDebug)}
	server.RegisterOnShutdown(n.EventStream.Close)
	server.RegisterOnShutdown(n.Imports.Close)
	server.RegisterOnShutdown(n.Outbox.Close)
	served, shut := context.WithCancel(context.WithoutCancel(ctx)) // served ends after the last request
	defer shut()
	g.Go(func() error { return n.RequestLog.Run(served) })
	g.Go(func() error { return n.Tracking.Run(served) })
	g.Go(func() error { return n.Users.Run(served) })
	g.Go(func() error { return n.Teams.Run(served) })
	g.Go(func() error { return n.Grants.Run(served) })
	for _, l := range listeners {
		g.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve HTTP: %w", err)
			}
			return nil
		})
	}
	if len(listeners) == 0 {
		context.AfterFunc(ctx, shut)
	} else {
		g.Go(func() error {
			defer shut()
			<-ctx.Done()
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.Config.ShutdownGrace)
			defer cancel()
			err := server.Shutdown(stop)
			if errors.Is(err, context.DeadlineExceeded) {
				n.Log.Warn("the grace period is over; unfinished requests were cut off", "grace", n.Config.ShutdownGrace)
				err = server.Close()
			}
			return err
		})
	}
	g.Go(func() error { return n.DB.Run(ctx) })
	g.Go(func() error { return n.Partitions().Run(ctx) })
	g.Go(func() error { return n.shares.Run(ctx) })
	g.Go(func() error { return n.EventStream.Run(ctx) })
	g.Go(func() error { return n.Emails.Index.Run(ctx) })
	g.Go(func() error { return n.Domains.Run(ctx) })
	g.Go(func() error { return n.Contacts.Run(ctx) })
	g.Go(func() error {
		err := n.runner.Run(ctx)
		n.Delivery.Run(ctx) // closes all idle connections, because ctx has ended
		return err
	})
	if n.Has("delivery") {
		g.Go(func() error { return n.Delivery.Run(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
