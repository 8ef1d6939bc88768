package cli

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/telemetry"
)

// writeLater writes a file so that its time of change differs from that of the version before.
func writeLater(t *testing.T, path, text string, version int) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Duration(version) * time.Second)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// destinationsDegraded reports whether /readyz says that the file of destinations is not used.
func destinationsDegraded(t *testing.T, n *node.Node) bool {
	t.Helper()
	for _, c := range n.Ready(t.Context()).Checks {
		if c.Name == "destinations" {
			return c.Status == telemetry.StatusDegraded
		}
	}
	t.Fatal("no check of the destinations")
	return false
}

// SIGHUP makes a running node take over the live settings and the file of destinations, while it answers requests and
// delivers. Settings that need a restart stay, and invalid settings change nothing.
func TestReload(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		file := filepath.Join(t.TempDir(), "destinations.toml")
		writeLater(t, file, "[a]\ndomains = [\"a.example\"]\npaused = true\nreason = \"first\"", 0)
		p.vars["POSTRIDER_DESTINATIONS_FILE"] = file
		p.vars["POSTRIDER_TRANSPORT"] = "direct" // captured mail waits for no destination
		level := new(slog.LevelVar)
		p.options.LogLevel = level
		caught := catchHangups()
		t.Cleanup(caught.stop)
		n := p.start()
		next := n.Config
		next.RateLimit, next.LogLevel, next.EmailRetention = 9000, slog.LevelDebug, 240*time.Hour
		next.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")}
		next.AlertTo, next.NoticeFrom = []config.Secret{"https://example.com/alarm"}, "other@example.com"
		next.Relays = []config.Relay{{Name: "corp", Address: "127.0.0.1:1", TLS: "none", Domains: []string{"b.example"}}}
		var mu sync.Mutex
		given, problem, reads := next, error(nil), 0
		t.Cleanup(caught.reload(n.Node, func() (config.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return given, problem
		}))
		hangUp := func(c config.Config, err error, what string, done func() bool) {
			t.Helper()
			mu.Lock()
			given, problem = c, err
			mu.Unlock()
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			eventually(t, what, done)
		}
		work, finish := make(chan struct{}), sync.WaitGroup{}
		for range 3 {
			finish.Go(func() {
				for {
					select {
					case <-work:
						return
					default:
						n.ask(key, "GET", "/domains", "")
						n.Keeps()
						n.Delivery.Held("a.example")
						n.Ready(t.Context())
					}
				}
			})
		}
		defer finish.Wait()
		defer close(work)
		if n.Guard.Allowed(netip.MustParseAddr("10.8.0.1")) || destinationsDegraded(t, n.Node) {
			t.Error("the node begins with other settings")
		}
		writeLater(t, file, "[a]\ndomains = [\"a.example\"]\npaused = true\nreason = \"second\"\nrelay = \"corp\"", 1)
		hangUp(next, nil, "the settings are in use", func() bool { return n.Keeps().Emails == 240*time.Hour })
		eventually(t, "the destinations are in use", func() bool {
			reason, _, _ := n.Delivery.Held("a.example")
			return reason == "second"
		})
		if level.Level() != slog.LevelDebug || !n.Guard.Allowed(netip.MustParseAddr("10.8.0.1")) || !n.Alarms.Active() {
			t.Errorf("level %v", level.Level())
		}
		if _, body := n.ask(key, "GET", "/usage", ""); !strings.Contains(body, `"limit":9000`) {
			t.Errorf("the usage is %s", body)
		}
		if n.Config.NoticeFrom == next.NoticeFrom {
			t.Error("a setting that needs a restart has changed")
		}

		invalid := next
		invalid.RateLimit = -1
		before := reads // the node reads nothing until the next signal
		hangUp(invalid, errors.New("rate_limit: is -1"), "the settings are read", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return reads > before
		})
		if err := n.Reload(invalid); err == nil || !strings.Contains(err.Error(), "rate_limit") {
			t.Errorf("invalid settings: %v", err)
		}
		if _, body := n.ask(key, "GET", "/usage", ""); !strings.Contains(body, `"limit":9000`) {
			t.Errorf("after invalid settings, the usage is %s", body)
		}
	})
}

