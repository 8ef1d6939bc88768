//go:build postfix

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
)

// postfix is a temporary Postfix instance that uses only loopback and keeps its configuration, queue and log in a
// temporary folder.
type postfix struct {
	t    *testing.T
	dir  string
	addr string // address of Postfix's SMTP port
}

// postfixMain configures Postfix to relay all mail from this machine according to the transport table, without local
// delivery and without DNS. With this configuration, Postfix bounces deferred mail immediately, so that tests receive
// the bounce report.
const postfixMain = `compatibility_level = 3.6
queue_directory = %[1]s/spool
data_directory = %[1]s/data
maillog_file = %[1]s/log/maillog
maillog_file_prefixes = %[1]s/log
myhostname = relay.postfix.example
mydestination =
local_recipient_maps =
alias_maps =
alias_database =
mynetworks = 127.0.0.0/8
inet_interfaces = loopback-only
inet_protocols = ipv4
smtp_dns_support_level = disabled
smtp_tls_security_level = may
smtpd_tls_security_level = none
smtpd_peername_lookup = no
smtpd_relay_restrictions = permit_mynetworks, reject
transport_maps = texthash:%[1]s/transport
default_transport = error:5.4.4 this relay knows no such domain
maximal_queue_lifetime = 0
bounce_queue_lifetime = 0
minimal_backoff_time = 1s
queue_run_delay = 1s
in_flow_delay = 0
disable_vrfy_command = yes
`

// postfixMaster lists the services that Postfix needs, all without a chroot; master(5) describes the columns.
const postfixMaster = `%[1]s inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
`

// startPostfix starts a Postfix instance. The routes are the lines of Postfix's transport table, one per address or
// domain.
func startPostfix(t *testing.T, routes ...string) *postfix {
	t.Helper()
	p := &postfix{t: t, dir: t.TempDir(), addr: freeport.Addr(t)}
	for _, name := range []string{"..", "", "etc", "spool", "data", "log"} {
		// The Postfix daemons run as another user, which cannot access the test's temporary folders.
		path := filepath.Join(p.dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.shell("chown", "postfix", filepath.Join(p.dir, "data"))
	p.write("etc/main.cf", fmt.Sprintf(postfixMain, p.dir))
	p.write("etc/master.cf", fmt.Sprintf(postfixMaster, p.addr))
	p.write("transport", strings.Join(routes, "\n")+"\n")
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(p.dir, "log", "maillog"))
			t.Logf("Postfix said:\n%s", log)
		}
	})
	p.shell("postfix", "-c", filepath.Join(p.dir, "etc"), "start")
	t.Cleanup(func() { p.shell("postfix", "-c", filepath.Join(p.dir, "etc"), "stop") })
	eventually(t, 20*time.Second, "Postfix answers", func() bool {
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return p
}

func (p *postfix) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *postfix) shell(name string, args ...string) {
	p.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
