package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// parentZone is a name server for the zone "example.", at 127.0.0.10. It refers resolvers to the servers of zones below
// it, as the servers of a registry or of a customer's DNS provider do.
type parentZone struct {
	t    *testing.T
	port int
	mu   sync.Mutex
	rrs  []dns.RR
}

// startParent starts the server at a port that is also free at the addresses of the two name servers.
func startParent(t *testing.T) *parentZone {
	t.Helper()
	z := &parentZone{t: t}
	var l net.Listener
	var packets net.PacketConn
	for range 50 {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.10:0"); err != nil {
			t.Fatal(err)
		}
		z.port = l.Addr().(*net.TCPAddr).Port
		packets, err = net.ListenPacket("udp", l.Addr().String())
		if err == nil && z.isFree("127.0.0.11") && z.isFree("127.0.0.12") {
			break
		}
		l.Close()
		if err == nil {
			packets.Close()
		}
		packets = nil
	}
	if packets == nil {
		t.Fatal("found no port that is free at all addresses")
	}
	for _, s := range []*dns.Server{{Listener: l, Handler: z}, {PacketConn: packets, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	z.add("example. 60 IN SOA ns.example. admin.example. 1 3600 600 86400 1", "example. 60 IN NS ns.example.",
		"ns.example. 60 IN A 127.0.0.10")
	return z
}

func (z *parentZone) isFree(host string) bool {
	at := net.JoinHostPort(host, strconv.Itoa(z.port))
	l, err := net.Listen("tcp", at)
	if err != nil {
		return false
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", at)
	if err != nil {
		return false
	}
	p.Close()
	return true
}

func (z *parentZone) add(records ...string) {
	z.t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			z.t.Fatal(err)
		}
		z.rrs = append(z.rrs, rr)
	}
}

func (z *parentZone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	name := strings.ToLower(q.Question[0].Name)
	exists := false
	for _, rr := range z.rrs {
		h := rr.Header()
		switch {
		case h.Rrtype == dns.TypeNS && h.Name != "example." && dns.IsSubDomain(h.Name, name):
			m.Ns = append(m.Ns, rr)
			for _, glue := range z.rrs {
				if glue.Header().Name == rr.(*dns.NS).Ns {
					m.Extra = append(m.Extra, glue)
				}
			}
		case h.Name == name && h.Rrtype == q.Question[0].Qtype:
			m.Answer = append(m.Answer, rr)
		}
		exists = exists || dns.IsSubDomain(name, h.Name)
	}
	if m.Authoritative = len(m.Ns) == 0; m.Authoritative && len(m.Answer) == 0 {
		m.Ns = append(m.Ns, z.rrs[0])
		if !exists {
			m.Rcode = dns.RcodeNameError
		}
	}
	w.WriteMsg(m)
}

// startUnbound starts a recursive resolver that varies the case of names, sends no more of a name than a server needs,
// and asks the servers of the given zones at their addresses. It returns the resolver's address.
func startUnbound(t *testing.T, zones map[string][]string) string {
	t.Helper()
	program, err := exec.LookPath("unbound")
	if err != nil {
		program = "/usr/sbin/unbound" // this folder is not in the PATH of every user
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run `make deps`, or install Debian's package unbound", err)
	}
	at := freeport.Addr(t)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var conf strings.Builder
	fmt.Fprintf(&conf, `server:
  interface: 127.0.0.1
  port: %s
  directory: %q
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  do-ip6: no
  do-not-query-localhost: no
  access-control: 127.0.0.0/8 allow
  module-config: "iterator"
  use-caps-for-id: yes
  qname-minimisation: yes
  edns-buffer-size: 1232
remote-control:
  control-enable: no
`, port, dir)
	for zone, servers := range zones {
		fmt.Fprintf(&conf, "stub-zone:\n  name: %q\n", zone)
		for _, s := range servers {
			fmt.Fprintf(&conf, "  stub-addr: %s\n", s)
		}
	}
	file := filepath.Join(dir, "unbound.conf")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-d", "-c", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("unbound said:\n%s", said.String())
		}
	})
	eventually(t, "unbound answers", func() bool {
		_, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("example.", dns.TypeSOA), at)
		return err == nil
	})
	return at
}

