package report

import (
	"slices"
	"testing"
)

// Addresses are found at the beginning of a text, at its end, and next to another at sign.
func TestNamesAnywhere(t *testing.T) {
	to := newNames([]string{"ann@d.example"})
	for _, text := range []string{"ann@d.example", "@d.example ann@d.example", "@@ann@d.example", "x@ ann@d.example",
		"ann@d.example@", "<ann@d.example>.",
		"bob@d.example,ann@d.example-"} {
		if got := to.in(text); !slices.Equal(got, []string{"ann@d.example"}) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := newNames([]string{"ann@ŀd.example"}).in("to ann@ŀd.example"); len(got) != 1 { // ŀ contains the byte 0x80
		t.Errorf("a host that is not ASCII: %q", got)
	}
	for _, text := range []string{"ann@d.exampl", "ann@", "@", "", "nn@d.example", "ann d.example"} {
		if got := to.in(text); got != nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}
