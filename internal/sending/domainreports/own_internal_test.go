package domainreports

import "testing"

// The lengths of prefixes at the end of a mechanism are read as RFC 7208 section 5.6 writes them.
func TestPrefixLengths(t *testing.T) {
	for text, want := range map[string][2]int{"": {-1, -1}, "/24": {24, -1}, "//64": {-1, 64}, "/24//64": {24, 64},
		"/x": {-1, -1}} {
		if bits4, bits6 := prefixLengths(text); [2]int{bits4, bits6} != want {
			t.Errorf("%q: %d and %d", text, bits4, bits6)
		}
	}
}
