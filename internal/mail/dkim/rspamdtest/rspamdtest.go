// Package rspamdtest starts rspamd in tests, to judge signatures of messages. The program gets DNS records from its
// configuration and asks no DNS server.
package rspamdtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
)

// Program returns the path of rspamd, or "" if it is not installed.
func Program() string {
	program, err := exec.LookPath("rspamd")
	if err != nil {
		return ""
	}
	return program
}

// Symbols are the results of the modules that judged a message, by name. The options of a result name signatures.
type Symbols map[string]struct {
	Options []string `json:"options"`
}

// Server is a running rspamd with its modules for DKIM and ARC, and no others.
type Server struct {
	url    string
	client http.Client
}

// Start starts rspamd with the TXT records of some names, until the test ends. The program must be installed.
func Start(t testing.TB, records map[string]string, workers int) *Server {
	t.Helper()
	folder, address := t.TempDir(), freeport.Addr(t)
	var replies strings.Builder
	for name, text := range records {
		fmt.Fprintf(&replies, "{ name = %q; type = txt; replies = [%q]; },\n", name, text)
	}
	conf := fmt.Sprintf(`
options { pidfile = "%[1]s/pid"; filters = "dkim"; url_tld = "%[1]s/tld"; task_timeout = 20s;
  control_socket = "%[1]s/control";
  dns { nameserver = ["127.0.0.1:1"]; fake_records = [ %[2]s ]; } }
logging { type = "file"; filename = "%[1]s/log"; level = "info"; }
worker "normal" { bind_socket = "%[3]s"; count = %[4]d; task_timeout = 20s; }
metric { name = "default"; actions { reject = 100; } }
lua = "/usr/share/rspamd/rules/rspamd.lua";
modules { path = "/usr/share/rspamd/plugins/arc.lua"; }
dkim { }
arc { sign_networks = []; whitelisted_signers_map = []; }
`, folder, replies.String(), address, workers)
	for name, text := range map[string]string{"conf": conf, "tld": "example\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), Program(), "-f", "-i", "-c", filepath.Join(folder, "conf"))
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			return &Server{url: "http://" + address + "/checkv2"}
		}
		select {
		case err := <-ended:
			log, _ := os.ReadFile(filepath.Join(folder, "log"))
			t.Fatalf("rspamd ended: %v\n%s\n%s", err, out, log)
		case <-t.Context().Done():
			t.Fatal("rspamd does not answer")
		case <-time.After(50 * time.Millisecond): // until rspamd listens
		}
	}
}

// Check lets rspamd judge a message.
func (s *Server) Check(t testing.TB, msg []byte) (Symbols, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, bytes.NewReader(msg))
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out struct {
		Symbols Symbols `json:"symbols"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	return out.Symbols, nil
}
