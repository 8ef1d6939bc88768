package netguard

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		addrs string
		want  bool
	}{
		// public addresses, some of them just outside refused ranges
		{"1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 " +
			"169.255.0.0", true},
		{"172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 " +
			"223.255.255.255", true},
		{"168.63.129.15 168.63.129.17 203.0.112.255 203.0.114.0", true},
		{"2606:4700:4700::1111 2a00:1450:4001:82a::200e 2001:4860:4860::8888 2001:200::1 2001:db9::1 2003::1 2000::1 3ffe::1",
			true},
		// IPv4.
		{"0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.255",
			false},
		{"168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 " +
			"192.168.0.1", false},
		{"198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.7 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255", false},
		// IPv6.
		{":: ::1 fe80::1 fe80::1%eth0 febf::1 fec0::1 fc00::1 fd00:ec2::254 fdff::1 ff02::1 ff0e::1 100::1 5f00::1 " +
			"4000::1 8000::1 fffe::1", false},
		{"2001:db8::1 3fff::1 3fff:fff::1 2001::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff::1", false},
		{"2606:4700::1%eth0", false},
		// IPv4 within IPv6.
		{"::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254", false},
		{"::ffff:8.8.8.8", true},
		{"::127.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8", false},
		{"64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:0:0:0:1:808:808", false},
		{"64:ff9b::8.8.8.8", true},
		{"64:ff9b:1::8.8.8.8 64:ff9b:1:a00:1:: 64:ff9b:1::127.0.0.1", false},
		{"2002:7f00:1:: 2002:a00:1::1 2002:808:808::1", false},
		{"2001:0:7f00:1::1 2001:0:808:808:0:0:80ff:fffe", false},
		{"2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:192.168.0.1 fe80::5efe:8.8.8.8", false},
		{"2606:4700::5efe:8.8.8.8 2606:4700::200:5efe:8.8.8.8 2606:4700::100:5efe:10.0.0.1", true},
	}
	g := New(Options{})
	for _, tt := range tests {
		for s := range strings.FieldsSeq(tt.addrs) {
			if got := g.Allowed(netip.MustParseAddr(s)); got != tt.want {
				t.Errorf("Allowed(%s) = %v, want %v", s, got, tt.want)
			}
		}
	}
	if g.Allowed(netip.Addr{}) {
		t.Error("no address is allowed")
	}
}

func TestAllowedByOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		opt       Options
		yes, nope string
	}{
		{"loopback", Options{AllowLoopback: true}, "127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 8.8.8.8",
			"0.0.0.0 :: 10.0.0.1 ::127.0.0.1 64:ff9b::127.0.0.1 169.254.169.254"},
		{"prefixes", Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"),
			netip.MustParsePrefix("fd00:1::/32")}},
			"10.1.2.3 ::ffff:10.1.2.3 fd00:1::9 8.8.8.8", "10.2.0.1 127.0.0.1 fd00:2::1 64:ff9b::10.1.2.3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := New(tt.opt)
			for s := range strings.FieldsSeq(tt.yes) {
				if !g.Allowed(netip.MustParseAddr(s)) {
					t.Errorf("%s is refused", s)
				}
			}
			for s := range strings.FieldsSeq(tt.nope) {
				if g.Allowed(netip.MustParseAddr(s)) {
					t.Errorf("%s is allowed", s)
				}
			}
		})
	}
}

