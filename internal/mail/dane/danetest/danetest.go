// Package danetest provides a lab for DANE: domains in signed zones, a validating resolver, and mail hosts with
// certificates of every kind. Each domain has the verdict that RFC 7672 demands, so that tests can compare it with what
// a sender does. [Lab.Verdicts] gives those of Postfix.
//
// # Invariants
//
//   - Zones are signed by ldns-signzone, and unbound validates them. No part of the lab shares code with the sender.
//   - A mail host has an address of its own and belongs to one domain. It records what it receives before and after
//     TLS begins.
//   - All traffic stays on loopback addresses.
//
// # Failures
//
// Failures are reported to the testing.TB with which a [Lab] was created. Its servers stop when the test ends.
//
// # Out of scope
//
// Loopback addresses other than 127.0.0.1 exist only on Linux. Postfix needs port 25, port 53 and a resolv.conf.
// [Isolate] provides them in separate namespaces.
package danetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Zone is the signed zone above all domains of a lab. The resolver trusts its key.
const Zone = "lab"

// Verdict is what happens to an email to a domain.
type Verdict string

// These are the verdicts.
const (
	Verified  Verdict = "verified"  // sent over TLS, with a certificate that matches the TLSA records
	Encrypted Verdict = "encrypted" // sent over TLS, with any certificate
	Clear     Verdict = "clear"     // sent without TLS
	Waits     Verdict = "waits"     // not sent; tried again later
)

// Domain is a recipient domain of a lab.
type Domain struct {
	Name string
	Want Verdict
	// Hosts is the number of mail hosts. If there are several, the domain N.NAME has only the Nth one.
	Hosts int
}

// Lab has the servers of the domains.
type Lab struct {
	Domains []Domain
	DNS     string // address of the validating resolver
	Port    int    // of the mail hosts

	t     testing.TB
	dir   string
	zones []*zone
	hosts map[string][]*host // by domain
}

// New starts a lab with the standard domains, or with a sample of them. It uses port 53 and port 25 if the process is
// isolated, and free ports otherwise.
func New(t testing.TB, all bool) *Lab {
	t.Helper()
	l := &Lab{DNS: "127.0.0.1:53", Port: 25, t: t, dir: t.TempDir(), hosts: map[string][]*host{}}
	if !Isolated() {
		l.DNS, l.Port = "127.0.0.1:"+strconv.Itoa(freePort(t, "udp")), freePort(t, "tcp")
	}
	b := newBuilder(l, all)
	b.standard()
	l.start()
	return l
}

func freePort(t testing.TB, network string) int {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).Port
	}
	c, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Addr().(*net.TCPAddr).Port
}

// start signs the zones and starts the resolver and the mail hosts.
func (l *Lab) start() {
	l.t.Helper()
	for _, hosts := range l.hosts {
		for _, h := range hosts {
			h.start(l.t)
		}
	}
	// The DS records of the children are part of the first zone, so that zone is signed last.
	top := l.zones[0]
	for _, z := range l.zones[1:] {
		z.sign(l)
		top.add(z.name + ". NS ns." + Zone + ".")
		if z.ds != "" {
			top.add(z.ds)
		}
	}
	top.sign(l)
	l.resolver(top.ds)
}

// resolver starts unbound, which reads all zones and trusts the key of the first one.
func (l *Lab) resolver(trust string) {
	l.t.Helper()
	anchor := filepath.Join(l.dir, "anchor")
	write(l.t, anchor, trust+"\n")
	_, port, _ := net.SplitHostPort(l.DNS)
	var conf strings.Builder
	fmt.Fprintf(&conf, `server:
 do-daemonize: no
 use-syslog: no
 username: ""
 chroot: ""
 pidfile: ""
 directory: %q
 interface: 127.0.0.1
 port: %s
 do-ip6: no
 num-threads: 1
 module-config: "validator iterator"
 trust-anchor-file: %q
 local-zone: "." refuse
 local-zone: "%s." transparent
 ede: yes
remote-control:
 control-enable: no
`, l.dir, port, anchor, Zone)
	for _, z := range l.zones {
		fmt.Fprintf(&conf, "auth-zone:\n name: %q\n zonefile: %q\n for-downstream: no\n for-upstream: yes\n", z.name, z.file)
	}
	file := filepath.Join(l.dir, "unbound.conf")
	write(l.t, file, conf.String())
	// The test's own context ends before its cleanups, which stop the program.
	cmd := exec.CommandContext(context.WithoutCancel(l.t.Context()), find(l.t, "unbound", "unbound"), "-d", "-c", file)
	out, err := cmd.StderrPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatalf("start unbound: %v", err)
	}
	l.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	log := bufio.NewReader(out)
	for said := ""; ; {
		line, err := log.ReadString('\n')
		if strings.Contains(line, "start of service") {
			break
		}
		if said += line; err != nil {
			l.t.Fatalf("unbound does not start: %s", said)
		}
	}
	go log.WriteTo(new(bytes.Buffer))
}

// find returns the path of a program. Debian keeps some of them in folders that are not in every user's path.
func find(t testing.TB, name, pkg string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/usr/bin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path
		}
	}
	t.Fatalf("%s is missing: run `make deps`, or install Debian's package %s", name, pkg)
	return ""
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Received returns the emails that the hosts of a domain received.
func (l *Lab) Received(domain string) (all []Message) {
	for _, h := range l.hosts[domain] {
		h.mu.Lock()
		all = append(all, h.messages...)
		h.mu.Unlock()
	}
	return all
}

// InClear returns the lines that the hosts of a domain received before TLS began, apart from greetings, STARTTLS and
// QUIT.
func (l *Lab) InClear(domain string) (lines []string) {
	for _, h := range l.hosts[domain] {
		h.mu.Lock()
		lines = append(lines, h.clear...)
		h.mu.Unlock()
	}
	return lines
}

// run runs a program in the folder of the lab and returns its output.
func (l *Lab) run(name, pkg string, args ...string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, find(l.t, name, pkg), args...)
	cmd.Dir = l.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}