// One NS record verifies a new domain: two name servers, which are two nodes with PostgreSQL, answer for it. An
// independent resolver and an independent client agree about the answers.
func TestOneRecordVerifiesADomain(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		parent := startParent(t)
		ns1, ns2 := fmt.Sprintf("127.0.0.11@%d", parent.port), fmt.Sprintf("127.0.0.12@%d", parent.port)
		ours := []string{ns1, ns2}
		resolver := startUnbound(t, map[string][]string{"example.": {fmt.Sprintf("127.0.0.10@%d", parent.port)},
			"dns.host.example.": ours, "mail.acme.example.": ours})
		parent.add("dns.host.example. 60 IN NS ns1.dns.host.example.", "dns.host.example. 60 IN NS ns2.dns.host.example.",
			"ns1.dns.host.example. 60 IN A 127.0.0.11", "ns2.dns.host.example. 60 IN A 127.0.0.12")
		addr1, addr2 := strings.Replace(ns1, "@", ":", 1), strings.Replace(ns2, "@", ":", 1)
		for name, value := range map[string]string{"HOSTNAME": "mail.host.example", "TRUST_DOMAINS": "false",
			"ALLOW_LOOPBACK": "true", "DNS_SERVERS": resolver, "DNS_ZONE": "dns.host.example",
			"DNS_NAMES":     "ns1.dns.host.example,ns2.dns.host.example",
			"DNS_ADDRESSES": "ns1.dns.host.example=127.0.0.11,ns2.dns.host.example=127.0.0.12",
			"ROLES":         "api,delivery,jobs,dns", "DNS_LISTEN": addr1 + "," + addr2} {
			p.vars["POSTRIDER_"+name] = value
		}
		p.options = node.Options{AuthorityPort: uint16(parent.port)}
		key := p.key("Acme")
		var n *started
		if p.vars["POSTRIDER_DATABASE_URL"] == "" {
			n = p.start()
		} else {
			p.vars["POSTRIDER_DNS_LISTEN"] = addr1
			n = p.start()
			p.vars["POSTRIDER_DNS_LISTEN"] = addr2
			p.start()
		}

		var d struct{ ID, Status string }
		ask := func(method, path, body string) {
			t.Helper()
			status, text := n.ask(key, method, path, body)
			if err := json.Unmarshal([]byte(text), &d); err != nil || status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, path, status, text)
			}
		}
		ask(http.MethodPost, "/domains", `{"name":"mail.acme.example"}`)
		id := d.ID
		team := p.teamOf("Acme")[0]
		change := domains.SetupChange{Setup: new(domains.SetupDelegation)}
		if err := n.Domains.ChangeSetup(t.Context(), team, id, change); err != nil {
			t.Fatal(err)
		}
		setup, err := n.Domains.GetSetup(t.Context(), team, id)
		if err != nil || len(setup.Records) == 0 {
			t.Fatalf("set-up %+v: %v", setup, err)
		}
		for _, r := range setup.Records {
			if r.Type != "NS" {
				t.Errorf("the set-up wants more than NS records: %+v", r)
			}
			for value := range strings.FieldsSeq(r.Value) {
				parent.add(fmt.Sprintf("mail.acme.example. 60 IN NS %s.", strings.TrimSuffix(value, ".")))
			}
		}
		began := time.Now()
		ask(http.MethodPost, "/domains/"+id+"/verify", "")
		eventually(t, "the domain is verified", func() bool {
			ask(http.MethodGet, "/domains/"+id, "")
			return d.Status == "verified"
		})
		t.Logf("verified after %v", time.Since(began).Round(time.Millisecond))
		for _, server := range []string{addr1, addr2} {
			a, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("mail.acme.example.", dns.TypeSOA), server)
			if err != nil || a.Rcode != dns.RcodeSuccess {
				t.Errorf("the domain is verified, but %s answers %v, %v", server, a, err)
			}
		}
		ask(http.MethodPost, "/domains", `{"name":"late.acme.example"}`)
		installLate(n, team, d.ID, parent)
		eventually(t, "the late domain is verified", func() bool {
			_, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("x.late.acme.example.", dns.TypeTXT), addr2)
			ask(http.MethodGet, "/domains/"+d.ID, "")
			return err == nil && d.Status == "verified"
		})
		checkByUnbound(t, resolver)
		checkByDrill(t, parent.port)
	})
}

