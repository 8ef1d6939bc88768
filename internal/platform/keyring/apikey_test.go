package keyring

import (
	"regexp"
	"strings"
	"testing"
)

func TestNewAPIKey(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^re_[0-9A-Za-z]{8}_[0-9A-Za-z]{24}$`)
	seen := map[string]bool{}
	for range 1000 {
		key := NewAPIKey()
		if !form.MatchString(key) {
			t.Fatalf("key %q is not of the form", key)
		}
		if seen[key] {
			t.Fatalf("key %q was made twice", key)
		}
		seen[key] = true
		if hint := APIKeyHint(key); hint != key[:11] {
			t.Fatalf("hint of %q = %q", key, hint)
		}
	}
}

// TestRandomTextIsUnbiased counts how often each character occurs. If all bytes were used modulo 62, eight characters
// would be a quarter more likely, which is forty standard deviations. The test allows eight standard deviations.
func TestRandomTextIsUnbiased(t *testing.T) {
	t.Parallel()
	const each = 5000
	counts := map[rune]int{}
	for _, c := range randomText(each * len(base62)) {
		counts[c]++
	}
	for _, c := range base62 {
		if n := counts[c]; n < each-566 || n > each+566 {
			t.Errorf("%q came %d times, want about %d", c, n, each)
		}
	}
}

func TestAPIKeyHint(t *testing.T) {
	t.Parallel()
	good := "re_AbCdEfGh_" + strings.Repeat("x", 24)
	tests := map[string]string{
		good: "re_AbCdEfGh", "": "", "re_": "", "re_AbCdEfGh": "", good[3:]: "", good + "x": "", "sk" + good[2:]: "",
		"re_AbCdEfG_" + strings.Repeat("x", 25): "",
	}
	for token, want := range tests {
		if got := APIKeyHint(token); got != want {
			t.Errorf("APIKeyHint(%q) = %q, want %q", token, got, want)
		}
	}
}

func TestHashAPIKey(t *testing.T) {
	t.Parallel()
	// The expected hash is the test vector from FIPS 180-4 for "abc".
	if got := HashAPIKey("abc"); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("HashAPIKey = %s", got)
	}
}
