package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/dashboard"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/certs"
)

const (
	tlsaEvery = time.Hour       // interval of the self-check
	tlsaTime  = 4 * time.Second // time limit of the look-ups; a check of /readyz may take five
)

// These are the values of MailTLSA.Zone. They say whether senders use the TLSA records of a host.
const (
	ZoneSigned   = "signed"
	ZoneUnsigned = "unsigned" // senders ignore the records
	ZoneUnknown  = "unknown"  // the DNS does not answer, or no DNS server of this node validates signatures
)

// MailTLSA holds the comparison of the key of a host that receives mail with its TLSA records.
type MailTLSA struct {
	certs.MailKey
	Zone      string
	Published []dane.Record
	Problem   string // why senders that obey the records send no mail; "" if no problem is known
}

// receivingHosts returns the hosts of the installation that receive mail at port 25.
func receivingHosts(c config.Config) (all []string) {
	hosts := []string{c.InboundHost, c.BounceHost}
	for _, r := range c.Regions {
		hosts = append(hosts, r.InboundHost, r.BounceHost)
	}
	for _, host := range hosts {
		if host != "" && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// managedCertificates calls f with the certificate manager of this node. A command has none, so managedCertificates
// opens one for the call.
func (n *Node) managedCertificates(f func(m *certs.Manager) error) error {
	if n.certs != nil {
		return f(n.certs)
	}
	m, err := certs.New(n.certificateOptions(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer m.Close()
	return f(m)
}

// ChangeMailKey starts the change of the key of a mail host, or cancels it.
func (n *Node) ChangeMailKey(ctx context.Context, host string, ttl time.Duration, cancel bool) error {
	audit.Target(ctx, host)
	return n.managedCertificates(func(m *certs.Manager) error {
		if cancel {
			return m.CancelKeyChange(ctx, host)
		}
		return m.ChangeKey(ctx, host, ttl)
	})
}

// MailTLSA compares the keys of the hosts that receive mail with their TLSA records. A command may call it, too.
func (n *Node) MailTLSA(ctx context.Context) ([]MailTLSA, error) { return n.mailTLSA(ctx, tlsaTime) }

// mailTLSA is [Node.MailTLSA] with a time limit for all look-ups together.
func (n *Node) mailTLSA(ctx context.Context, limit time.Duration) (all []MailTLSA, err error) {
	var keys []certs.MailKey
	err = n.managedCertificates(func(m *certs.Manager) error {
		keys, err = m.MailKeys(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	hosts, now := receivingHosts(n.Config), time.Now()
	for _, k := range keys {
		if !slices.Contains(hosts, k.Host) {
			continue
		}
		x := MailTLSA{MailKey: k}
		var found certs.Published
		found, x.Zone, _ = n.lookUpTLSA(ctx, k.Host) // without an answer, the zone is unknown
		x.Published = found.Records
		x.Problem = tlsaProblem(&x, now)
		all = append(all, x)
	}
	return all, nil
}

// lookUpTLSA returns the TLSA records of a mail host with their lifetime, and whether its zone is signed. An error means
// that the records are unknown.
func (n *Node) lookUpTLSA(ctx context.Context, host string) (p certs.Published, zone string, err error) {
	dns, ok := n.DNS.(resolve.Secure)
	if !ok {
		return p, ZoneUnknown, nil
	}
	a, err := dns.TLSA(ctx, "_25._tcp."+host)
	none := errors.Is(err, resolve.ErrNotFound)
	p.Records, p.TTL = a.Records, a.TTL
	switch {
	case err != nil && !none:
		return p, ZoneUnknown, err
	case err == nil && a.Secure, none && resolve.IsSecure(err):
		return p, ZoneSigned, nil
	case !n.validates(ctx):
		return p, ZoneUnknown, nil
	}
	p.Useless = true
	return p, ZoneUnsigned, nil
}

// validates reports whether a DNS server of this node validates signatures.
func (n *Node) validates(ctx context.Context) bool {
	v, ok := n.DNS.(validator)
	if !ok {
		_, fake := n.DNS.(resolve.Fake)
		return fake
	}
	works, _ := v.Believes(ctx)
	return v.MayBelieve() && works
}

// publishedTLSA returns the published TLSA records of a mail host. Changes of its key wait for them.
func (n *Node) publishedTLSA(ctx context.Context, host string) (certs.Published, error) {
	ctx, cancel := context.WithTimeout(ctx, tlsaTime)
	defer cancel()
	p, _, err := n.lookUpTLSA(ctx, host)
	return p, err
}

// tlsaProblem returns why senders that obey the TLSA records of a host send it no mail, or "".
func tlsaProblem(x *MailTLSA, now time.Time) string {
	set := dane.Parse(x.Published)
	if x.Zone != ZoneSigned || !set.Usable() {
		return ""
	}
	if len(x.Chain) == 0 {
		return x.Host + " has TLSA records but no certificate of its own, so senders that obey them send it no mail"
	}
	if _, err := set.Verify(tls.ConnectionState{PeerCertificates: x.Chain}, []string{x.Host}, now); err != nil {
		return "no TLSA record of " + x.Host + " matches its certificate, so senders that obey them send it no mail"
	}
	return ""
}

// tlsaFacts returns the comparison for the command doctor.
func (n *Node) tlsaFacts(ctx context.Context) (facts []doctor.TLSA, err error) {
	all, err := n.MailTLSA(ctx)
	for _, x := range all {
		facts = append(facts, doctor.TLSA{Host: x.Host, Zone: x.Zone, Published: len(x.Published), Problem: x.Problem})
	}
	return facts, err
}

// mailHostsTime limits the look-ups for a page. Later look-ups find the answers in the cache.
const mailHostsTime = time.Second

// mailHosts returns the hosts that receive mail for the settings page of the operator's team, or none for other teams.
func (n *Node) mailHosts(ctx context.Context, teamID string) (hosts []dashboard.MailHost, err error) {
	team, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
	if err != nil || team.ID != teamID {
		return nil, err
	}
	all, err := n.mailTLSA(ctx, mailHostsTime)
	for _, x := range all {
		h := dashboard.MailHost{Host: x.Host, Published: len(x.Published), Problem: x.Problem,
			Signed: x.Zone == ZoneSigned, Unsigned: x.Zone == ZoneUnsigned}
		if x.Source != "" {
			h.InUse, h.Next = x.InUse, x.Next
		}
		hosts = append(hosts, h)
	}
	return hosts, err
}

// checksTLSA reports whether this node compares TLSA records with its certificates.
func (n *Node) checksTLSA() bool { return n.Has("receiving") && !n.Config.TrustDomains }

// checkTLSA is a check of /readyz.
func (n *Node) checkTLSA(ctx context.Context) error {
	all, err := n.MailTLSA(ctx)
	switch {
	case err == nil:
	case fault.KindOf(err) == fault.Unavailable || ctx.Err() != nil:
		return nil // other checks report that the database is unavailable
	default:
		n.Log.Error("TLSA records cannot be compared with the keys of the mail hosts", "error", err)
		return errors.New("the keys of the mail hosts cannot be read; the log of the node says why")
	}
	var problems []string
	for _, x := range all {
		if x.Problem != "" {
			problems = append(problems, x.Problem)
		}
	}
	if len(problems) == 0 {
		n.tlsaProblem.Store(new(""))
		return nil
	}
	text := strings.Join(problems, "; ")
	if old := n.tlsaProblem.Swap(&text); old == nil || *old != text {
		n.Log.Error("TLSA records do not match the certificate; publish the records of `postrider policy tlsa`", "problem",
			text)
	}
	return errors.New(text)
}

// tlsaCondition returns the condition of the alarm about TLSA records of hosts that receive mail. Before the first
// check, the condition is neither good nor bad.
func (n *Node) tlsaCondition() alarms.Condition {
	node, text := n.Config.Hostname, "The TLSA records match the certificates of "+n.Config.Hostname+"."
	problem := n.tlsaProblem.Load()
	bad := problem != nil && *problem != ""
	if bad {
		text = fmt.Sprintf("On %s, %s. Publish the records that `postrider policy tlsa` prints, or go back to the former "+
			"certificate until they are published.", node, *problem)
	}
	return alarms.Condition{Cause: "tlsa", Node: node, Bad: bad, Good: problem != nil && !bad,
		Title: "TLSA records do not match the certificate", Text: text}
}
