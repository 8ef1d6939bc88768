package node

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/sending/domains"
)

// newCertificates loads the operator's certificate, and prepares requests for others.
func (n *Node) newCertificates() (err error) {
	n.certs, err = certs.New(n.certificateOptions(n.Log))
	return err
}

func (n *Node) certificateOptions(log *slog.Logger) certs.Options {
	c := n.Config
	o := certs.Options{DB: n.DB, Keys: n.Keys, Log: log, CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile,
		Web: webHosts(c), Mail: mailHosts(c), Published: n.publishedTLSA}
	if !c.ACME {
		return o
	}
	o.ACME = &certs.ACME{Directory: c.ACMEDirectory, Email: c.ACMEEmail, CAFile: c.ACMECAFile,
		EABKeyID: c.ACMEEABKeyID, EABKey: string(c.ACMEEABKey), Challenges: c.ACMEChallenges, Hook: c.ACMEDNSHook}
	if c.ACMEDNSServer != "" {
		o.ACME.DNS = &certs.DNSUpdate{Server: c.ACMEDNSServer, Zone: c.ACMEDNSZone, KeyName: c.ACMEDNSKeyName,
			Algorithm: c.ACMEDNSKeyAlgorithm, Secret: string(c.ACMEDNSKeySecret), Addrs: n.DNS.Addrs}
	}
	if n.servesHTTPS() && n.Has("api") {
		o.Allowed = n.mayHaveCertificate
	}
	return o
}

// Certificates lists the certificates of this node's listeners and their problems. A command may call it, too.
func (n *Node) Certificates(ctx context.Context) ([]certs.Status, error) {
	if n.certs != nil {
		return n.certs.Certificates(ctx)
	}
	m, err := certs.New(n.certificateOptions(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Certificates(ctx)
}

// mayHaveCertificate reports whether a host of a customer may have a certificate. It may if it is or was a verified
// tracking host, or if it serves an MTA-STS policy.
func (n *Node) mayHaveCertificate(ctx context.Context, host string) (bool, error) {
	ok, err := n.Domains.IsTrackingHost(ctx, host)
	if err != nil || ok {
		return ok, err
	}
	return n.ServedPolicies.MayHaveCertificate(ctx, host)
}

// mailCertificate returns the certificate that SMTP clients get for a host. The error says why clients that verify
// certificates refuse it. Commands may call it, too.
func (n *Node) mailCertificate(ctx context.Context, host string) (*x509.Certificate, error) {
	var c *x509.Certificate
	err := n.managedCertificates(func(m *certs.Manager) (err error) {
		c, err = m.MailCertificate(ctx, host)
		return err
	})
	return c, err
}

// policyHost returns the host that serves MTA-STS policies, or "" if it has no name that other servers can look up.
func policyHost(c config.Config) string {
	_, host := publicHost(c)
	if host = strings.ToLower(host); !c.TrustDomains && !domains.IsPublicHost(host) {
		return ""
	}
	return host
}

// webHosts returns the installation's hosts that an HTTPS listener of this node serves. Clients that name no host get
// the certificate of the first one.
func webHosts(c config.Config) []string {
	if c.HTTPSListen == "" || !slices.Contains(c.Roles, "api") {
		return nil
	}
	all := append(trackingHosts(c), c.TrackingHost)
	for _, r := range c.Regions {
		all = append(all, r.TrackingHost)
	}
	return all
}

// mailHosts returns the hosts of this node's SMTP listeners, the one of EHLO first.
func mailHosts(c config.Config) []string {
	receives := slices.Contains(c.Roles, "receiving")
	if !receives && !slices.Contains(c.Roles, "submission") {
		return nil
	}
	all := []string{c.Hostname}
	if !receives {
		return all
	}
	all = append(all, c.InboundHost, c.BounceHost)
	for _, r := range c.Regions {
		all = append(all, r.InboundHost, r.BounceHost)
	}
	return all
}

// publicHost returns the host of public_url, with its port if there is one, and without a port.
func publicHost(c config.Config) (withPort, host string) {
	u, err := url.Parse(c.PublicURL)
	if err != nil {
		return "", ""
	}
	return u.Host, u.Hostname()
}
