package events_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// CanonicalName treats all reserved prefixes, in upper or lower case, as the same prefix.
func TestCanonicalName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ prefix, canonical string }{
		"postrider:contact.created": {"postrider:", "postrider:contact.created"},
		"resend:contact.created":    {"resend:", "postrider:contact.created"},
		"ReSend:contact.created":    {"ReSend:", "postrider:contact.created"},
		"POSTRIDER:":                {"POSTRIDER:", "postrider:"},
		"contact.created":           {"", "contact.created"},
		"my.resend:x":               {"", "my.resend:x"},
		"resend":                    {"", "resend"},
		"":                          {"", ""},
	} {
		if got := events.ReservedPrefix(name); got != want.prefix {
			t.Errorf("ReservedPrefix(%q) = %q, want %q", name, got, want.prefix)
		}
		if got := events.CanonicalName(name); got != want.canonical {
			t.Errorf("CanonicalName(%q) = %q, want %q", name, got, want.canonical)
		}
	}
}

// CheckName accepts any printable string of limited length that is not a UUID.
func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]fault.Kind{
		" \t":                                  fault.Missing,
		"":                                     fault.Missing,
		"a\nb":                                 fault.Invalid,
		"\xff":                                 fault.Invalid,
		strings.Repeat("ä", events.MaxName+1):  fault.Invalid,
		"019a0000-0000-7000-8000-000000000001": fault.Invalid,
	} {
		if err := events.CheckName("event", name); fault.KindOf(err) != want {
			t.Errorf("CheckName(%q) = %v, want %v", name, err, want)
		}
	}
	for _, name := range []string{"user.created", strings.Repeat("ä", events.MaxName), "resend:x", "two words"} {
		if err := events.CheckName("event", name); err != nil {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

// TrimName removes spaces, but leaves control characters, which CheckName refuses.
func TestTrimName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a": "a", " two  words\u00a0": "two  words", " ": "", "a\n": "a\n",
		"\t a": "\t a", "\u2003a ": "a"} {
		if got := events.TrimName(name); got != want {
			t.Errorf("TrimName(%q) = %q, want %q", name, got, want)
		}
	}
}
