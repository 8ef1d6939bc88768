package node

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/front/dashboard"
	"github.com/postrider/postrider/internal/front/submission"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// Names of the SMTP listeners, used in logs and as the argument of Port.
const (
	PortInbound = "smtp_in"
	PortSubmit  = "smtp_submit"
	PortSubmits = "smtp_submits"
)

// mailPort is an open SMTP listener that is not being served yet.
type mailPort struct {
	name   string
	l      net.Listener
	server *smtpserver.Server
}

// listenSMTP opens an SMTP listener that Run will serve. Error messages give setting as the name of the configuration
// setting that contains addr. The host name, TLS configuration, trusted proxies and grace period in c are set by
// listenSMTP.
func (n *Node) listenSMTP(name, setting, addr string, c smtpserver.Config, h smtpserver.Handler) error {
	c.TLS = n.certs.SMTP()
	c.Hostname, c.ProxyFrom, c.Grace = n.Config.Hostname, n.Config.SMTPProxyFrom, n.Config.ShutdownGrace
	l, err := Listen(setting, addr)
	if err != nil {
		return err
	}
	n.portsMu.Lock()
	defer n.portsMu.Unlock()
	n.ports = append(n.ports, mailPort{name, l, smtpserver.New(c, h, n.Log.With("listener", name))})
	n.Log.Info("listening", name, l.Addr().String())
	return nil
}

// ListenSubmission opens the submission ports if this node has the role submission.
func (n *Node) ListenSubmission() error {
	c := n.Config
	if !n.Has("submission") || n.Port(PortSubmit) != "" || n.Port(PortSubmits) != "" {
		return nil
	}
	handler, err := submission.New(submission.Config{Hostname: c.Hostname, RateLimit: c.RateLimit,
		MaxSize: int64(c.AttachmentMax),
		Spool:   filepath.Join(c.DataDir, "spool")}, submission.Deps{Teams: n.Teams, Emails: n.Emails, Limits: n.limits})
	if err != nil {
		return err
	}
	o := smtpserver.Config{Auth: smtpserver.AuthOverTLS, MaxSize: int64(c.AttachmentMax),
		MaxRecipients:  submission.MaxRecipients,
		MaxConnections: c.SMTPSubmitConnections, MaxPerAddr: c.SMTPSubmitPerAddress}
	if c.SMTPSubmitsListen != "" {
		implicit := o
		implicit.Implicit = true
		if err := n.listenSMTP(PortSubmits, "smtp_submits_listen", c.SMTPSubmitsListen, implicit, handler); err != nil {
			return err
		}
	}
	if c.SMTPSubmitListen == "" {
		return nil
	}
	if c.SMTPSubmitClear && isLoopback(c.SMTPSubmitListen) {
		o.Auth = smtpserver.AuthInClear
	}
	return n.listenSMTP(PortSubmit, "smtp_submit_listen", c.SMTPSubmitListen, o, handler)
}

// ListenSubmissionDev opens the submission port in development. If addr is "", ListenSubmissionDev first tries the
// configured address and then any free port.
func (n *Node) ListenSubmissionDev(addr string) error {
	if addr != "" {
		n.Config.SMTPSubmitListen = addr
	}
	err := n.ListenSubmission()
	if err != nil && addr == "" {
		n.Config.SMTPSubmitListen = "127.0.0.1:0"
		err = n.ListenSubmission()
	}
	return err
}

// submissionPorts returns the ports at which apps submit emails: those that this node has opened, and otherwise those
// of the configuration, which the installation's other nodes share.
func (n *Node) submissionPorts() []dashboard.SubmissionPort {
	var all []dashboard.SubmissionPort
	for _, x := range []struct {
		name, configured string
		implicit         bool
	}{{PortSubmit, n.Config.SMTPSubmitListen, false}, {PortSubmits, n.Config.SMTPSubmitsListen, true}} {
		addr := cmp.Or(n.Port(x.name), x.configured)
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		p := dashboard.SubmissionPort{Host: n.Config.Hostname, Port: port, Implicit: x.implicit}
		if isLoopback(addr) {
			p.Host, p.Clear = host, n.Config.SMTPSubmitClear && !x.implicit
		}
		all = append(all, p)
	}
	return all
}

// openPorts returns the SMTP listeners that are open. Goroutines may call it while Run opens listeners.
func (n *Node) openPorts() []mailPort {
	n.portsMu.Lock()
	defer n.portsMu.Unlock()
	return n.ports
}

// Port returns the address of the SMTP listener with the given name, or "" if the listener is not open.
func (n *Node) Port(name string) string {
	ports := n.openPorts()
	i := slices.IndexFunc(ports, func(p mailPort) bool { return p.name == name })
	if i < 0 {
		return ""
	}
	return ports[i].l.Addr().String()
}

// serveSMTP serves every SMTP listener until ctx ends.
func (n *Node) serveSMTP(ctx context.Context, g *errgroup.Group) {
	for _, p := range n.openPorts() {
		g.Go(func() error { return p.server.Serve(ctx, p.l) })
	}
}

// isLoopback reports whether a listener's address is reachable only from this machine.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, errIP := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || errIP == nil && ip.IsLoopback())
}

// closePorts closes the listeners that were never served. Listeners that were served have already been closed.
func (n *Node) closePorts() {
	n.closeDNS()
	if n.https != nil {
		if err := n.https.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			n.Log.Warn("could not close the HTTPS listener", "error", err)
		}
	}
	for _, p := range n.openPorts() {
		if err := p.l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			n.Log.Warn("could not close an SMTP listener", "listener", p.name, "error", err)
		}
	}
}
