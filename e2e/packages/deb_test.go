//go:build packages

package packages

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// settings are those of a node that sends through a relay on this machine. Its domains count as verified, because the
// test has no DNS.
const settings = `
hostname = "mail.example.com"
public_url = "http://127.0.0.1"
http_listen = ":80"
roles = ["api", "delivery", "jobs", "receiving", "submission"]
transport = "relay"
relay_addr = "127.0.0.1:2526"
trust_domains = true
rate_limit = 0
`

// sink accepts the mail that a test sends.
type sink struct{ messages chan string }

func startSink(t *testing.T, address string) *sink {
	t.Helper()
	s := &sink{make(chan string, 100)}
	running, err := smtpsink.Config{OnMessage: func(_ string, _ []string, data []byte) { s.messages <- string(data) }}.
		Start(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { running.Close() })
	return s
}

// receive waits for a message that contains a text.
func (s *sink) receive(t *testing.T, text string) {
	t.Helper()
	select {
	case m := <-s.messages:
		if !strings.Contains(m, text) {
			t.Errorf("received another message than %q:\n%s", text, m)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no message with %q arrives", text)
	}
}

// call makes an API request and decodes the response.
func call(t *testing.T, method, url, key, body string, to any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s, %v", method, url, answer.StatusCode, text, err)
	}
	if to != nil {
		if err := json.Unmarshal(text, to); err != nil {
			t.Fatal(err)
		}
	}
}

// The package for Debian is installed, its unit's command runs as its user and sends an email, and the package is
// upgraded, removed and purged. The data stays until somebody agrees to delete it.
func TestDeb(t *testing.T) {
	if !inside(t) {
		return
	}
	mail := startSink(t, "127.0.0.1:2526")
	m := newMachine(t)
	file := release(t, "postrider_*_amd64.deb")
	m.copyIn(file)
	m.run("apt-get install -y --no-install-recommends /root/" + filepath.Base(file))
	if got := m.run("stat -c '%U:%G %a' /etc/postrider/postrider.toml /etc/postrider/environment /var/lib/postrider " +
		"/var/backups/postrider /usr/bin/postrider"); got != "root:postrider 640\nroot:postrider 640\n"+
		"postrider:postrider 700\npostrider:postrider 700\nroot:root 755" {
		t.Errorf("owners and modes:\n%s", got)
	}
	m.run("grep -q __complete /usr/share/bash-completion/completions/postrider " +
		"/usr/share/zsh/vendor-completions/_postrider /usr/share/fish/vendor_completions.d/postrider.fish")
	m.run("test -s /usr/share/doc/postrider/operating/troubleshooting.md")
	if got := m.run("id -un postrider; dpkg --verify postrider"); got != "postrider" {
		t.Errorf("after the installation: %s", got)
	}

	m.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
	m.run("cat >>/etc/postrider/postrider.toml <<'END'" + settings + "END\n")
	s := m.startService()
	s.await("http://127.0.0.1")
	for _, port := range []string{"25", "465", "587"} {
		if err := listens("127.0.0.1:" + port); err != nil {
			t.Errorf("port %s: %v", port, err)
		}
	}
	if !strings.Contains(s.said.String(), `msg="RSA signatures" implementation=`) ||
		!strings.Contains(s.said.String(), "libcrypto=") {
		t.Errorf("the node does not log its choice for signatures:\n%s", s.said.String())
	}
	const asUser = "runuser -u postrider -- "
	key := m.run("cd /root && " + asUser + "postrider keys create --team Example --create-team")
	var d struct{ ID, Status string }
	call(t, "POST", "http://127.0.0.1/domains", key, `{"name":"example.com"}`, &d)
	call(t, "POST", "http://127.0.0.1/domains/"+d.ID+"/verify", key, "", nil)
	eventually(t, "the domain is verified", func() bool {
		call(t, "GET", "http://127.0.0.1/domains/"+d.ID, key, "", &d)
		return d.Status == "verified"
	})
	send := func(subject string) {
		t.Helper()
		call(t, "POST", "http://127.0.0.1/emails", key,
			`{"from":"a@example.com","to":"b@example.net","subject":"`+subject+`","text":"t"}`, nil)
		mail.receive(t, "Subject: "+subject)
	}
	send("after the installation")
	commandsOfUser(m)
	support := asUser + "postrider support /tmp/support.tar.gz && tar -xzOf /tmp/support.tar.gz"
	if got := m.run(support); !strings.Contains(got, "RSA signatures") || strings.Contains(got, key) {
		t.Errorf("the archive for support has\n%s", got)
	}

	newer := newerDeb(t, file)
	m.copyIn(newer)
	m.run("apt-get install -y /root/" + filepath.Base(newer))
	s.stop()
	s = m.startService()
	s.await("http://127.0.0.1")
	send("after the upgrade")
	s.stop()

	m.run("apt-get remove -y postrider")
	m.run("test ! -e /usr/bin/postrider && test -s /var/lib/postrider/secret.key && test -s /var/lib/postrider/postrider.db")
	m.run("grep -q 'mail.example.com' /etc/postrider/postrider.toml")
	m.run("apt-get install -y /root/" + filepath.Base(newer))
	m.run("apt-get purge -y postrider") // nobody can be asked, so the data stays
	m.run("test ! -e /etc/postrider && test -s /var/lib/postrider/secret.key && id postrider")

	m.run("apt-get install -y /root/" + filepath.Base(newer))
	if said := purgeAs(m, "no"); !strings.Contains(said, "Delete all data of Postrider?") {
		t.Errorf("purge does not ask:\n%s", said)
	}
	m.run("test -s /var/lib/postrider/secret.key")
	m.run("apt-get install -y /root/" + filepath.Base(newer))
	purgeAs(m, "yes")
	m.run("test ! -e /var/lib/postrider && ! id postrider")

	m.run("apt-get install -y /root/" + filepath.Base(newer) +
		" && echo postrider postrider/purge_data boolean true | debconf-set-selections && apt-get purge -y postrider")
	m.run("test ! -e /var/lib/postrider")
}

