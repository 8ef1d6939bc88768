package authres

// Policy is what a DMARC record asks of receivers.
type Policy struct {
	Requested             string // none, quarantine or reject
	StrictDKIM, StrictSPF bool   // aligned domains must be equal (RFC 7489 section 3.1)
}

// ParseDMARC reads a TXT record, and reports false if it is not a DMARC record that receivers use (RFC 7489 section
// 6.3). With parent, the record is that of the organizational domain, and the policy the one for domains below it.
func ParseDMARC(text string, parent bool) (Policy, bool) {
	p, ok := parseDMARC(text, parent)
	return Policy{p.policy, p.strictDKIM, p.strictSPF}, ok
}

// Aligned reports whether what is verified for domain counts for a From field at from, in DMARC (RFC 7489 section
// 3.1). Both are in lower-case ASCII; "" is aligned with nothing.
func Aligned(from, domain string, strict bool) bool {
	return domain != "" && aligned(from, domain, strict)
}

// Organizational returns the domain that was registered: example.com of mail.example.com (RFC 7489 section 3.2). A
// public suffix is its own.
func Organizational(domain string) string { return organizational(domain) }
