package cli

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
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// newReceiving builds the service for received mail: every node shows it, and those with the role receiving accept
// it.
func (n *node) newReceiving(recorder *events.Recorder, keys *keyring.Keyring,
	dns resolve.Resolver) (*receiving.Service, error) {
	c := n.c
	p := receiving.Parts{DB: n.db, Volume: n.volume, Recorder: recorder, Blobs: n.blobs, Keys: keys, Domains: n.domains, Emails: n.emails,
		Teams: n.teams, Log: n.log}
	if c.CheckAuthentication {
		p.Auth = authres.New(c.Hostname, resolve.NetForm{Resolver: dns})
	}
	if c.Milter != "" {
		var err error
		p.Milter, err = milter.New(milter.Config{Address: c.Milter, Hostname: c.Hostname, FailClosed: c.MilterRequired})
		if err != nil {
			return nil, fmt.Errorf("read milter: %w", err)
		}
	}
	return receiving.New(receiving.Config{Hostname: c.Hostname, Hosts: ownHosts(c), ManagedDomain: c.ManagedDomain,
		OperatorTeam: c.OperatorTeam, Feedback: c.FeedbackAddresses, Providers: c.FeedbackProviders, PublicURL: c.PublicURL},
		p), nil
}

// ownHosts returns the names of this installation's own hosts, at which its operator has addresses.
func ownHosts(c config.Config) []string {
	all := []string{c.Hostname, c.BounceHost, c.InboundHost}
	for _, r := range c.Regions {
		all = append(all, r.BounceHost, r.InboundHost)
	}
	if c.ManagedDomain != "" {
		all = append(all, c.ManagedDomain)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// publicHosts returns ownHosts and the host of the public URL.
func publicHosts(c config.Config) []string {
	all := ownHosts(c)
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		all = append(all, strings.ToLower(u.Hostname()))
	}
	return all
}

// listenInbound opens the port for incoming mail, if this node has the role for it.
func (n *node) listenInbound() error {
	if !n.has("receiving") || n.port(portInbound) != "" {
		return nil
	}
	return n.listenSMTP(portInbound, "smtp_in_listen", n.c.SMTPInListen,
		smtpserver.Config{MaxSize: int64(n.c.SMTPInMaxSize),
			MaxConnections: n.c.SMTPInConnections, MaxPerAddr: n.c.SMTPInPerAddress}, n.receiving)
}

// listenInboundDev opens the port for development: the requested one, or else the usual one, or else any, so that
// several programs can run.
func (n *node) listenInboundDev(addr string) error {
	if addr != "" {
		n.c.SMTPInListen = addr
	}
	err := n.listenInbound()
	if err != nil && addr == "" {
		n.c.SMTPInListen = "127.0.0.1:0"
		err = n.listenInbound()
	}
	return err
}

// takenElsewhere returns the MX hosts that delivery must not connect to because mail would come back here. It returns
// none if this node receives mail, so that mail from one customer to another takes the normal way; nil leaves the
// choice to delivery.
func (n *node) takenElsewhere() []string {
	if n.has("receiving") {
		return []string{}
	}
	return nil
}
