package authres

// Policy is the policy that a DMARC record requests from receivers.
type Policy struct {
	Requested             string // the p= or sp= tag: none, quarantine or reject
	StrictDKIM, StrictSPF bool   // aligned domains must be identical (RFC 7489 section 3.1)
}

// ParseDMARC parses a TXT record as a DMARC record. ParseDMARC returns false if receivers would not use the record as a
// DMARC record (RFC 7489 section 6.3). Set parent to true if the record was found at the organizational domain; the
// returned policy is then the one for subdomains.
func ParseDMARC(text string, parent bool) (Policy, bool) {
	p, ok := parseDMARC(text, parent)
	return Policy{p.policy, p.strictDKIM, p.strictSPF}, ok
}

// Aligned reports whether a verified domain is aligned with the domain of the From field (RFC 7489 section 3.1). The
// domains must be in lower-case ASCII; an empty domain is never aligned.
func Aligned(from, domain string, strict bool) bool {
	return domain != "" && aligned(from, domain, strict)
}

// Organizational returns the registered domain: example.com for mail.example.com (RFC 7489 section 3.2). For a public
// suffix, Organizational returns the suffix itself.
func Organizational(domain string) string { return organizational(domain) }