// A signal that comes before the node is open does not end the process, and is obeyed afterwards.
func TestHangupDuringStart(t *testing.T) {
	caught := catchHangups()
	t.Cleanup(caught.stop)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	n := migratedInstallation(t, "sqlite").start()
	var reads atomic.Int64
	t.Cleanup(caught.reload(n.Node, func() (config.Config, error) {
		reads.Add(1)
		return n.Config, nil
	}))
	eventually(t, "the settings are read again", func() bool { return reads.Load() == 1 })
}

// A relay that a table of the file of destinations names cannot be removed before the table changes: the node would
// otherwise send the table's mail another way. Afterwards it can be removed.
func TestRelayOfADestinationStays(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	file := filepath.Join(t.TempDir(), "destinations.toml")
	writeLater(t, file, "[a]\ndomains = [\"a.example\"]\nrelay = \"corp\"\npaused = true\nreason = \"first\"", 0)
	settings := filepath.Join(t.TempDir(), "postrider.toml")
	relay := "[[relays]]\nname = \"corp\"\naddress = \"127.0.0.1:1\"\ntls = \"none\"\ndomains = [\"b.example\"]"
	if err := os.WriteFile(settings, []byte(relay), 0o600); err != nil {
		t.Fatal(err)
	}
	p.vars["POSTRIDER_DESTINATIONS_FILE"], p.vars["POSTRIDER_CONFIG"] = file, settings
	p.vars["POSTRIDER_TRANSPORT"] = "direct"
	n := p.start()
	without := n.Config
	without.Relays, without.EmailRetention = nil, 240*time.Hour
	err := n.Reload(without)
	if err == nil || !strings.Contains(err.Error(), "[a]") || !strings.Contains(err.Error(), "relay corp") {
		t.Errorf("without the relay: %v", err)
	}
	if destinationsDegraded(t, n.Node) || n.Keeps().Emails != 0 {
		t.Error("the settings were taken over in part")
	}
	writeLater(t, file, "[a]\ndomains = [\"a.example\"]\npaused = true\nreason = \"second\"", 1)
	if err := n.Reload(without); err != nil {
		t.Errorf("after the table has changed: %v", err)
	}
	if reason, _, _ := n.Delivery.Held("a.example"); reason != "second" {
		t.Errorf("the reason is %q", reason)
	}
}

// The node takes over changes of the file of destinations by itself. An invalid version is reported, and the version
// before stays in use.
func TestDestinationsChange(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	file := filepath.Join(t.TempDir(), "destinations.toml")
	table := func(reason string) string {
		return "[a]\ndomains = [\"a.example\"]\npaused = true\nreason = \"" + reason + "\""
	}
	p.vars["POSTRIDER_DESTINATIONS_FILE"], p.vars["POSTRIDER_TRANSPORT"] = file, "direct"
	c := p.config()
	if n, err := node.Open(t.Context(), c, slog.New(slog.DiscardHandler), node.Options{}); err == nil {
		n.Close()
		t.Error("a node starts without the file")
	}
	writeLater(t, file, "[a]\nrate = 1", 0)
	if n, err := node.Open(t.Context(), c, slog.New(slog.DiscardHandler), node.Options{}); err == nil ||
		!strings.Contains(err.Error(), "[a].rate") || !strings.Contains(err.Error(), "destinations_file") {
		if err == nil {
			n.Close()
		}
		t.Errorf("a node starts with an invalid file: %v", err)
	}
	writeLater(t, file, table("first"), 1)
	n := p.start()
	for i, x := range []struct {
		text, want string
		failed     bool
	}{{table("second"), "second", false}, {table("third") + "\nrate = 1", "second", true}, {"", "second", true},
		{table("fourth"), "fourth", false}} {
		if writeLater(t, file, x.text, 2+i); x.text == "" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the file is read", func() bool {
			reason, _, _ := n.Delivery.Held("a.example")
			return reason == x.want && destinationsDegraded(t, n.Node) == x.failed
		})
	}
	writeLater(t, file, "", 9)
	eventually(t, "nothing is held", func() bool {
		_, _, held := n.Delivery.Held("a.example")
		return !held
	})
}
