package dane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// These are the errors that Verify wraps; compare with errors.Is. TLS reports distinguish them.
var (
	// ErrNoMatch means that no TLSA record matches, or that the certificate was not issued by an authority of the
	// records.
	ErrNoMatch = errors.New("the host's certificate does not match its TLSA records")
	// ErrExpired means that a certificate has expired or is not valid yet.
	ErrExpired = errors.New("a certificate has expired or is not valid yet")
	// ErrName means that the certificate is for other names.
	ErrName = errors.New("the host's certificate is for other names")
	// ErrUnusable means that the set has no usable record.
	ErrUnusable = errors.New("the host has no usable TLSA record")
)

// Match says which record a certificate matched.
type Match struct {
	Record Record
	Name   string // the name for which the certificate is valid; "" for usage 3, which ignores names
}

// Method returns "dane-ee" or "dane-ta", or "" for the zero Match.
func (m Match) Method() string {
	switch m.Record.Usage {
	case UsageEE:
		return "dane-ee"
	case UsageTA:
		return "dane-ta"
	}
	return ""
}

// Verify decides whether the certificates of a TLS connection match the set, and returns the record that matched.
//
// With usage 3 the host's certificate itself must match; its names, its expiry and its issuer do not matter (RFC 7672
// section 3.1.1). With usage 2 a certificate of an authority must match, not the host's own one. The host must send it,
// unless the record contains the authority's certificate or key. A chain must lead from the authority to the host's
// certificate. Each certificate in the chain must be valid at the time now and allow use by servers. The host's
// certificate must be valid for one of the names (section 3.1.2).
func (s *Set) Verify(state tls.ConnectionState, names []string, now time.Time) (Match, error) {
	chain := state.PeerCertificates
	switch {
	case !s.Usable():
		return Match{}, ErrUnusable
	case len(chain) == 0:
		return Match{}, fmt.Errorf("%w: the host sent no certificate", ErrNoMatch)
	}
	if r, ok := s.find(UsageEE, chain[0]); ok {
		return Match{Record: r}, nil
	}
	if s.authority {
		return s.verifyChain(chain, names, now)
	}
	own := Record{Usage: UsageEE, Selector: SelectorKey, Matching: MatchingSHA256}
	own.Data = own.value(chain[0])
	return Match{}, fmt.Errorf("%w: the record for its certificate would be %s", ErrNoMatch, own)
}

// find returns the first record with a usage that the certificate matches.
func (s *Set) find(usage uint8, c *x509.Certificate) (Record, bool) {
	var value []byte // of the record before; records of the same form are neighbors
	for i := range s.records {
		r := &s.records[i]
		if r.Usage != usage {
			continue
		}
		if value == nil || r.Selector != s.records[i-1].Selector || r.Matching != s.records[i-1].Matching {
			value = r.value(c)
		}
		if bytes.Equal(value, r.Data) {
			return *r, true
		}
	}
	return Record{}, false
}

// verifyChain verifies the host's certificate, which is the first of the chain, with the authorities of the set.
func (s *Set) verifyChain(chain []*x509.Certificate, names []string, now time.Time) (Match, error) {
	leaf, roots, others := chain[0], x509.NewCertPool(), x509.NewCertPool()
	found := false
	anchor := func(c *x509.Certificate) {
		// Verify would accept the host's certificate at once if it were a root. But a certificate with usage 2 is not
		// that of the host (RFC 7671 section 5.2).
		if !c.Equal(leaf) {
			roots.AddCert(c)
			found = true
		}
	}
	for _, c := range chain[1:] {
		if _, ok := s.find(UsageTA, c); ok {
			anchor(c)
		} else {
			others.AddCert(c)
		}
	}
	for _, c := range s.anchors {
		anchor(c)
	}
	for i := range s.records {
		for _, a := range bareAnchors(&s.records[i], chain) {
			anchor(a)
		}
	}
	if !found {
		return Match{}, fmt.Errorf("%w: no issuer in the chain that the host sent matches a record with usage 2",
			ErrNoMatch)
	}
	verified, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return Match{}, explain(err, leaf)
	}
	for _, name := range names {
		if leaf.VerifyHostname(name) == nil {
			r, _ := s.find(UsageTA, verified[0][len(verified[0])-1])
			return Match{Record: r, Name: name}, nil
		}
	}
	return Match{}, fmt.Errorf("%w: it is valid for %s, but must be valid for %s", ErrName, orNone(leaf.DNSNames),
		strings.Join(names, " or "))
}

// bareAnchors returns trust anchors for a record that contains the bare key of an authority (record 2 1 0). Each anchor
// has the name of an issuer in the chain that signed with the key. If the host sent a certificate of the authority,
// there are no anchors: the expiry and the other limits of that certificate count.
func bareAnchors(r *Record, chain []*x509.Certificate) (all []*x509.Certificate) {
	if r.Usage != UsageTA || r.Selector != SelectorKey || r.Matching != MatchingFull {
		return nil
	}
	key, err := x509.ParsePKIXPublicKey(r.Data)
	if err != nil || slices.ContainsFunc(chain[1:], func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawSubjectPublicKeyInfo, r.Data)
	}) {
		return nil
	}
	var algorithm x509.PublicKeyAlgorithm
	switch key.(type) {
	case *rsa.PublicKey:
		algorithm = x509.RSA
	case *ecdsa.PublicKey:
		algorithm = x509.ECDSA
	case ed25519.PublicKey:
		algorithm = x509.Ed25519
	}
	for _, c := range chain {
		a := &x509.Certificate{Raw: slices.Concat(r.Data, c.Raw), RawSubjectPublicKeyInfo: r.Data, PublicKey: key,
			PublicKeyAlgorithm: algorithm, RawSubject: c.RawIssuer, Subject: c.Issuer, Version: 3, IsCA: true,
			BasicConstraintsValid: true, MaxPathLen: -1, NotBefore: c.NotBefore, NotAfter: c.NotAfter}
		if c.CheckSignatureFrom(a) == nil {
			all = append(all, a)
		}
	}
	return all
}

// maxNames is the maximum number of a certificate's names in an error message.
const maxNames = 4

func orNone(names []string) string {
	if len(names) == 0 {
		return "no host name"
	}
	if len(names) > maxNames {
		names = append(slices.Clone(names[:maxNames]), "others")
	}
	return strings.Join(names, ", ")
}

// explain returns the error for a chain that does not lead from an authority of the set to the host's certificate.
func explain(err error, leaf *x509.Certificate) error {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if !ok || invalid.Reason != x509.Expired {
		return fmt.Errorf("%w: no valid chain leads from an authority of the records to it: %w", ErrNoMatch, err)
	}
	which := "that of the host"
	if !invalid.Cert.Equal(leaf) {
		which = fmt.Sprintf("that of the issuer %q", invalid.Cert.Subject.CommonName)
	}
	return fmt.Errorf("%w: %s is valid from %s to %s", ErrExpired, which,
		invalid.Cert.NotBefore.UTC().Format(time.DateTime), invalid.Cert.NotAfter.UTC().Format(time.DateTime))
}