// FuzzAllowed checks two rules. If an IPv4 address is refused, all IPv6 addresses that embed it are also refused.
// Addresses that package netip classifies as special (such as loopback) are refused.
func FuzzAllowed(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "10.1.2.3", "169.254.169.254", "8.8.8.8", "0.0.0.0", "255.255.255.255",
		"100.64.0.1"} {
		v4 := netip.MustParseAddr(s).As4()
		f.Add(v4[:], []byte("\x26\x06\x47\x00"))
	}
	f.Add([]byte{1, 2, 3, 4}, netip.MustParseAddr("64:ff9b::a00:1").AsSlice())
	f.Add([]byte{1, 2, 3, 4}, netip.MustParseAddr("fe80::1").AsSlice())
	g := New(Options{})
	f.Fuzz(func(t *testing.T, four, sixteen []byte) {
		var v4 [4]byte
		copy(v4[:], four)
		addr := netip.AddrFrom4(v4)
		var b [16]byte
		copy(b[:], sixteen)
		for _, a := range []netip.Addr{addr, netip.AddrFrom16(b)} {
			u := a.Unmap()
			if g.Allowed(a) && (!u.IsGlobalUnicast() || u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() ||
				u.IsUnspecified() || u.IsMulticast()) {
				t.Errorf("%s is allowed", a)
			}
			if g.Allowed(a) != g.Allowed(u) {
				t.Errorf("%s and %s are judged differently", a, u)
			}
		}
		if g.Allowed(addr) {
			return
		}
		flipped := [4]byte{^v4[0], ^v4[1], ^v4[2], ^v4[3]}
		for _, e := range []struct {
			prefix string
			at     int
			four   [4]byte
		}{
			{"::ffff:0:0", 12, v4}, {"::", 12, v4}, {"::ffff:0:0:0", 12, v4}, {"64:ff9b::", 12, v4}, {"64:ff9b:1::", 12, v4},
			{"64:ff9b:1::", 6, v4},
			{"2002::", 2, v4}, {"2001::", 4, v4}, {"2001::", 12, flipped}, {"2606:4700::5efe:0:0", 12, v4},
			{"2606:4700::200:5efe:0:0", 12, v4},
		} {
			b := netip.MustParseAddr(e.prefix).As16()
			copy(b[e.at:], e.four[:])
			if a := netip.AddrFrom16(b); g.Allowed(a) {
				t.Errorf("%s is refused, but %s, which embeds it, is allowed", addr, a)
			}
		}
	})
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	good := map[string]string{
		"https://example.com":                              "https://example.com",
		"HTTP://Example.com/a?b=c#d":                       "http://Example.com/a?b=c",
		"https://example.com:8443/hook":                    "https://example.com:8443/hook",
		"https://8.8.8.8/":                                 "https://8.8.8.8/",
		"https://[2606:4700::1]:444/":                      "https://[2606:4700::1]:444/",
		"https://bücher.example/ü?q=1":                     "https://b%C3%BCcher.example/%C3%BC?q=1",
		"https://x.test/" + strings.Repeat("a", MaxURL-15): "https://x.test/" + strings.Repeat("a", MaxURL-15),
	}
	for in, want := range good {
		if u, err := g.CheckURL(in); err != nil || u.String() != want {
			t.Errorf("CheckURL(%.80q) = %v, %v; want %.80s", in, u, err, want)
		}
	}
	bad := map[string]string{
		"":                              "begin with https://",
		"example.com/hook":              "begin with https://",
		"//example.com/hook":            "begin with https://",
		"ftp://example.com/":            "begin with https://",
		"file:///etc/passwd":            "begin with https://",
		"javascript:alert(1)":           "begin with https://",
		"https:example.com":             "must name a host",
		"https://":                      "must name a host",
		"https:///path":                 "must name a host",
		"https://:443/":                 "must name a host",
		"https://user:pw@example.com/":  "user name",
		"https://@example.com/":         "user name",
		"https://example.com:0/":        "port between",
		"https://example.com:65536/":    "port between",
		"https://example.com:/":         "port between",
		"https://example.com:x/":        "valid URL",
		"https://exa mple.com/":         "valid URL",
		"https://example.com/\n":        "valid URL",
		"https://example.com/%zz":       "valid URL",
		"http://127.0.0.1/":             "public address",
		"http://[::1]:80/":              "public address",
		"http://[::ffff:10.0.0.1]/":     "public address",
		"http://[fe80::1%25eth0]/":      "public address",
		"http://169.254.169.254/latest": "public address",
		"http://localhost:8080/":        "public address",
		"http://LOCALHOST./":            "public address",
		"http://a.localhost/":           "public address",
		"https://x.test/" + strings.Repeat("a", MaxURL-14): "at most 2048 characters",
	}
	for in, want := range bad {
		if u, err := g.CheckURL(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckURL(%.80q) = %v, %v; want an error with %q", in, u, err, want)
		}
	}
	dev := New(Options{AllowLoopback: true})
	for _, in := range []string{"http://127.0.0.1:3000/", "http://localhost:3000/", "http://[::1]/"} {
		if _, err := dev.CheckURL(in); err != nil {
			t.Errorf("with loopback allowed, CheckURL(%s): %v", in, err)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://example.com:8443/a?b#c", "http://[::1]/", "http://u@h/",
		"https://%31%32%37.0.0.1/", "http://127.1/", "http://0x7f.1/"} {
		f.Add(s)
	}
	g := New(Options{})
	f.Fuzz(func(t *testing.T, s string) {
		u, err := g.CheckURL(s)
		if err != nil {
			return
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
			t.Errorf("CheckURL(%q) = %q", s, u)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && !g.Allowed(addr) {
			t.Errorf("CheckURL(%q) leads to %s", s, addr)
		}
	})
}

// listen returns the address of a loopback listener that accepts connections and closes them immediately.
func listen(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestDialContext(t *testing.T) {
	t.Parallel()
	at := listen(t)
	port := at.Port()
	tests := []struct {
		name    string
		opt     Options
		address string
		refused bool
	}{
		{"loopback", Options{}, at.String(), true},
		{"a name of loopback", Options{}, net.JoinHostPort("localhost", at.String()[len("127.0.0.1:"):]), true},
		{"unspecified", Options{AllowLoopback: true}, netip.AddrPortFrom(netip.IPv4Unspecified(), port).String(), true},
		{"loopback allowed", Options{AllowLoopback: true}, at.String(), false},
		{"prefix allowed", Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, at.String(), false},
		{"another prefix allowed", Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}, at.String(),
			true},
		{"ourselves", Options{AllowLoopback: true, DenySelf: []netip.AddrPort{at}}, at.String(), true},
		{"ourselves on all addresses", Options{AllowLoopback: true,
			DenySelf: []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), port)}}, at.String(), true},
		{"ourselves on another port", Options{AllowLoopback: true, DenySelf: []netip.AddrPort{netip.AddrPortFrom(at.Addr(),
			port-1)}}, at.String(), false},
		{"ourselves on another address", Options{AllowLoopback: true,
			DenySelf: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port)}}, at.String(), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := New(tt.opt).DialContext(t.Context(), "tcp", tt.address)
			if err == nil {
				c.Close()
			}
			if tt.refused != errors.Is(err, ErrRefused) || !tt.refused && err != nil {
				t.Errorf("DialContext %s: %v; refused should be %v", tt.address, err, tt.refused)
			}
		})
	}
	if c, err := New(Options{}).DialContext(t.Context(), "udp", "8.8.8.8:53"); !errors.Is(err, ErrRefused) {
		t.Errorf("udp: %v, %v; want ErrRefused", c, err)
	}
}

func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	list, err := net.InterfaceAddrs()
	if err != nil || len(list) == 0 {
		t.Fatalf("addresses of the machine: %v, %v", list, err)
	}
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if !ok {
			t.Fatalf("address %v", a)
		}
		if ours, err := onThisMachine(addr.Unmap()); err != nil || !ours {
			t.Errorf("%s is not on this machine: %v", addr, err)
		}
	}
	if ours, err := onThisMachine(netip.MustParseAddr("203.0.113.9")); err != nil || ours {
		t.Errorf("an address of documentation is on this machine: %v", err)
	}
}
