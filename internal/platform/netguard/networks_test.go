package netguard

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	own := Networks{Allow: prefixes("10.1.0.0/16", "100.64.0.0/10", "0.0.0.0/1", "fd00::/8"),
		Deny: prefixes("10.1.9.0/24", "8.8.8.0/24", "2606:4700::/32")}
	for _, c := range []struct {
		n         Networks
		yes, nope string
	}{
		{Networks{}, "8.8.8.8", "10.1.2.3 127.0.0.1 fd00::1"},
		{own, "10.1.2.3 ::ffff:10.1.2.3 100.64.1.1 9.9.9.9 fd00::1 127.0.0.1",
			"10.1.9.1 ::ffff:10.1.9.1 8.8.8.8 ::ffff:8.8.8.8 192.168.0.1 fe80::1 2606:4700::1 64:ff9b::10.1.2.3 " +
				"64:ff9b::8.8.8.8"},
		// credentials of clouds
		{Networks{Allow: prefixes("0.0.0.0/0", "::/0")}, "10.0.0.1 fd00::1", "169.254.169.254 ::ffff:169.254.169.254 " +
			"fe80::1 fe80::1%eth0 100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 64:ff9b::169.254.169.254 " +
			"fd12::5efe:169.254.169.254"},
		// addresses that lead to this machine
		{Networks{Allow: prefixes("0.0.0.0/2", "::/64", "64:ff9b::/96")}, "10.0.0.1 64:ff9b::10.0.0.1",
			"0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0 64:ff9b::0.0.0.0"},
	} {
		g := New(Options{Networks: c.n})
		for s := range strings.FieldsSeq(c.yes) {
			if !g.Allowed(netip.MustParseAddr(s)) {
				t.Errorf("%+v: %s is refused", c.n, s)
			}
		}
		for s := range strings.FieldsSeq(c.nope) {
			if g.Allowed(netip.MustParseAddr(s)) {
				t.Errorf("%+v: %s is allowed", c.n, s)
			}
		}
	}
}

// A connection is checked when it is opened, by the networks of that moment.
func TestNetworksChange(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	g := New(Options{})
	dial := func() error {
		c, err := g.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); !errors.Is(err, ErrRefused) {
		t.Errorf("before: %v", err)
	}
	if _, err := g.CheckURL("https://10.0.0.5/"); err == nil || !strings.Contains(err.Error(), "10.0.0.5 is not") {
		t.Errorf("a private address: %v", err)
	}
	g.SetNetworks(Networks{Allow: prefixes("127.0.0.0/8"), Deny: prefixes("10.0.0.0/24")})
	if err := dial(); err != nil {
		t.Errorf("allowed: %v", err)
	}
	for text, want := range map[string]string{"https://10.1.0.5/": "10.1.0.5 is neither", "https://10.0.0.5/": "denies"} {
		if _, err := g.CheckURL(text); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	g.SetNetworks(Networks{Allow: prefixes("127.0.0.0/8"), Deny: prefixes("127.0.0.1/32")})
	if err := dial(); !errors.Is(err, ErrRefused) {
		t.Errorf("denied: %v", err)
	}
}

// The program's own listeners stay unreachable in an allowed network.
func TestAllowedNetworkWithThisNode(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	at := netip.MustParseAddrPort(l.Addr().String())
	g := New(Options{Networks: Networks{Allow: prefixes("127.0.0.0/8")},
		DenySelf: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())}})
	if c, err := g.DialContext(t.Context(), "tcp", at.String()); !errors.Is(err, ErrRefused) {
		if err == nil {
			c.Close()
		}
		t.Errorf("the node reached itself: %v", err)
	}
}

func TestIsMetadata(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"169.254.169.254/32": true, "169.254.0.0/16": true, "169.254.0.0/15": false,
		"10.0.0.0/8": false, "fe80::/64": true, "::/0": false} {
		if got := IsMetadata(netip.MustParsePrefix(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