// commandsOfUser runs commands as the user of the node.
func commandsOfUser(m *machine) {
	m.t.Helper()
	const asUser = "cd / && runuser -u postrider -- postrider "
	// Commands read the variables of the unit, which other users cannot read.
	m.run("echo POSTRIDER_CAA_ISSUER=ca.example >>/etc/postrider/environment")
	if got := m.run(asUser + "config show --changed"); !strings.Contains(got, "caa_issuer") ||
		!strings.Contains(got, "POSTRIDER_CAA_ISSUER in /etc/postrider/environment:") {
		m.t.Errorf("the settings are\n%s", got)
	}
	m.refuse("cd / && runuser -u nobody -- postrider config show")
	m.run(asUser + "backup /var/backups/postrider/one.tar")
}

// purgeAs purges the package as a person at a terminal, who answers the question with a word.
func purgeAs(m *machine, answer string) string {
	m.t.Helper()
	m.write("/root/purge", "#!/bin/sh\nDEBIAN_FRONTEND=teletype exec apt-get purge -y postrider\n")
	m.here("chmod", "755", filepath.Join(m.root, "root/purge"))
	c := m.command("script", "-qec", "/root/purge", "/dev/null")
	terminal := &said{}
	c.Stdout, c.Stderr = terminal, terminal
	in, err := c.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	eventually(m.t, "the question is asked", func() bool { return strings.Contains(terminal.String(), "[yes/no]") })
	if _, err := in.Write([]byte(answer + "\n")); err != nil {
		m.t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		m.t.Fatalf("purge: %v\n%s", err, terminal)
	}
	return terminal.String()
}

// newerDeb returns the same package with a later version.
func newerDeb(t *testing.T, file string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "unpacked")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run("dpkg-deb", "-R", file, folder)
	control := filepath.Join(folder, "DEBIAN", "control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	var changed bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Version: ") {
			line = "Version: 99.0.0-1\n"
		}
		changed.WriteString(line)
	}
	if err := os.WriteFile(control, changed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "postrider_99.0.0-1_amd64.deb")
	run("dpkg-deb", "-Znone", "--root-owner-group", "-b", folder, newer)
	return newer
}
