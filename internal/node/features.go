package node

import (
	"cmp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/config"
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
		{"domains", c.Transport != "direct" || c.TrustDomains || strings.Contains(c.Hostname, ".") ||
			strings.Contains(c.SPFInclude, ".") && strings.Contains(c.BounceHost, "."),
			"No domain can be added, because its DNS records would name the host " + c.Hostname + ", which other servers " +
				"cannot look up. Set hostname to a full host name, such as mail.example.com."},
		{"notices", c.NoticeFrom != "", "People cannot be invited or reset a password by email, and teams are not told of " +
			"failing webhooks. Set notice_from."},
		{"public address", !strings.Contains(c.PublicURL, "://localhost"), "Links in emails and invitations lead to " +
			c.PublicURL + ", which only this machine can open. Set public_url."},
		{"certificate for SMTP", c.TLSCertFile != "", "SMTP listeners use a certificate that nobody has signed, which mail " +
			"programs refuse. Set tls_cert_file and tls_key_file."},
		{"feedback loops", len(c.FeedbackAddresses) > 0, "Complaints that mailbox providers report are not counted, unless " +
			"they quote a return path. Set feedback_address."},
		{"content filter", c.Milter != "", "Received mail is not checked for spam and viruses. Set milter."},
		{"checks of received mail", c.CheckAuthentication, "Received emails show no results of SPF, DKIM and DMARC. Set " +
			"check_authentication."},
		{"single sign-on", c.OIDCIssuer != "", "People sign in by password or passkey only. Set oidc_issuer."},
		{"retention", cmp.Or(c.EmailRetention, c.BodyRetention, c.ReceivedRetention) > 0, "Emails are kept forever. Set " +
			"email_retention, body_retention or received_retention."},
	}
	mail := slices.Contains(c.Roles, "receiving") || slices.Contains(c.Roles, "submission")
	incoming := slices.Contains(c.Roles, "receiving")
	return slices.DeleteFunc(all, func(f Feature) bool {
		switch f.Name {
		case "certificate for SMTP":
			return !mail
		case "feedback loops", "content filter", "checks of received mail":
			return !incoming
		}
		return false
	})
}
