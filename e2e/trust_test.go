package e2e

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// Emails to a host with TLSA records, to a domain that enforces a policy, to two that broke theirs, and to a plain one:
// the program sends only those whose host proves what its domain demands, and the explanation names the rule. The rule
// dane shows that the program believes the DNS server, which validates signatures.
func TestTransportDemandedByDomains(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	server := lab.CA.ServerTLS("mx.enforced.example")
	mx := smtptest.NewServer(t, smtptest.Config{TLS: server})
	_, port, err := net.SplitHostPort(mx.Addr)
	if err != nil {
		t.Fatal(err)
	}
	right, err := dane.For(server.Certificates[0].Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	names := startDNS(t)
	names.signed = "signed.example."
	wrong := strings.Repeat("00", 32)
	for _, d := range []string{"dane.signed", "stale.signed", "enforced", "expired", "plain"} {
		host := "mx." + d + ".example."
		names.add(d+".example. 60 IN MX 10 "+host, host+" 60 IN A 127.0.0.1")
	}
	names.add("_"+port+"._tcp.mx.dane.signed.example. 60 IN TLSA "+right.String(),
		"_"+port+"._tcp.mx.stale.signed.example. 60 IN TLSA 3 1 1 "+wrong)
	for _, d := range []string{"enforced", "expired"} {
		names.add("_mta-sts."+d+`.example. 60 IN TXT "v=STSv1; id=1;"`, "mta-sts."+d+".example. 60 IN A 127.0.0.1")
		lab.Set(d+".example", ststest.Site{Policy: ststest.Policy("enforce", 86400, "mx."+d+".example")})
	}
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, lab.CA.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, []string{"POSTRIDER_BENCH_LOOPBACK=1", "POSTRIDER_TRANSPORT=direct", "POSTRIDER_SMTP_PORT=" + port,
		"POSTRIDER_DNS_SERVERS=" + names.addr, "POSTRIDER_DNSSEC_RESOLVERS=" + names.addr, "POSTRIDER_ALLOW_LOOPBACK=true",
		"POSTRIDER_MTA_STS_PORT=" + strconv.Itoa(lab.Port), "SSL_CERT_FILE=" + authority})
	n.addDomain("acme.example")
	for _, c := range []struct{ domain, event, rule string }{
		{"dane.signed", "delivered", "dane"}, {"stale.signed", "delivery_delayed", "dane"},
		{"enforced", "delivered", "mta_sts"}, {"expired", "delivery_delayed", "mta_sts"}, {"plain", "delivered", "none"},
	} {
		var sent struct{ ID string }
		n.must(http.MethodPost, "/emails", `{"from":"a@acme.example","to":"to@`+c.domain+`.example","subject":"Hello",
			"text":"Hello"}`, &sent)
		eventually(t, 20*time.Second, "the email to "+c.domain+" is "+c.event, func() bool {
			var e struct {
				LastEvent string `json:"last_event"`
			}
			n.must(http.MethodGet, "/emails/"+sent.ID, "", &e)
			return e.LastEvent == c.event
		})
		x := exec.Command(n.program, "explain", sent.ID)
		x.Env = append(environ(), append(n.env, "POSTRIDER_DATA_DIR="+n.dir())...)
		said, err := x.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		t.Logf("%s:\n%s", c.domain, said)
		var why struct {
			Attempts []struct {
				TLS struct{ Rule string }
			}
		}
		n.must(http.MethodGet, "/emails/"+sent.ID+"/explain", "", &why)
		if len(why.Attempts) != 1 || why.Attempts[0].TLS.Rule != c.rule {
			t.Errorf("%s: %+v", c.domain, why)
		}
	}
	for _, m := range mx.Messages() {
		if to := m.To[0]; strings.Contains(to, "stale") || strings.Contains(to, "expired") || !m.TLS && !strings.Contains(to, "plain") {
			t.Errorf("the host has a message to %s, with TLS: %v", to, m.TLS)
		}
	}
	if got := len(mx.Messages()); got != 3 {
		t.Errorf("the host has %d messages", got)
	}
}
