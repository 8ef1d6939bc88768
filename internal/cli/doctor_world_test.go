package cli

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// doctorHost is the host name of the installation that the tests of doctor examine. It has the addresses 127.0.0.1,
// from which its node connects to others, and 127.0.0.3.
const doctorHost = "mail.acme.example"

// zone is a DNS server on this machine. It validates signatures unless careless is set.
type zone struct {
	addr string

	mu       sync.Mutex
	records  map[string][]dns.RR // by name and type
	careless bool
}

func startZone(t *testing.T) *zone {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{addr: packets.LocalAddr().String(), records: map[string][]dns.RR{}}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: z, NotifyStartedFunc: func() { close(started) }}
	go server.ActivateAndServe()
	<-started
	t.Cleanup(func() { server.Shutdown() })
	return z
}

// set replaces all records with the names and types of the given records.
func (z *zone) set(t *testing.T, lines ...string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	fresh := map[string][]dns.RR{}
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			t.Fatalf("%q is not a record: %v", line, err)
		}
		key := keyOf(rr.Header().Name, rr.Header().Rrtype)
		fresh[key] = append(fresh[key], rr)
	}
	maps.Copy(z.records, fresh)
}

// remove removes all records with a name and a type.
func (z *zone) remove(name string, qtype uint16) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.records, keyOf(dns.Fqdn(name), qtype))
}

// keep returns a function that restores the present state.
func (z *zone) keep() (restore func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	before, careless := maps.Clone(z.records), z.careless
	return func() {
		z.mu.Lock()
		defer z.mu.Unlock()
		z.records, z.careless = before, careless
	}
}

func keyOf(name string, qtype uint16) string { return fmt.Sprint(strings.ToLower(name), " ", qtype) }

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	name := q.Question[0].Name
	m.Answer = z.records[keyOf(name, q.Question[0].Qtype)]
	m.AuthenticatedData = name == "signed.example." && !z.careless
	switch {
	case name == "bogus.example." && !z.careless && !q.CheckingDisabled:
		m.Answer, m.Rcode = nil, dns.RcodeServerFailure
	case len(m.Answer) == 0:
		m.Rcode = dns.RcodeNameError
	}
	w.WriteMsg(m)
}

// stub is a mail host that greets and does nothing else. Its address has the given port.
func stub(t *testing.T, addr, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "220 %s ESMTP\r\n", name)
				for in := bufio.NewScanner(c); in.Scan() && in.Text() != "QUIT"; {
					fmt.Fprintf(c, "250 %s\r\n", name)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// doctorWorld is a healthy installation with a running node, and everything that doctor looks at.
type doctorWorld struct {
	*installation
	zone *zone
	ca   *smtptest.CA
	node *started
	port string // of mail hosts
}

// newDoctorWorld starts a node in a world where everything is as it should be.
func newDoctorWorld(t *testing.T, p *installation) *doctorWorld {
	t.Helper()
	w := &doctorWorld{installation: p, zone: startZone(t), ca: smtptest.NewCA(t)}
	_, w.port, _ = net.SplitHostPort(freeport.Addr(t)) // the port of three hosts
	stub(t, "127.0.0.2:"+w.port, "mx.provider.example")
	stub(t, "127.0.0.3:"+w.port, doctorHost)
	cert, key := w.files(w.ca.Until(time.Now().Add(90*24*time.Hour), doctorHost))
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, w.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"HOSTNAME": doctorHost, "ROLES": "api,delivery,jobs,receiving",
		"SMTP_IN_LISTEN": "127.0.0.1:" + w.port, "SMTP_PORT": w.port, "DNS_SERVERS": w.zone.addr, "TRUST_DOMAINS": "false",
		"ALLOW_LOOPBACK": "true", "TRANSPORT": "direct", "TLS_CERT_FILE": cert, "TLS_KEY_FILE": key,
		"ACME_CA_FILE": authority, "NOTICE_FROM": "Acme <notices@acme.example>", "TRACKING_HOST": doctorHost,
		"HTTPS_LISTEN": freeport.Addr(t), "HTTP_LISTEN": "127.0.0.1:0", "DOCTOR_MAIL_DOMAINS": "provider.example",
		"DOCTOR_SIGNED_NAME": "signed.example", "DOCTOR_BOGUS_NAME": "bogus.example",
		"DOCTOR_CLOCK_URL": timeServer(t, 0), "DOCTOR_ADDRESS_LISTS": "ip.list.example",
		"DOCTOR_NAME_LISTS": "name.list.example", "SANDBOX_DOMAIN": "resend.dev"} {
		p.vars["POSTRIDER_"+name] = value
	}
	_, secure, _ := net.SplitHostPort(p.vars["POSTRIDER_HTTPS_LISTEN"])
	p.vars["POSTRIDER_PUBLIC_URL"] = "https://" + doctorHost + ":" + secure
	w.zone.set(t, doctorHost+". 60 IN A 127.0.0.1", doctorHost+". 60 IN A 127.0.0.3",
		"1.0.0.127.in-addr.arpa. 60 IN PTR "+doctorHost+".", "3.0.0.127.in-addr.arpa. 60 IN PTR "+doctorHost+".",
		doctorHost+`. 60 IN TXT "v=spf1 ip4:127.0.0.0/8 -all"`, `_dmarc.acme.example. 60 IN TXT "v=DMARC1; p=none"`,
		`customer.example._report._dmarc.`+doctorHost+`. 60 IN TXT "v=DMARC1"`,
		"provider.example. 60 IN MX 10 mx.provider.example.", "mx.provider.example. 60 IN A 127.0.0.2",
		"signed.example. 60 IN A 127.0.0.2", "bogus.example. 60 IN A 127.0.0.2",
		"2.0.0.127.ip.list.example. 60 IN A 127.0.0.2", "test.name.list.example. 60 IN A 127.0.0.2")
	p.key("Acme")
	w.node = p.start()
	team := testnode.Must(w.node.Teams.Find(t.Context(), "Acme"))
	d := testnode.Must(w.node.Domains.Create(t.Context(), team.ID, domains.NewDomain{Name: "acme.example"}))
	for _, r := range w.node.Domains.Records(&d) {
		value := fmt.Sprintf("%q %q", r.Value[:len(r.Value)/2], r.Value[len(r.Value)/2:])
		if r.Type == "MX" {
			value = fmt.Sprintf("%d %s.", r.Priority, r.Value)
		}
		w.zone.set(t, fmt.Sprintf("%s. 60 IN %s %s", r.FQDN, r.Type, value))
	}
	if err := w.node.Domains.Verify(t.Context(), team.ID, d.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the domain is verified", func() bool {
		return testnode.Must(w.node.Domains.Get(t.Context(), team.ID, d.ID)).Status == domains.Verified
	})
	w.backedUp(time.Now())
	return w
}

