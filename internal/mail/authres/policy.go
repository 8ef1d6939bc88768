package authres

// Policy is the request of a DMARC record to receivers.
type Policy struct {
	Requested             string // the p= or sp= tag: none, quarantine or reject
	StrictDKIM, StrictSPF bool   // aligned domains must be equal (RFC 7489 section 3.1)
}

// ParseDMARC parses a TXT record. It returns false if receivers would not use the record as a DMARC record (RFC 7489
// section 6.3). parent is true if the record was found at the organizational domain. The policy is then the one for
// subdomains.
func ParseDMARC(text string, parent bool) (Policy, bool) {
	p, ok := parseDMARC(text, parent)
	return Policy{p.policy, p.strictDKIM, p.strictSPF}, ok
}

// Aligned reports whether verifying domain counts for a From field at from, in DMARC (RFC 7489 section 3.1). Both are
// in lower-case ASCII; "" is aligned with nothing.
func Aligned(from, domain string, strict bool) bool {
	return domain != "" && aligned(from, domain, strict)
}

// Organizational returns the registered domain: example.com for mail.example.com (RFC 7489 section 3.2). For a public
// suffix it returns the suffix itself.
func Organizational(domain string) string { return organizational(domain) }