// installLate chooses a delegation for the domain late.acme.example, and installs it long after the look-ups of the
// domain have ended. The first query that reaches the name servers then causes a look-up.
func installLate(n *started, team, id string, parent *parentZone) {
	t := n.t
	t.Helper()
	change := domains.SetupChange{Setup: new(domains.SetupDelegation)}
	if err := n.Domains.ChangeSetup(t.Context(), team, id, change); err != nil {
		t.Fatal(err)
	}
	setup, err := n.Domains.GetSetup(t.Context(), team, id)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first look-up has ended", func() bool {
		v, err := n.Domains.Get(t.Context(), team, id)
		return err == nil && !v.CheckedAt.IsZero()
	})
	err = n.DB.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `UPDATE domains SET status = 'failed', checks = $2 WHERE id = $1`, db.ID(id),
			`{"ns":{"status":"failed"}}`)
		tx.Queue(t.Context(), `DELETE FROM jobs WHERE dedupe = $1`, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range setup.Records {
		parent.add("late.acme.example. 60 IN NS " + r.Value + ".")
	}
}

// checkByUnbound asks through the resolver, which varies the case of the letters in its queries and discards answers
// that do not repeat them.
func checkByUnbound(t *testing.T, resolver string) {
	t.Helper()
	for _, c := range []struct {
		name  string
		typ   uint16
		rcode int
		want  string // part of the first answer; "" for none
	}{
		{"mail.acme.example.", dns.TypeSOA, dns.RcodeSuccess, "SOA"},
		{"mail.acme.example.", dns.TypeTXT, dns.RcodeSuccess, "v=spf1"},
		{"postrider._domainkey.mail.acme.example.", dns.TypeTXT, dns.RcodeSuccess, "p="},
		{"mail.acme.example.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"_domainkey.mail.acme.example.", dns.TypeTXT, dns.RcodeSuccess, ""},
		{"none.mail.acme.example.", dns.TypeTXT, dns.RcodeNameError, ""},
		{"abcd.ns1.dns.host.example.", dns.TypeA, dns.RcodeSuccess, "127.0.0.11"},
		{"abcd.ns2.dns.host.example.", dns.TypeA, dns.RcodeSuccess, "127.0.0.12"},
		{"ns1.dns.host.example.", dns.TypeA, dns.RcodeSuccess, "127.0.0.11"},
		{"abcd.ns3.dns.host.example.", dns.TypeA, dns.RcodeNameError, ""},
	} {
		a, _, err := (&dns.Client{Timeout: 20 * time.Second}).Exchange(new(dns.Msg).SetQuestion(c.name, c.typ), resolver)
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		if len(a.Answer) > 0 {
			found = a.Answer[0].String()
		}
		if a.Rcode != c.rcode || (found == "") != (c.want == "") || !strings.Contains(found, c.want) {
			t.Errorf("unbound about %s %s: %v", c.name, dns.TypeToString[c.typ], a)
		}
	}
}

// checkByDrill asks both name servers with the command drill, over UDP and TCP.
func checkByDrill(t *testing.T, port int) {
	t.Helper()
	if _, err := exec.LookPath("drill"); err != nil {
		t.Fatalf("%v: run `make deps`, or install Debian's package ldnsutils", err)
	}
	for _, server := range []string{"127.0.0.11", "127.0.0.12"} {
		for _, transport := range []string{"-u", "-t"} {
			for question, want := range map[string]string{"mail.acme.example SOA": "rcode: NOERROR",
				"none.mail.acme.example A": "rcode: NXDOMAIN", "www.acme.example A": "rcode: REFUSED",
				"mail.acme.example AXFR": "REFUSED", "mail.acme.example ANY": "RFC8482"} {
				name, typ, _ := strings.Cut(question, " ")
				out, err := exec.Command("drill", "-p", strconv.Itoa(port), "-o", "rd", transport, name, "@"+server,
					typ).CombinedOutput()
				text := string(out)
				if !strings.Contains(text, want) && typ != "AXFR" || typ == "AXFR" && strings.Contains(text, "SOA\t") {
					t.Errorf("drill %s %s @%s: %v\n%s", transport, question, server, err, text)
				}
				if authoritative := strings.Contains(text, "flags: qr aa"); typ != "AXFR" && authoritative !=
					strings.HasSuffix(name, "mail.acme.example") {
					t.Errorf("drill %s %s @%s: flags in\n%s", transport, question, server, text)
				}
			}
		}
	}
}
