package resolve

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNetForm(t *testing.T) {
	t.Parallel()
	n := NetForm{Fake{
		MXRecords: map[string][]MX{"a.example": {{Host: "mx.example", Pref: 10}}, "null.example": {{}}},
		AddrRecords: map[string][]netip.Addr{"mx.example": {netip.MustParseAddr("192.0.2.1"),
			netip.MustParseAddr("2001:db8::1")}},
		TXTRecords: map[string][]string{"a.example": {"v=spf1 -all"}},
		PTRRecords: map[netip.Addr][]string{netip.MustParseAddr("192.0.2.1"): {"mx.example"}},
		Fail:       []string{"dead.example", "ptr 192.0.2.9"},
	}}
	mx, err1 := n.LookupMX(t.Context(), "a.example")
	null, err2 := n.LookupMX(t.Context(), "null.example")
	addrs, err3 := n.LookupIPAddr(t.Context(), "mx.example")
	txt, err4 := n.LookupTXT(t.Context(), "a.example")
	names, err5 := n.LookupAddr(t.Context(), "192.0.2.1")
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	got := []any{*mx[0], null[0].Host, addrs[0].String(), addrs[1].String(), txt, names}
	want := []any{net.MX{Host: "mx.example.", Pref: 10}, ".", "192.0.2.1", "2001:db8::1", []string{"v=spf1 -all"},
		[]string{"mx.example."}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNetFormErrors(t *testing.T) {
	t.Parallel()
	n := NetForm{Fake{Fail: []string{"dead.example", "ptr 192.0.2.9"}}}
	ask := map[string]func(name string) error{
		"txt":  func(name string) error { _, err := n.LookupTXT(t.Context(), name); return err },
		"mx":   func(name string) error { _, err := n.LookupMX(t.Context(), name); return err },
		"addr": func(name string) error { _, err := n.LookupIPAddr(t.Context(), name); return err },
	}
	for kind, look := range ask {
		for name, temporary := range map[string]bool{"dead.example": true, "nowhere.example": false} {
			checkNetError(t, kind+" "+name, look(name), temporary)
		}
	}
	_, err := n.LookupAddr(t.Context(), "192.0.2.9")
	checkNetError(t, "ptr", err, true)
	_, err = n.LookupAddr(t.Context(), "192.0.2.1")
	checkNetError(t, "ptr", err, false)
	if _, err := n.LookupAddr(t.Context(), "no address"); err == nil {
		t.Error("a reverse look-up of nonsense succeeded")
	}
}

func checkNetError(t *testing.T, what string, err error, temporary bool) {
	t.Helper()
	// This test uses a plain type assertion for DNS errors, as the libraries do.
	e, ok := err.(*net.DNSError)
	if !ok || e.Temporary() != temporary || e.IsNotFound == temporary || errors.Is(err, ErrTemporary) != temporary {
		t.Errorf("%s: %#v, want temporary=%t", what, err, temporary)
	}
}
