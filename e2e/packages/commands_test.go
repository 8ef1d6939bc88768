//go:build packages

package packages

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/platform/certs/certstest"
)

// Addresses in the network of the test, which no other network reaches. They must not be private ones, to which nodes
// do not deliver.
const (
	worldAddress   = "11.0.0.1"
	machineAddress = "11.0.0.2"
	mailAddress    = "11.0.0.25"
	nameAddress    = "11.0.0.53"
)

const (
	manual     = "../../docs/operating/install.md"
	heading    = "## 2. Run the commands"
	maxCommand = 10
)

// documentedCommands returns the commands of the first block of shell commands under the heading.
func documentedCommands(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), heading+"\n")
	block := regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindStringSubmatch(section)
	if !ok || block == nil {
		t.Fatalf("%s has no commands under %q", manual, heading)
	}
	whole := strings.ReplaceAll(strings.ReplaceAll(block[1], "\\\n", " "), "|\n", "| ")
	for line := range strings.Lines(whole) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	return commands
}

// The commands of the manual lead from a bare Debian machine to a delivered and signed email. The machine has its own
// network, in which a DNS server, a receiving host and a certificate authority are the rest of the world.
func TestFirstEmail(t *testing.T) {
	if !inside(t) {
		return
	}
	commands := documentedCommands(t)
	if len(commands) > maxCommand {
		t.Errorf("the manual needs %d commands, more than %d", len(commands), maxCommand)
	}
	joinWorld(t)
	m := bootMachine(t, "machine")
	names := startNames(t, nameAddress+":53",
		"mail.example.com. 60 IN A "+machineAddress, "acme.example.com. 60 IN A "+worldAddress, "2.0.0.11.in-addr.arpa. 60 IN PTR mail.example.com.",
		`mail.example.com. 60 IN TXT "v=spf1 ip4:`+machineAddress+` -all"`,
		"example.net. 60 IN MX 10 mx.example.net.", "mx.example.net. 60 IN A "+mailAddress)
	mail := startSink(t, mailAddress+":25")
	m.write("/etc/resolv.conf", "nameserver "+nameAddress+"\n")
	m.write("/etc/apt/sources.list", "") // the machine has curl and jq already, because the network has no mirror
	m.copyIn(release(t, "postrider_*_amd64.deb"))
	m.useAuthority(certstest.New(t, 0))

	sh := m.shell()
	for i, command := range commands {
		out := sh.run(command)
		t.Logf("%d. %s\n%s", i+1, command, out)
		if strings.Contains(command, "/domains ") && strings.Contains(command, "example.com") {
			m.addRecords(names, filepath.Join(m.root, "root/domain.json"))
		}
	}
	select {
	case message := <-mail.messages:
		checks, err := dkim.VerifyWithOptions(strings.NewReader(message), &dkim.VerifyOptions{LookupTXT: names.txt})
		if err != nil || len(checks) == 0 {
			t.Fatalf("the email has %d signatures, %v:\n%s", len(checks), err, message)
		}
		for _, c := range checks {
			if c.Err != nil || c.Domain != "example.com" {
				t.Errorf("signature of %s: %v", c.Domain, c.Err)
			}
		}
	default:
		t.Error("the email has not arrived")
	}
	m.underSystemd()
}

// useAuthority makes the machine's node get its certificates from an authority in this network, and its curl trust
// them. These settings take the place of those of Let's Encrypt.
func (m *machine) useAuthority(a *certstest.Authority) {
	m.t.Helper()
	a.HTTP.To(machineAddress + ":80")
	a.TLS.To(machineAddress + ":443")
	directory, err := url.Parse(a.Directory)
	if err != nil {
		m.t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(worldAddress, directory.Port())) // the authority listens at loopback
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.Close() })
	go forwardAll(l, directory.Host)
	ca, err := os.ReadFile(a.CAFile)
	if err != nil {
		m.t.Fatal(err)
	}
	// The settings are not in /etc/postrider: dpkg asks about files that are there before the package.
	const unit = "/etc/systemd/system/postrider.service.d"
	if err := os.MkdirAll(filepath.Join(m.root, unit), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.write("/etc/acme.pem", string(ca))
	m.write(unit+"/authority.conf", "[Service]\nEnvironment=POSTRIDER_ACME_CA_FILE=/etc/acme.pem\n"+
		"Environment=POSTRIDER_ACME_DIRECTORY=https://acme.example.com:"+directory.Port()+directory.Path+"\n")
	m.write("/etc/root.pem", a.RootPEM)
	m.write("/root/.curlrc", "cacert = /etc/root.pem\n")
}

// forwardAll forwards the connections to a listener until it is closed.
func forwardAll(l net.Listener, to string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		go func() {
			defer from.Close()
			c, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer c.Close()
			go io.Copy(c, from)
			io.Copy(from, c)
		}()
	}
}

// underSystemd checks how systemd runs the node: as its user, with one capability, and again after a crash.
func (m *machine) underSystemd() {
	m.t.Helper()
	const property = "systemctl show postrider --value --property "
	if got := m.run("stat -c %U /proc/$(" + property + "MainPID)"); got != "postrider" {
		m.t.Errorf("the node runs as %s", got)
	}
	if got := m.run("grep CapEff /proc/$(" + property + "MainPID)/status"); !strings.HasSuffix(got, "0000000000000400") {
		m.t.Errorf("the node has the capabilities %s", got)
	}
	before := m.run(property + "MainPID")
	m.run("kill -9 " + before)
	eventually(m.t, "systemd starts the node again", func() bool {
		state, _ := m.try(property + "MainPID,ActiveState | paste -sd' '")
		return strings.Contains(state, "active") && !strings.Contains(state, "inactive") &&
			!strings.Contains(state, "activating") && !strings.Contains(state, before)
	})
	if log := m.run("journalctl -u postrider -o cat --no-pager"); !strings.Contains(log, "RSA signatures") {
		m.t.Errorf("the journal has\n%s", log)
	}
	m.run("journalctl -u postrider -o cat | runuser -u postrider -- postrider support /tmp/support.tar.gz --log -")
	m.run("apt-get remove -y postrider")
	if state, _ := m.try("systemctl is-active postrider; systemctl is-enabled postrider"); strings.HasPrefix(state, "active") {
		m.t.Errorf("after the removal, the service is %s", state)
	}
}

