//go:build packages

package packages

import (
	"path/filepath"
	"strings"
	"testing"
)

// The rpm has the expected contents and requirements, and is installed, verified and removed in a folder. The data and
// changed settings stay.
func TestRPM(t *testing.T) {
	if !inside(t) {
		return
	}
	m := newMachine(t)
	file := release(t, "postrider-*.x86_64.rpm")
	shown := m.here("rpm", "-qp", "--queryformat", "%{NAME} %{ARCH} %{LICENSE} %{BUILDHOST}\n", file)
	if shown != "postrider x86_64 Apache-2.0 localhost" {
		t.Errorf("rpm -qp shows %q", shown)
	}
	for _, args := range [][]string{{"--list", "/usr/bin/postrider"}, {"--list", "/usr/lib/systemd/system/postrider.service"},
		{"--configfiles", "/etc/postrider/postrider.toml"},
		{"--configfiles", "/etc/postrider/environment"}, {"--list", "/usr/share/zsh/site-functions/_postrider"},
		{"--requires", "shadow-utils"}, {"--scripts", "useradd"}} {
		if got := m.here("rpm", "-qp", args[0], file); !strings.Contains(got, args[1]) {
			t.Errorf("rpm -qp %s shows no %s:\n%s", args[0], args[1], got)
		}
	}

	rpm := func(args ...string) string {
		t.Helper()
		return m.here("rpm", append([]string{"--root", m.root, "--nodeps"}, args...)...)
	}
	rpm("-i", file)
	if got := rpm("-V", "postrider"); got != "" {
		t.Errorf("rpm -V shows %q", got)
	}
	if got := m.run("stat -c '%U:%G %a' /etc/postrider/postrider.toml /etc/postrider/environment /var/lib/postrider " +
		"/var/backups/postrider"); got != "root:postrider 640\nroot:postrider 640\npostrider:postrider 700\n"+
		"postrider:postrider 700" {
		t.Errorf("owners and modes:\n%s", got)
	}
	m.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
	m.run("cat >>/etc/postrider/postrider.toml <<'END'" + settings + "END\n")
	s := m.startService()
	s.await("http://127.0.0.1")
	s.stop()

	rpm("-e", "postrider")
	m.run("test ! -e /usr/bin/postrider && test -s /var/lib/postrider/secret.key && test -s " +
		filepath.Join("/etc/postrider", "postrider.toml.rpmsave"))
}
