package resolve

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
)

// HostRecords holds the TLSA records that HostTLSA found for a host.
type HostRecords struct {
	// Base is the TLSA base name: the name to send in the TLS handshake, and the first name for which a certificate may
	// be valid.
	Base    string
	Records []TLSA // empty if DANE does not apply to the host
	// Outcome is OutcomeSecure if there are records, OutcomeAbsent if there are securely none, and OutcomeInsecure if
	// DNSSEC does not protect the host.
	Outcome Outcome
}

// HostTLSA looks up the TLSA records of a mail host, given the answer about the addresses of the host (RFC 7672 section
// 2.2.2). It returns records only if they are secure.
//
// If the addresses are insecure, HostTLSA does not ask for TLSA records, because name servers of unsigned zones often
// fail such queries. If the host is an alias, the records are at the target of the aliases, or else at the host itself.
// If only the alias is secure, and not its target, they can only be at the host itself.
//
// An error is ErrTemporary and means that the state is unknown: the caller must not deliver to the host. A Cached
// remembers such a failure for two minutes. HostTLSA may be called for several hosts at the same time.
func HostTLSA(ctx context.Context, r Secure, host string, port uint16, addrs Answer[netip.Addr]) (HostRecords, error) {
	host = clean(host)
	found := HostRecords{Outcome: OutcomeInsecure}
	bases, err := baseNames(ctx, r, host, addrs)
	if err != nil {
		found.Outcome = OutcomeOf(Answer[string]{}, err)
		return found, err
	}
	for _, base := range bases {
		a, err := r.TLSA(ctx, "_"+strconv.Itoa(int(port))+"._tcp."+base)
		switch outcome := OutcomeOf(a, err); outcome {
		case OutcomeSecure:
			return HostRecords{Base: base, Records: a.Records, Outcome: outcome}, nil
		case OutcomeAbsent:
			found.Outcome = outcome
		case OutcomeInsecure: // the TLSA name is in an unsigned zone, or an alias to one
		default:
			return HostRecords{Outcome: outcome}, err
		}
	}
	return found, nil
}

// baseNames returns the names below which TLSA records may be, in order.
func baseNames(ctx context.Context, r Secure, host string, addrs Answer[netip.Addr]) ([]string, error) {
	alias := addrs.Name != "" && clean(addrs.Name) != host
	switch {
	case addrs.Secure && alias:
		return []string{clean(addrs.Name), host}, nil
	case addrs.Secure:
		return []string{host}, nil
	case !alias:
		return nil, nil
	}
	a, err := r.CNAMESecure(ctx, host)
	switch {
	case err == nil && a.Secure:
		return []string{host}, nil
	case err == nil || errors.Is(err, ErrNotFound):
		return nil, nil
	}
	return nil, err
}
