//go:build postfix || chaos

package e2e

import "testing"

// serveDNS starts a DNS server on loopback with the given records and returns its address.
func serveDNS(t *testing.T, records ...string) string {
	t.Helper()
	s := startDNS(t)
	s.add(records...)
	return s.addr
}
