package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	c := load(t, source(`allow_networks = ["10.8.0.0/16", "fd12::/32"]
		deny_networks = ["10.8.9.0/24"]`, nil))
	if want := []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16"), netip.MustParsePrefix("fd12::/32")}; !slices.Equal(
		c.AllowNetworks, want) || len(c.DenyNetworks) != 1 {
		t.Errorf("%v, %v", c.AllowNetworks, c.DenyNetworks)
	}
	for _, x := range []struct{ file, want string }{
		{`allow_networks = ["10.8.0.1/16"]`, "write 10.8.0.0/16 for the network, or 10.8.0.1/32"},
		{`allow_networks = ["127.0.0.0/8"]`, "addresses of this machine"},
		{`allow_networks = ["0.0.0.0/0"]`, "addresses of this machine"},
		{`allow_networks = ["::/0"]`, "addresses of this machine"},
		{`deny_networks = ["::ffff:10.0.0.0/104"]`, "written as IPv6"},
		{`deny_networks = ["ten"]`, "deny_networks"},
	} {
		if _, err := Load(source(x.file, nil)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.file, err)
		}
	}
}
