package node

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
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
