package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
)

// hsts makes browsers use HTTPS for a host for a year (RFC 6797).
const hsts = "max-age=31536000"

// servesHTTPS reports whether this node has an HTTPS listener.
func (n *Node) servesHTTPS() bool { return n.Config.HTTPSListen != "" && n.ServesHTTP() }

// ServesHTTP reports whether this node needs the listeners for HTTP. A node without the role api needs them to answer
// the authority's challenges for the hosts of its SMTP listeners, unless DNS answers them.
func (n *Node) ServesHTTP() bool {
	c := n.Config
	return n.Has("api") || c.ACME && c.ACMEDNSServer == "" && c.ACMEDNSHook == "" && len(mailHosts(c)) > 0
}

// ListenHTTPS opens the HTTPS listener, which Run serves, if this node has one.
func (n *Node) ListenHTTPS() error {
	if !n.servesHTTPS() {
		return nil
	}
	return n.openOnce(&n.https, "https", "https_listen", n.Config.HTTPSListen)
}

// HTTPSAddr returns the address of the HTTPS listener, or "" if it is not open.
func (n *Node) HTTPSAddr() string { return addressOfListener(n.https) }

// serveHTTP serves the given HTTP listeners, and the HTTPS listener, until ctx ends. Then it waits for requests in
// progress, at most for the grace period, and calls shut.
func (n *Node) serveHTTP(ctx context.Context, g *errgroup.Group, shut func(), listeners []net.Listener) {
	plain := n.newServer(n.plainHandler())
	plain.RegisterOnShutdown(n.EventStream.Close)
	plain.RegisterOnShutdown(n.Imports.Close)
	plain.RegisterOnShutdown(n.Outbox.Close)
	servers := []*http.Server{plain}
	serve := func(what string, f func() error) {
		g.Go(func() error {
			if err := f(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", what, err)
			}
			return nil
		})
	}
	for _, l := range listeners {
		serve("HTTP", func() error { return plain.Serve(l) })
	}
	if n.https != nil {
		secure := n.newServer(n.secureHandler())
		secure.TLSConfig = n.certs.HTTPS()
		servers = append(servers, secure)
		serve("HTTPS", func() error { return secure.ServeTLS(n.https, "", "") })
	}
	if n.https == nil && len(listeners) == 0 {
		context.AfterFunc(ctx, shut)
		return
	}
	g.Go(func() error {
		defer shut()
		<-ctx.Done()
		return n.shutDown(ctx, servers)
	})
}

// shutDown stops all servers at the same time.
func (n *Node) shutDown(ctx context.Context, servers []*http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.Config.ShutdownGrace)
	defer cancel()
	var g errgroup.Group
	for _, s := range servers {
		g.Go(func() error {
			err := s.Shutdown(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				n.Log.Warn("the grace period is over; unfinished requests were cut off", "grace", n.Config.ShutdownGrace)
				err = s.Close()
			}
			return err
		})
	}
	return g.Wait()
}

func (n *Node) newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute,
		WriteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(n.Log.Handler(), slog.LevelDebug), ConnState: n.countConnection}
}

// secureHandler returns the handler of the HTTPS listener.
func (n *Node) secureHandler() http.Handler {
	h, own := n.answering(), webHosts(n.Config)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Customers decide themselves how browsers treat their hosts.
		if slices.Contains(own, strings.ToLower(bareHost(r.Host))) {
			w.Header().Set("Strict-Transport-Security", hsts)
		}
		h.ServeHTTP(w, r)
	})
}

// plainHandler returns the handler of the listeners without TLS.
func (n *Node) plainHandler() http.Handler {
	h := n.answering()
	if n.servesHTTPS() {
		h = n.onlyEncrypted(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.certs.ServeChallenge(w, r) {
			h.ServeHTTP(w, r)
		}
	})
}

// answering returns the handler for all requests to this node. A node without the role api only says how it is.
func (n *Node) answering() http.Handler {
	if n.Has("api") {
		return n.unlessPaused(n.handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isHealth(r.URL.Path) {
			wire.WriteError(w, fault.New(fault.NotFound, "", "This node does not have the role api."))
			return
		}
		n.handler.ServeHTTP(w, r)
	})
}

func isHealth(path string) bool { return slices.Contains([]string{"/healthz", "/readyz"}, path) }
