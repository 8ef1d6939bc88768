package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/evidence"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// demand is what a connection to a mail host must prove before it carries a message. The plan decides it once for each
// hop. Dialing, the pool of connections and the evidence of the attempt read it, and nothing decides a second time.
type demand struct {
	mode smtpclient.TLSMode
	rule evidence.Rule

	// With TLSDANE, the certificate must match these TLSA records, or be issued by their authority for one of the
	// names. The first name is the TLSA base name.
	dane  *dane.Set
	names []string

	to *security // of the recipient domain, for counting sessions; nil if they are not counted
}

// proof returns what a connection with the demand has verified beyond its TLS mode, or "" if the mode verifies no
// certificate. Two connections to an address with the same mode and proof are equal for every message. The parameter
// host is the host's name.
func (d *demand) proof(host string) string {
	switch d.mode {
	case smtpclient.TLSRequired, smtpclient.TLSImplicit:
		return host
	case smtpclient.TLSDANE:
		return "dane " + d.dane.Digest(d.names...) + " " + d.names[0]
	}
	return ""
}

// endedByUs reports whether this node ended a connection because the host offers no TLS or its certificate proves too
// little. Such an end says nothing about how many conversations the host can have: other domains may have the same
// host, and their mail needs no proof.
func endedByUs(e *smtpclient.Error) bool {
	return errors.Is(e, smtpclient.ErrNoTLS) || e.TLS.Problem != ""
}

// security is what is known about the protection of a recipient domain before its hosts are looked at.
type security struct {
	domain string
	name   string // the domain after aliases
	signed bool   // whether DNSSEC authenticated the MX records or their absence
	policy mtasts.Policy
	failed mtasts.Result // why the policy of the domain could not be had; "" if it could, or the domain has none
}

// errNotInPolicy means that the MTA-STS policy of the recipient domain does not name a host. Mail waits until the owner
// of the domain has mended the policy or the MX records.
var errNotInPolicy = errors.New("the MTA-STS policy of the domain does not name its mail host")

// mailHosts returns the mail hosts of a domain, and whether DNSSEC protects the way to them.
func (s *Service) mailHosts(ctx context.Context, domain string) (hosts []resolve.Host, by security, err error) {
	by = security{domain: domain, name: domain}
	if s.dnssec == nil {
		hosts, err = resolve.Hosts(ctx, s.p.DNS, domain)
	} else {
		var found resolve.MailHosts
		found, err = resolve.HostsSecure(ctx, s.dnssec, domain)
		hosts, by.signed = found.Hosts, found.Secure
		if found.Name != "" {
			by.name = found.Name
		}
	}
	return hosts, by, err
}

// findPolicy sets the MTA-STS policy of the recipient domain. If last returns true, the email bounces after this try,
// so the policy is read anew (RFC 8461 section 5.1).
func (s *Service) findPolicy(ctx context.Context, by *security, last func() bool) (err error) {
	var st tlspolicies.State
	switch {
	case s.p.TLSPolicies == nil:
		return nil
	case last():
		by.policy, st, err = s.p.TLSPolicies.Renew(ctx, by.domain)
	default:
		by.policy, st, err = s.p.TLSPolicies.For(ctx, by.domain)
	}
	by.failed = st.Result
	return err
}

// addresses returns the addresses of a host. They are looked up securely only if DANE may apply to the host.
func (s *Service) addresses(ctx context.Context, host string, by security) (resolve.Answer[netip.Addr], error) {
	if by.signed {
		return s.dnssec.AddrsSecure(ctx, host)
	}
	addrs, err := s.p.DNS.Addrs(ctx, host)
	return resolve.Answer[netip.Addr]{Records: addrs, Name: host}, err
}

// demandOf decides what a connection to a host must prove. The parameter tls is the sending domain's TLS setting.
//
// Usable TLSA records alone decide, and satisfy the setting "enforced" (RFC 7672 section 2.2). If all are unusable, TLS
// is demanded, and an MTA-STS policy is obeyed as well. Without TLSA records, the policy decides. If the policy demands
// the same as the setting, the rule is the policy, because another setting would change nothing. An error means that
// the host must not be used now, whatever else is known about it; the demand then has the rule that forbids it.
func (s *Service) demandOf(ctx context.Context, host string, addrs resolve.Answer[netip.Addr], by security,
	tls string) (d demand, skip evidence.Skip, err error) {
	d = demand{mode: directMode(tls, nil)}
	switch tls {
	case reportTLS:
		return d, 0, nil
	case domains.Enforced:
		d.rule = evidence.SenderRequires
	}
	if by.signed {
		found, err := resolve.HostTLSA(ctx, s.dnssec, host, uint16(s.c.SMTPPort), addrs)
		if err != nil {
			d.rule = evidence.DANE
			return d, evidence.TLSAUnknown, fmt.Errorf("look up TLSA records of %s: %w", host, err)
		}
		if len(found.Records) > 0 {
			set := dane.Parse(found.Records)
			if set.Usable() {
				return demand{mode: smtpclient.TLSDANE, rule: evidence.DANE, dane: set, names: by.names(found.Base)}, 0, nil
			}
			if d.mode == smtpclient.TLSOpportunistic {
				d.mode, d.rule = smtpclient.TLSEncrypted, evidence.DANEUnusable
			}
		}
	}
	switch by.policy.Mode {
	case mtasts.Enforce:
		if !by.policy.Matches(host) {
			d.rule = evidence.MTASTS
			return d, evidence.NotInPolicy, fmt.Errorf("%w %s", errNotInPolicy, host)
		}
		d.mode, d.rule = smtpclient.TLSRequired, evidence.MTASTS
	case mtasts.Testing:
		if d.rule == 0 {
			d.rule = evidence.MTASTSTesting
		}
	}
	return d, 0, nil
}

// names returns the names for which the certificate of a host may be valid, by RFC 7672 section 3.2.2.
func (by security) names(base string) []string {
	all := []string{base, by.domain}
	if by.name != by.domain {
		all = append(all, by.name)
	}
	return all
}

// lastTry reports whether an email bounces after this try if the domain does not accept it. The parameter rules is the
// destination of the try, or nil. A first try can be the last one: the destination may have a lifetime that ends before
// the next try, and the job may be older than the schedule.
func (s *Service) lastTry(t *try, rules *routing.Destination) bool {
	known := *t
	known.rules = rules
	_, exhausted := s.nextWait(&known, s.p.DB.Now().Add(time.Second))
	return exhausted
}
