package certs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mholt/acmez/v3/acme"
	"github.com/miekg/dns"
)

const (
	dnsLimit     = 15 * time.Second // of one query or update
	publishLimit = time.Minute      // of the wait until all name servers of the zone have a record
	publishPoll  = time.Second
	recordTTL    = 60 // seconds
	tsigFudge    = 300
)

// DNSUpdate publishes DNS-01 challenges by updates of a zone (RFC 2136), signed with a TSIG key (RFC 8945).
type DNSUpdate struct {
	Server    string // address and port of the server that accepts updates
	Zone      string
	KeyName   string
	Algorithm string // such as hmac-sha256
	Secret    string // in base64
	// Addrs returns the addresses of a name server, which are asked whether a record is published. If Addrs is nil,
	// nobody is asked.
	Addrs func(ctx context.Context, host string) ([]netip.Addr, error)
}

// covers reports whether a host is in the zone.
func (u *DNSUpdate) covers(host string) bool {
	return dns.IsSubDomain(dns.Fqdn(u.Zone), dns.Fqdn(host))
}

// Present implements acmez.Solver.
func (u *DNSUpdate) Present(ctx context.Context, c acme.Challenge) error {
	return u.update(ctx, (*dns.Msg).Insert, c)
}

// CleanUp implements acmez.Solver.
func (u *DNSUpdate) CleanUp(ctx context.Context, c acme.Challenge) error {
	return u.update(context.WithoutCancel(ctx), (*dns.Msg).Remove, c)
}

// update sends one update with the record of a challenge.
func (u *DNSUpdate) update(ctx context.Context, add func(*dns.Msg, []dns.RR), c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, dnsLimit)
	defer cancel()
	m, key := new(dns.Msg), dns.CanonicalName(u.KeyName)
	m.SetUpdate(dns.Fqdn(u.Zone))
	add(m, []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: dns.Fqdn(c.DNS01TXTRecordName()), Rrtype: dns.TypeTXT,
		Class: dns.ClassINET, Ttl: recordTTL}, Txt: []string{c.DNS01KeyAuthorization()}}})
	m.SetTsig(key, dns.Fqdn(u.Algorithm), tsigFudge, time.Now().Unix())
	client := &dns.Client{Net: "tcp", Timeout: dnsLimit, TsigSecret: map[string]string{key: u.Secret}}
	answer, _, err := client.ExchangeContext(ctx, m, u.Server)
	if err != nil {
		return fmt.Errorf("update the zone %s at acme_dns_server %s: %w", u.Zone, u.Server, err)
	}
	if answer.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("acme_dns_server %s refused the update of the zone %s: %s", u.Server, u.Zone,
			explainRcode(answer.Rcode))
	}
	return nil
}

// explainRcode returns the name of a response code, and which setting or rule causes it.
func explainRcode(code int) string {
	name := dns.RcodeToString[code]
	switch code {
	case dns.RcodeNotAuth:
		return name + ": check acme_dns_zone, acme_dns_key_name, acme_dns_key_algorithm, acme_dns_key_secret and the clocks"
	case dns.RcodeNotZone:
		return name + ": check acme_dns_zone"
	case dns.RcodeRefused:
		return name + ": the server does not allow this key to update TXT records at _acme-challenge"
	}
	return name
}

// Wait implements acmez.Waiter. It waits until all name servers of the zone that answer have the record, at most for
// publishLimit. After that, the authority decides.
func (u *DNSUpdate) Wait(ctx context.Context, c acme.Challenge) error {
	if u.Addrs == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	servers := u.nameServers(limited)
	for {
		servers = slices.DeleteFunc(servers, func(server string) bool {
			return !lacks(limited, server, c.DNS01TXTRecordName(), c.DNS01KeyAuthorization())
		})
		if len(servers) == 0 {
			return ctx.Err()
		}
		select {
		case <-limited.Done():
			return ctx.Err()
		case <-time.After(publishPoll):
		}
	}
}

// nameServers returns the addresses of the zone's name servers, or none if they cannot be found.
func (u *DNSUpdate) nameServers(ctx context.Context) (all []string) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(u.Zone), dns.TypeNS)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: dnsLimit}).ExchangeContext(ctx, m, u.Server)
	if err != nil {
		return nil
	}
	for _, rr := range answer.Answer {
		ns, ok := rr.(*dns.NS)
		if !ok {
			continue
		}
		addrs, err := u.Addrs(ctx, strings.TrimSuffix(ns.Ns, "."))
		if err != nil {
			continue
		}
		for _, a := range addrs {
			all = append(all, net.JoinHostPort(a.String(), "53"))
		}
	}
	return all
}

// lacks reports whether a name server answers and does not have a TXT record.
func lacks(ctx context.Context, server, name, value string) bool {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeTXT)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: dnsLimit}).ExchangeContext(ctx, m, server)
	if err != nil {
		return false // for example, a name server with an IPv6 address that this machine cannot reach
	}
	return !slices.ContainsFunc(answer.Answer, func(rr dns.RR) bool {
		txt, ok := rr.(*dns.TXT)
		return ok && strings.Join(txt.Txt, "") == value
	})
}
