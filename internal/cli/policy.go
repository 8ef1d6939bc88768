package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

func policyCommand() command {
	return command{use: "policy", group: groupInspect, source: ofNode,
		short: "show or forget MTA-STS policies of recipients, and manage TLSA records of mail hosts",
		long: "Shows or forgets the MTA-STS policies of recipient domains that this installation has cached. A policy " +
			"applies until it expires, even if the domain has withdrawn it by mistake or broken it.",
		example: "postrider policy show example.com",
		sub: []command{
			{use: "show DOMAIN", short: "show the cached MTA-STS policy of a domain",
				long: "Shows the cached policy of a domain: its mode, the mail hosts that it allows, when it was fetched and " +
					"expires, and why the last fetch failed. It does not look up the domain's record.",
				example: "postrider policy show example.com",
				define:  beside("policy show", noFlags(showPolicy))},
			{use: "forget DOMAIN", short: "delete the cached MTA-STS policy of a domain",
				long: "Deletes the cached policy of a domain on all nodes. If the domain still publishes a policy, the next " +
					"email to the domain fetches it. Use this command if a wrong policy with a long lifetime keeps mail from the " +
					"domain, and its owner has corrected it.",
				example: "postrider policy forget example.com",
				define:  beside("policy forget", noFlags(forgetPolicy))},
			{use: "tlsa", short: "print the TLSA records (DANE) to publish for the hosts that receive mail",
				long: "Prints the TLSA records of the key in use and of the next key for each host that receives mail. It " +
					"also says whether the host's zone is signed (DNSSEC), and compares the records with those in the DNS. The " +
					"exit code is 1 if published records keep mail from a host.",
				example: "postrider policy tlsa",
				define:  beside("policy tlsa", noFlags(showTLSA))},
			{use: "next-key HOST", short: "start to use the next key of a mail host",
				long: "Starts the change of a mail host's key. Publish the TLSA record of the next key first, beside that of " +
					"the key in use. A node uses the next key after the record was published for two lifetimes (TTL). " +
					"Without TLSA records, or if the host's zone is not signed, a node waits for one lifetime. " +
					"Remove the former key's record afterwards.",
				example: "postrider policy next-key mx.example.com --ttl 1h",
				define:  beside("policy next-key", defineNextKey)},
		}}
}

// policyObject is a cached policy in JSON. If no policy could be fetched yet, the fields about the policy are null.
type policyObject struct {
	Domain    string         `json:"domain"`
	Mode      *string        `json:"mode"`
	MX        []string       `json:"mx"`
	MaxAge    *int64         `json:"max_age"` // seconds
	ID        *string        `json:"id"`
	FetchedAt *time.Time     `json:"fetched_at"`
	ExpiresAt *time.Time     `json:"expires_at"`
	Expired   bool           `json:"expired"`
	UsedAt    *time.Time     `json:"used_at"`
	RefreshAt *time.Time     `json:"refresh_at"`
	Failure   *failureObject `json:"failure"`
}

// failureObject describes the last fetch, if it failed. Type is a result type of RFC 8460.
type failureObject struct {
	At      *time.Time `json:"at"`
	ID      string     `json:"id"`
	Type    string     `json:"type"`
	Reason  string     `json:"reason"`
	RetryAt *time.Time `json:"retry_at"`
}

func showPolicy(ctx context.Context, e *env, n *node.Node, words []string) error {
	p, err := n.TLSPolicies.Show(ctx, words[0])
	if err != nil {
		return err
	}
	o := policyObject{Domain: p.Domain, MX: append([]string{}, p.Policy.MX...), ID: nilIfZero(p.ID),
		Mode: nilIfZero(string(p.Policy.Mode)), FetchedAt: moment(p.FetchedAt), ExpiresAt: moment(p.ExpiresAt),
		UsedAt: moment(p.UsedAt), RefreshAt: moment(p.RefreshAt)}
	if o.Mode != nil {
		o.MaxAge = new(int64(p.Policy.MaxAge / time.Second))
		o.Expired = !p.Valid(n.TLSPolicies.Now())
	}
	if p.FailedID != "" {
		o.Failure = &failureObject{At: moment(p.FailedAt), ID: p.FailedID, Type: string(p.Failure), Reason: p.Reason,
			RetryAt: moment(p.RetryAt)}
	}
	return e.print(o, func(w io.Writer) error { return writePolicy(w, &p, o.Expired) })
}

// writePolicy writes a cached policy as text.
func writePolicy(out io.Writer, p *tlspolicies.Entry, expired bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, printable(value)) }
	line("domain", p.Domain)
	if p.Unreadable {
		line("mode", "the stored policy is invalid; the next email fetches it again")
	} else if p.Policy.Mode == "" {
		line("mode", "no policy could be fetched yet")
	} else {
		line("mode", string(p.Policy.Mode))
		line("mail hosts", strings.Join(p.Policy.MX, " "))
		line("id", p.ID)
		line("fetched", clock(p.FetchedAt))
		line("expires", clock(p.ExpiresAt)+map[bool]string{true: " (it has expired)"}[expired])
	}
	line("last used", clock(p.UsedAt)+", or up to a day later")
	line("next refresh", clock(p.RefreshAt))
	if p.FailedID != "" {
		line("last failure", clock(p.FailedAt)+", id "+p.FailedID)
		line("", string(p.Failure)+": "+p.Reason)
		line("next try", clock(p.RetryAt)+", or as soon as the record has another id")
	}
	return w.Flush()
}

func forgetPolicy(ctx context.Context, e *env, n *node.Node, words []string) error {
	if err := n.TLSPolicies.Forget(ctx, words[0]); err != nil {
		return err
	}
	return e.done(struct {
		Domain    string `json:"domain"`
		Forgotten bool   `json:"forgotten"`
	}{words[0], true}, "forgot the policy of "+printable(words[0])+
		"; the next email to the domain fetches the policy that it publishes then")
}