// backedUp stores the time of the last backup.
func (w *doctorWorld) backedUp(at time.Time) {
	w.t.Helper()
	if err := w.node.DB.SetFact(w.t.Context(), db.FactLastBackup, at.UTC().Format(time.RFC3339)); err != nil {
		w.t.Fatal(err)
	}
}

// files writes a certificate and its key, and returns the names of the files.
func (w *doctorWorld) files(c tls.Certificate) (cert, key string) {
	w.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]},
		key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return cert, key
}

// timeServer is a web server whose clock is ahead by the given time, and returns its URL.
func timeServer(t *testing.T, ahead time.Duration) string {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// proxy is a reverse proxy before the node, with its own certificate. It returns a URL with the host name.
func (w *doctorWorld) proxy(c tls.Certificate) string {
	w.t.Helper()
	to := testnode.Must(url.Parse(w.vars["POSTRIDER_PUBLIC_URL"]))
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: "127.0.0.1:" + to.Port()})
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: doctorHost}}
	s := httptest.NewUnstartedServer(forward)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{c}}
	s.StartTLS()
	w.t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return "https://" + doctorHost + ":" + port
}

// examine runs doctor and returns the report and the exit code.
func (w *doctorWorld) examine(args ...string) (r doctor.Report, code int) {
	w.t.Helper()
	slow := func(f doctor.Finding) bool {
		return strings.HasPrefix(f.Meaning, "A commit takes") && f.Status != doctor.OK
	}
	for range 10 { // a busy machine commits slowly for a while
		if r, code = w.examineOnce(args...); !slices.ContainsFunc(r.Findings, slow) {
			break
		}
	}
	return r, code
}

func (w *doctorWorld) examineOnce(args ...string) (r doctor.Report, code int) {
	w.t.Helper()
	out, errOut, code := w.command(append([]string{"doctor", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		w.t.Fatalf("doctor ended with %d, and printed\n%s%s", code, out, errOut)
	}
	if r.Format != doctor.Format || r.Hostname != doctorHost {
		w.t.Errorf("the report is about %s, in the format %d", r.Hostname, r.Format)
	}
	return r, code
}

// expect checks that the only findings that are not good have the given ids and statuses, such as "host.ptr failure".
// The value is a part of the finding's text. Findings that are not checked need not be named.
func expect(t *testing.T, r doctor.Report, want map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range r.Findings {
		key := fmt.Sprintf("%s %s", f.ID, f.Status)
		text, wanted := want[key]
		switch {
		case wanted && strings.Contains(f.Subject+": "+f.Meaning+" "+f.Advice, text):
			seen[key] = true
		case f.Status == doctor.Failure || f.Status == doctor.Warning:
			t.Errorf("not expected: %+v", f)
		}
	}
	for key, text := range want {
		if !seen[key] {
			t.Errorf("no finding %q with %q in %+v", key, text, r.Findings)
		}
	}
}
