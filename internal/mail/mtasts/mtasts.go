// Package mtasts implements the formats and rules of MTA-STS (RFC 8461) for a sender: the TXT record that announces a
// policy, the policy itself, and the comparison of mail hosts with a policy.
//
// # Invariants
//
// The package has no state and does no I/O. Names are compared as A-labels in lower case. A [Policy] that [ParsePolicy]
// returns is complete: it has a mode, a lifetime within the RFC's limits and, unless its mode is none, at least one
// pattern.
//
// # Failures
//
// An error says what is wrong with the record or policy. A record or policy with an error counts as missing; the caller
// decides whether an earlier policy applies instead. Unknown fields are ignored. If a field other than mx is repeated,
// only its first occurrence counts (RFC 8461 section 3.2).
//
// # Out of scope
//
// The package does not look up records, fetch policies, cache them or verify certificates (see package tlspolicies).
package mtasts

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"mime"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// MaxPolicySize is the size in bytes to which senders may limit a policy (RFC 8461 section 3.3).
const MaxPolicySize = 64 << 10

// Result is a result type of TLS reports (RFC 8460 section 4.3). The empty Result means success.
type Result string

// These are the results that concern MTA-STS.
const (
	FetchError         Result = "sts-policy-fetch-error"
	PolicyInvalid      Result = "sts-policy-invalid"
	WebPKIInvalid      Result = "sts-webpki-invalid"
	NoSTARTTLS         Result = "starttls-not-supported"
	CertificateExpired Result = "certificate-expired"
	HostMismatch       Result = "certificate-host-mismatch"
	NotTrusted         Result = "certificate-not-trusted"
	ValidationFailure  Result = "validation-failure"
)

// CertificateResult returns the result type for an error of certificate verification. If err has another cause, ok is
// false.
func CertificateResult(err error) (r Result, ok bool) {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return HostMismatch, true
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return CertificateExpired, true
		}
		return NotTrusted, true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return NotTrusted, true
	}
	if _, ok := errors.AsType[x509.SystemRootsError](err); ok {
		return "", false // the failure is ours
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return NotTrusted, true
	}
	return "", false
}

const (
	recordPrefix = "_mta-sts."
	hostPrefix   = "mta-sts."
	maxName      = 253 // maximum length of a DNS name
	// maxUnicode is the maximum length in bytes of a name with U-labels. The conversion to A-labels takes a time that
	// grows with the square of the length.
	maxUnicode = 4 * maxName
)

// Domain returns the policy domain of a recipient domain, in A-labels and lower case. Address literals and names that
// cannot have a record have no policy domain; for them, Domain returns an error.
func Domain(name string) (string, error) {
	domain := strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(domain); err == nil || strings.HasPrefix(domain, "[") {
		return "", fmt.Errorf("%q is an address, and addresses have no policy", name)
	}
	domain, err := lowerASCII(domain)
	if err != nil {
		return "", fmt.Errorf("%q is not a domain: %w", name, err)
	}
	if len(recordPrefix+domain) > maxName {
		return "", fmt.Errorf("%q is too long to have a policy", name)
	}
	for label := range strings.SplitSeq(domain, ".") {
		if !isLabel(label, "-_") {
			return "", fmt.Errorf("%q is not a domain", name)
		}
	}
	return domain, nil
}

// RecordName returns the name of the TXT record for a policy domain.
func RecordName(domain string) string { return recordPrefix + domain }

// HostName returns the name of the host that serves the policy of a policy domain.
func HostName(domain string) string { return hostPrefix + domain }

// CutHost returns the policy domain whose policy a host serves. If the host has another name, ok is false.
func CutHost(host string) (domain string, ok bool) { return strings.CutPrefix(host, hostPrefix) }

// PolicyURL returns the URL of the policy for a policy domain.
func PolicyURL(domain string) string {
	return "https://" + HostName(domain) + "/.well-known/mta-sts.txt"
}

// CheckMediaType returns an error unless a Content-Type is that of a policy. Parameters are ignored. The check protects
// domains whose web server lets strangers publish files of other types (RFC 8461 section 3.2).
func CheckMediaType(contentType string) error {
	got, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		got = contentType
	}
	if got != "text/plain" {
		return fmt.Errorf("the media type is %.80q instead of text/plain", got)
	}
	return nil
}

// lowerASCII returns a name in A-labels and lower case.
func lowerASCII(name string) (string, error) {
	if len(name) > maxUnicode {
		return "", errors.New("the name is too long")
	}
	for i := range len(name) {
		if name[i] >= 0x80 {
			return idna.Lookup.ToASCII(name)
		}
	}
	return strings.ToLower(name), nil
}

// isLabel reports whether a label in lower case has a valid length and contains only letters, digits and the characters
// in others.
func isLabel(label, others string) bool {
	if label == "" || len(label) > 63 {
		return false
	}
	for i := range len(label) {
		if c := label[i]; !isAlnum(c) && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// isAlnum reports whether c is an ASCII letter or digit.
func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isFieldName reports whether text is a valid name of a field of a record or policy.
func isFieldName(text string) bool {
	if text == "" || len(text) > 32 || !isAlnum(text[0]) {
		return false
	}
	for i := range len(text) {
		if c := text[i]; !isAlnum(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
