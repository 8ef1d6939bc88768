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
// read them. A feature that another node of the same database provides counts as off.
func Features(c config.Config) []Feature {
	role := func(name, effect string) Feature {
		return Feature{name, slices.Contains(c.Roles, name), effect}
	}
	all := []Feature{
		role("api", "This node serves neither the API nor the dashboard. Add api to roles."),
		role("delivery", "This node sends no email. Add delivery to roles."),
		role("jobs", "This node calls no webhooks, verifies no domains and deletes no old data. Add jobs to roles."),
		role("receiving", "This node receives no mail: bounces and complaints are lost unless another node receives them. "+
			"Add receiving to roles."),
		role("submission", "Programs cannot send over SMTP. Add submission to roles."),
		{"domains", !checksHosts(c) || domains.IsPublicHost(c.BounceHost) && domains.IsPublicHost(c.SPFInclude),
			"No domain that sends can be added, because its DNS records would name the hosts " + c.BounceHost + " and " +
				c.SPFInclude + ", and other servers cannot look up both. Set hostname to a full host name, such as " +
				"mail.example.com, and also bounce_host and spf_include if they are set."},
		{"notices", c.NoticeFrom != "", "People cannot be invited or reset a password by email, and teams are not told of " +
			"failing webhooks. Set notice_from."},
		{"public address", !isLocal(c.PublicURL), "Links in emails and invitations lead to " +
			c.PublicURL + ", which only this machine can open. Set public_url."},
		{"certificate for SMTP", c.TLSCertFile != "", "SMTP listeners use a self-signed certificate, which mail " +
			"programs refuse. Set tls_cert_file and tls_key_file."},
		{"feedback loops", len(c.FeedbackAddresses) > 0, "Complaints that mailbox providers report are not counted, unless " +
			"they quote a return path. Set feedback_address."},
		{"content filter", c.Milter != "", "Received mail is not checked for spam and viruses. Set milter."},
		{"checks of received mail", c.CheckAuthentication, "Received emails show no results of SPF, DKIM and DMARC. Set " +
			"check_authentication."},
		{"single sign-on", c.OIDCIssuer != "", "People sign in by password or passkey only. Set oidc_issuer."},
		{"retention of sent emails", c.EmailRetention > 0 || c.BodyRetention > 0, "Sent emails are kept with their texts " +
			"until a team has a shorter time. Set email_retention or body_retention."},
		{"retention of received emails", c.ReceivedRetention > 0, "Received emails are kept until a team has a shorter " +
			"time. Set received_retention."},
	}
	mail := slices.Contains(c.Roles, "receiving") || slices.Contains(c.Roles, "submission")
	incoming := slices.Contains(c.Roles, "receiving")
	return slices.DeleteFunc(all, func(f Feature) bool {
		switch f.Name {
		case "certificate for SMTP":
			return !mail
		case "feedback loops", "content filter", "checks of received mail", "retention of received emails":
			return !incoming
		}
		return false
	})
}

// checksHosts reports whether domains are refused if their records would name hosts that other servers cannot look up. A
// relay has records of its own.
func checksHosts(c config.Config) bool { return c.Transport == "direct" && !c.TrustDomains }

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
