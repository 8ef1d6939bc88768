package node

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/outbound/receiving"
)

// newReceiving builds the service that handles received mail. Every node can show received mail, but only nodes with
// the role receiving accept incoming mail.
func (n *Node) newReceiving(resources.Hooks) (err error) {
	c := n.Config
	d := receiving.Deps{DB: n.DB, Quotas: n.Quotas, Recorder: n.Recorder, Blobs: n.Blobs, Keys: n.Keys,
		Domains: n.Domains, Reports: n.Reports, Emails: n.Emails, Teams: n.Teams, Log: n.Log, Forward: n.arrived}
	if n.metrics != nil {
		d.Observe = n.metrics.Received
	}
	if c.CheckAuthentication {
		auth := authres.New(c.Hostname, resolve.NetForm{Resolver: n.dns})
		auth.Facts, auth.Log = sendsDMARCReports(n.Config), n.Log
		auth.TrustSealers(c.ARCTrustedSealers...)
		d.Auth = auth
	}
	if sendsDMARCReports(n.Config) {
		d.CountDMARC = n.DMARCReports.Count
	}
	if c.Milter != "" {
		d.Milter, err = milter.New(milter.Config{Address: c.Milter, Hostname: c.Hostname, FailClosed: c.MilterRequired})
		if err != nil {
			return fmt.Errorf("read milter: %w", err)
		}
	}
	n.Receiving, err = receiving.New(receiving.Config{Hostname: c.Hostname, Hosts: ownHosts(c),
		ManagedDomain: c.ManagedDomain, OperatorTeam: c.OperatorTeam, Feedback: c.FeedbackAddresses,
		Providers: c.FeedbackProviders, PublicURL: c.PublicURL}, d)
	return err
}

// ownHosts returns this installation's host names. The operator receives mail sent to addresses such as postmaster at
// these hosts.
func ownHosts(c config.Config) []string {
	all := []string{c.Hostname, c.BounceHost, c.InboundHost}
	for _, r := range c.Regions {
		all = append(all, r.BounceHost, r.InboundHost)
	}
	for _, host := range []string{c.ManagedDomain, c.ReportHost} {
		if host != "" {
			all = append(all, host)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// publicHosts returns the host names from ownHosts and the public URL's host name.
func publicHosts(c config.Config) []string {
	all := ownHosts(c)
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		all = append(all, strings.ToLower(u.Hostname()))
	}
	return all
}

// listenInbound opens the port for incoming mail if this node has the role receiving.
func (n *Node) listenInbound() error {
	if !n.Has("receiving") || n.Port(PortInbound) != "" {
		return nil
	}
	return n.listenSMTP(PortInbound, "smtp_in_listen", n.Config.SMTPInListen,
		smtpserver.Config{MaxSize: int64(n.Config.SMTPInMaxSize),
			MaxConnections: n.Config.SMTPInConnections, MaxPerAddr: n.Config.SMTPInPerAddress}, n.Receiving)
}

// ListenInboundDev opens the port for incoming mail in development. If addr is "", ListenInboundDev first tries the
// configured address and then any free port, so that several nodes can run on one machine.
func (n *Node) ListenInboundDev(addr string) error {
	if addr != "" {
		n.Config.SMTPInListen = addr
	}
	err := n.listenInbound()
	if err != nil && addr == "" {
		n.Config.SMTPInListen = "127.0.0.1:0"
		err = n.listenInbound()
	}
	return err
}

// takenElsewhere returns the MX hosts that delivery must not connect to, because the mail would loop back to this node.
// If this node receives mail, the list is empty, because mail between its customers is delivered over SMTP to its own
// listener. On nodes that do not receive mail, the list is nil, and package delivery uses its default.
func (n *Node) takenElsewhere() []string {
	if n.Has("receiving") {
		return []string{}
	}
	return nil
}
