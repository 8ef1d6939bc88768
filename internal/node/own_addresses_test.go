package node

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// A node does not start if http_listen cannot be resolved. It could not block user-supplied URLs that lead to its own
// listener.
func TestUnknownListenAddress(t *testing.T) {
	t.Parallel()
	c := config.Config{DataDir: t.TempDir(), HTTPListen: "127.0.0.1:70000"}
	n, err := Open(t.Context(), c, slog.New(slog.DiscardHandler), Options{})
	if err == nil {
		n.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "http_listen") {
		t.Errorf("Open returned %v", err)
	}
	c.AllowLoopback = true
	if own, err := ownAddresses(c); err != nil || len(own) != 0 {
		t.Errorf("with allow_loopback: %v, %v", own, err)
	}
}

// User-supplied URLs reach no listener of the node, also if the setting of the listener has a port alone and the
// operator allows the network of the node.
func TestOwnListeners(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for what, c := range map[string]config.Config{"http": {HTTPListen: ":" + port}, "https": {HTTPSListen: ":" + port},
		"metrics": {MetricsListen: "127.0.0.1:" + port}, "smtp_in": {SMTPInListen: "0.0.0.0:" + port},
		"submit": {SMTPSubmitListen: ":" + port}, "submits": {SMTPSubmitsListen: "[::]:" + port}} {
		own, err := ownAddresses(c)
		if err != nil {
			t.Fatal(err)
		}
		g := netguard.New(netguard.Options{DenySelf: own,
			Networks: netguard.Networks{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
		conn, err := g.DialContext(t.Context(), "tcp", l.Addr().String())
		if !errors.Is(err, netguard.ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
