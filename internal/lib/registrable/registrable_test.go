package registrable_test

import (
	"testing"

	"github.com/postrider/postrider/internal/lib/registrable"
)

func TestDomain(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"example.com":            "example.com",
		"a.mail.example.com":     "example.com",
		"mail.example.co.uk":     "example.co.uk",
		"co.uk":                  "co.uk",
		"com":                    "com",
		"":                       "",
		"a.unknown-suffix.nosuf": "unknown-suffix.nosuf",
		"..":                     "..",
	} {
		if got := registrable.Domain(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
