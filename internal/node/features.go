package node

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Feature is a feature that settings can turn off.
type Feature struct {
	Name string
	On   bool
	// Effect says what does not happen while the feature is off, and which setting turns it on.
	Effect string
}

// Features lists the features that settings of this node turn on or off, in the order in which an operator wants to
// read them. A feature that another node of the same database provides counts as off. Features that only matter to a
// role are listed on nodes with this role.
func Features(c config.Config) []Feature {
	var all []Feature
	add := func(name string, on bool, effect string) { all = append(all, Feature{name, on, effect}) }
	has := func(role string) bool { return slices.Contains(c.Roles, role) }

	add("api", has("api"), "This node serves neither the API nor the dashboard. Add api to roles.")
	if has("api") {
		add("https", c.HTTPSListen != "" || strings.HasPrefix(c.PublicURL, "https://"), "Keys and passwords cross the "+
			"network in clear. Set https_listen and acme or tls_cert_file, or set public_url if a reverse proxy serves HTTPS.")
	}
	add("delivery", has("delivery"), "This node sends no email. Add delivery to roles.")
	add("jobs", has("jobs"), "This node calls no webhooks, verifies no domains and deletes no old data. Add jobs to roles.")
	add("receiving", has("receiving"), "This node receives no mail: bounces and complaints are lost unless another node "+
		"receives them. Add receiving to roles.")
	add("submission", has("submission"), "Programs cannot send over SMTP. Add submission to roles.")
	add("domains set up by one DNS record", c.DNSZone != "" && len(c.DNSNames) > 1, "Customers set each DNS record of "+
		"their domains themselves. Set dns_names, dns_addresses and dns_zone, and add dns to the roles of two nodes.")
	add("domains", !checksHosts(c) || domains.IsPublicHost(c.BounceHost) && domains.IsPublicHost(c.SPFInclude),
		"No domain that sends can be added, because its DNS records would lead to "+unknownHosts(c)+", which other servers "+
			"cannot look up. Set hostname to a full host name, such as mail.example.com, and also bounce_host and "+
			"spf_include if they are set.")
	add("notices", c.NoticeFrom != "", "People cannot be invited or reset a password by email, and teams are not told of "+
		"failing webhooks. Set notice_from.")
	add("public address", !isLocal(c.PublicURL), "Links in emails and invitations lead to "+c.PublicURL+
		", which only this machine can open. Set public_url.")
	add("metrics", c.MetricsListen != "", "Prometheus gets no figures from this node. Set metrics_listen.")
	add("alarms", len(c.AlertTo) > 0, "The operator is not told if emails wait, a disk fills up, a certificate expires "+
		"or a backup is missing. Set alert_to, or use the alert rules for Prometheus.")
	add("single sign-on", c.OIDCIssuer != "", "People sign in by password or passkey only. Set oidc_issuer.")
	add("retention of sent emails", c.EmailRetention > 0 || c.BodyRetention > 0, "Sent emails are kept with their texts "+
		"unless a team sets a time. Set email_retention or body_retention.")
	if has("receiving") || has("submission") {
		add("certificate for SMTP", c.TLSCertFile != "" || c.ACME, "SMTP listeners use a self-signed certificate, which "+
			"mail programs refuse. Set acme, or tls_cert_file and tls_key_file.")
	}
	if has("receiving") {
		add("feedback loops", len(c.FeedbackAddresses) > 0, "Complaints that mailbox providers report are not counted, "+
			"unless they quote a return path. Set feedback_address.")
		add("content filter", c.Milter != "", "Received mail is not checked for spam and viruses. Set milter.")
		add("checks of received mail", c.CheckAuthentication, "Received emails show no results of SPF, DKIM and DMARC. Set "+
			"check_authentication.")
		add("retention of received emails", c.ReceivedRetention > 0, "Received emails are kept unless a team sets a "+
			"time. Set received_retention.")
	}
	return all
}

// checksHosts reports whether domains are refused if their records would name hosts that other servers cannot look up.
// A relay has records of its own.
func checksHosts(c config.Config) bool { return c.Transport == "direct" && !c.TrustDomains }

// unknownHosts lists the hosts of the records of domains that other servers cannot look up.
func unknownHosts(c config.Config) string {
	var all []string
	for _, host := range []string{c.BounceHost, c.SPFInclude} {
		if !domains.IsPublicHost(host) && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return strings.Join(all, " and ")
}

// isLocal reports whether a URL leads to the reader's own machine.
func isLocal(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified()) || u.Hostname() == "localhost" ||
		strings.HasSuffix(u.Hostname(), ".localhost")
}
