package resolve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Host is a mail server that accepts mail for a domain.
type Host struct {
	Name     string
	Pref     uint16
	Implicit bool // the domain has no MX records, so its address records are used (RFC 5321 section 5.1)
}

// These are the definite errors that Hosts returns for domains that accept no mail; compare with errors.Is. A definite
// error means that later attempts to deliver mail to the domain would also fail.
var (
	// ErrNoDomain means that the domain does not exist.
	ErrNoDomain = errors.New("the domain does not exist")
	// ErrNoHost means that the domain exists but has neither MX nor address records.
	ErrNoHost = errors.New("the domain has neither MX nor address records")
	// ErrNullMX means that the domain declares that it accepts no mail (RFC 7505).
	ErrNullMX = errors.New("the domain does not accept mail (null MX)")
)

// maxHosts is the maximum number of hosts to try for a domain.
const maxHosts = 10

// Hosts returns at most ten mail hosts for domain in order of preference (RFC 5321 section 5.1). The hosts are the
// domain's mail exchangers, in random order if their preferences are equal, or the domain itself if it has no MX
// records. The error is ErrTemporary or one of the definite errors ErrNoDomain, ErrNoHost and ErrNullMX. If the domain
// is its own host, Hosts checks that it has an address, but Hosts does not check the addresses of mail exchangers.
func Hosts(ctx context.Context, r Resolver, domain string) ([]Host, error) {
	domain = clean(domain)
	records, err := r.MX(ctx, domain)
	hosts, err := exchangers(domain, records, err)
	if len(hosts) > 0 || err != nil {
		return hosts, err
	}
	_, err = r.Addrs(ctx, domain)
	return implicitHost(domain, err)
}

// MailHosts are the mail hosts of a domain, with what is known about the way to them.
type MailHosts struct {
	Hosts []Host
	Name  string // the domain after aliases
	// Secure is whether the MX records, or their absence, were authenticated by DNSSEC. Otherwise DANE does not apply to
	// the domain (RFC 7672 section 2.2.1).
	Secure bool
}

// HostsSecure is like Hosts, and says whether the MX records were authenticated. IsSecure says the same about a
// definite error.
func HostsSecure(ctx context.Context, r Secure, domain string) (MailHosts, error) {
	domain = clean(domain)
	mx, err := r.MXSecure(ctx, domain)
	found := MailHosts{Name: mx.Name, Secure: mx.Secure || IsSecure(err)}
	if found.Hosts, err = exchangers(domain, mx.Records, err); err != nil {
		return MailHosts{}, authenticate(err, found.Secure)
	}
	if len(found.Hosts) > 0 {
		return found, nil
	}
	addrs, err := r.AddrsSecure(ctx, domain)
	found.Name = addrs.Name
	secure := found.Secure && IsSecure(err)
	if found.Hosts, err = implicitHost(domain, err); err != nil {
		return MailHosts{}, authenticate(err, secure)
	}
	return found, nil
}

// exchangers returns the mail exchangers of a domain, given the result of the look-up. If the domain has no MX records,
// exchangers returns neither hosts nor an error.
func exchangers(domain string, records []MX, err error) ([]Host, error) {
	switch {
	case errors.Is(err, ErrNoName):
		return nil, fmt.Errorf("%w: %s", ErrNoDomain, domain)
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up MX of %s: %w", domain, err)
	}
	hosts := order(records)
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNullMX, domain)
	}
	return hosts, nil
}

// implicitHost returns the domain as its own mail host, given the error of the look-up of its addresses.
func implicitHost(domain string, err error) ([]Host, error) {
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, fmt.Errorf("%w: %s", ErrNoHost, domain)
	case err != nil:
		return nil, fmt.Errorf("look up addresses of %s: %w", domain, err)
	}
	return []Host{{Name: domain, Implicit: true}}, nil
}

// order sorts MX records by preference, shuffles those with equal preference, and lists each host once. An empty host
// name among other hosts is dropped, because it is a mistake rather than a null MX (RFC 7505 section 3).
func order(records []MX) []Host {
	hosts := make([]Host, 0, len(records))
	for _, mx := range records {
		if name := clean(mx.Host); name != "" {
			hosts = append(hosts, Host{Name: name, Pref: mx.Pref})
		}
	}
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	slices.SortStableFunc(hosts, func(a, b Host) int { return int(a.Pref) - int(b.Pref) })
	seen := make(map[string]bool, len(hosts))
	hosts = slices.DeleteFunc(hosts, func(h Host) bool {
		again := seen[h.Name]
		seen[h.Name] = true
		return again
	})
	return hosts[:min(len(hosts), maxHosts)]
}
