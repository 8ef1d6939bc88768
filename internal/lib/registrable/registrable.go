// Package registrable finds the registrable part of a host name: example.co.uk for mail.example.co.uk. It tells whether
// two hosts probably belong to one owner, without a look-up.
//
// The package contains the public suffix list of its release and never updates it, so new suffixes are missing. DMARC
// does not use this list (see package dmarc).
package registrable

import "golang.org/x/net/publicsuffix"

// Domain returns the registrable domain of a host name in lower-case ASCII: the public suffix and one more label. A
// public suffix is returned unchanged.
func Domain(host string) string {
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return domain
}