// joinWorld creates the network of the machine and connects it with the network of the test.
func joinWorld(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"netns", "add", "machine"},
		{"link", "add", "world", "type", "veth", "peer", "name", "eth0", "netns", "machine"},
		{"addr", "add", worldAddress + "/24", "dev", "world"},
		{"addr", "add", mailAddress + "/24", "dev", "world"},
		{"addr", "add", nameAddress + "/24", "dev", "world"},
		{"link", "set", "world", "up"},
		{"-n", "machine", "addr", "add", machineAddress + "/24", "dev", "eth0"},
		{"-n", "machine", "link", "set", "eth0", "up"},
		{"-n", "machine", "link", "set", "lo", "up"},
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v\n%s", args, err, out)
		}
	}
}

// shell is a shell of the machine's administrator in the folder /root.
type shell struct {
	t   *testing.T
	in  *bufio.Writer
	out *bufio.Reader
}

func (m *machine) shell() *shell {
	m.t.Helper()
	c := m.command("bash", "-c", "cd /root && exec bash 2>&1")
	in, err := c.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return &shell{m.t, bufio.NewWriter(in), bufio.NewReader(out)}
}

// run runs a command, which must succeed, and returns its output.
func (s *shell) run(command string) string {
	s.t.Helper()
	const mark = "the command has ended with "
	fmt.Fprintf(s.in, "{ %s\n} </dev/null\necho \"%s$?\"\n", command, mark)
	if err := s.in.Flush(); err != nil {
		s.t.Fatal(err)
	}
	var text strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if before, status, ok := strings.Cut(line, mark); ok {
			text.WriteString(before)
			if status != "0\n" {
				s.t.Fatalf("%s: status %s%s", command, status, text.String())
			}
			return text.String()
		}
		if text.WriteString(line); err != nil {
			s.t.Fatalf("%s: %v\n%s", command, err, text.String())
		}
	}
}

// addRecords adds the DNS records of a domain, as the operator does at a DNS provider.
func (m *machine) addRecords(names *nameServer, response string) {
	m.t.Helper()
	data, err := os.ReadFile(response)
	if err != nil {
		m.t.Fatal(err)
	}
	var d struct {
		Records []struct {
			Name, Type, Value string
			Priority          json.Number
		}
	}
	if err := json.Unmarshal(data, &d); err != nil || len(d.Records) == 0 {
		m.t.Fatalf("%d records, %v: %s", len(d.Records), err, data)
	}
	for _, r := range d.Records {
		name := r.Name + ".example.com."
		switch r.Type {
		case "MX":
			names.add(fmt.Sprintf("%s 60 IN MX %s %s.", name, r.Priority, r.Value))
		case "TXT":
			rr := &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}}
			for rest := r.Value; rest != ""; {
				n := min(len(rest), 255)
				rr.Txt, rest = append(rr.Txt, rest[:n]), rest[n:]
			}
			names.addRR(rr)
		default:
			names.add(fmt.Sprintf("%s 60 IN %s %s.", name, r.Type, r.Value))
		}
	}
}

// nameServer is a DNS server whose records a test can change.
type nameServer struct {
	t       *testing.T
	mu      sync.Mutex
	records []dns.RR
}

// startNames starts a DNS server over UDP and TCP with records in the format of zone files.
func startNames(t *testing.T, address string, records ...string) *nameServer {
	t.Helper()
	s := &nameServer{t: t}
	for _, r := range records {
		s.add(r)
	}
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go server.ActivateAndServe()
		<-started
		t.Cleanup(func() { server.Shutdown() })
	}
	return s
}

func (s *nameServer) add(text string) {
	s.t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil || rr == nil {
		s.t.Fatalf("%q is not a record: %v", text, err)
	}
	s.addRR(rr)
}

func (s *nameServer) addRR(rr dns.RR) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, rr)
}

func (s *nameServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	answer := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
	answer.Authoritative, answer.RecursionAvailable = true, true
	s.mu.Lock()
	for _, rr := range s.records {
		if rr.Header().Name != strings.ToLower(q.Question[0].Name) {
			continue
		}
		answer.Rcode = dns.RcodeSuccess
		if rr.Header().Rrtype == q.Question[0].Qtype {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	s.mu.Unlock()
	size := dns.MinMsgSize
	if o := q.IsEdns0(); o != nil {
		size = int(o.UDPSize())
		answer.SetEdns0(o.UDPSize(), false)
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		answer.Truncate(size)
	}
	w.WriteMsg(answer)
}

// txt looks up TXT records, for the verification of signatures.
func (s *nameServer) txt(name string) (texts []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rr := range s.records {
		if t, ok := rr.(*dns.TXT); ok && t.Hdr.Name == dns.Fqdn(strings.ToLower(name)) {
			var b bytes.Buffer
			for _, part := range t.Txt {
				b.WriteString(part)
			}
			texts = append(texts, b.String())
		}
	}
	return texts, nil
}
