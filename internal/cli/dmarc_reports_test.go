package cli

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	gomessage "github.com/emersion/go-message"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A node receives a hundred emails in the name of a domain. On the next day, it sends the report about them. The report
// is signed by the domain of notice_from. OpenDKIM verifies it, too, if it is installed. With the setting off, nothing
// is counted.
func TestDMARCReport(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		_, port, _ := net.SplitHostPort(mx.Addr)
		z := startZone(t)
		z.set(t, "sender.example. 60 IN MX 10 mx.sender.example.", "mx.sender.example. 60 IN A 127.0.0.1",
			`_dmarc.sender.example. 60 IN TXT "v=DMARC1; p=reject; rua=mailto:dmarc@sender.example"`,
			`sender.example. 60 IN TXT "v=spf1 ip4:127.0.0.1 -all"`)
		for name, value := range map[string]string{"TRANSPORT": "direct", "SMTP_PORT": port, "DNS_SERVERS": z.addr,
			"TRUST_DOMAINS": "true", "NOTICE_FROM": "Acme <notices@acme.example>", "SMTP_IN_LISTEN": "127.0.0.1:0",
			"ROLES": "api,delivery,jobs,submission,receiving"} {
			p.vars["POSTRIDER_"+name] = value
		}
		p.options.Loopback = true
		key := p.key("Acme")
		n := p.start()
		team := testnode.Must(n.Teams.Find(t.Context(), "Acme"))
		on := true
		d := testnode.Must(n.Domains.Create(t.Context(), team.ID, domains.NewDomain{Name: "acme.example",
			Capabilities: domains.Capabilities{Sending: &on, Receiving: &on}}))
		if err := n.Domains.Verify(t.Context(), team.ID, d.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the domain is verified", func() bool {
			return testnode.Must(n.Domains.Get(t.Context(), team.ID, d.ID)).Status == domains.Verified
		})
		receive := func(n *started, count int) {
			to := &driver{started: n, key: key}
			eventually(t, "the port for mail is open", func() bool { return n.Port(node.PortInbound) != "" })
			for i := range count {
				from := []string{"a@sender.example", "a@forger.example"}[i%2]
				if err := to.send(n.Port(node.PortInbound), nil, from, "x@acme.example",
					fmt.Sprintf("From: <a@sender.example>\r\nSubject: %d\r\n\r\nHello\r\n", i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.DMARCReports.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		receive(n, 2)
		if got := n.count(`SELECT COUNT(*) FROM dmarc_report_days`) + n.count(`SELECT COUNT(*) FROM dmarc_reports`); got > 0 {
			t.Errorf("%d rows were counted while reports were off", got)
		}
		n.end()
		p.vars["POSTRIDER_DMARC_REPORTS"] = "true"
		n = p.start()
		receive(n, 100)
		if out, errOut, _ := p.command("doctor"); !strings.Contains(strings.Join(strings.Fields(out), " "),
			"100 messages were counted, and 1 domains ask for a report") {
			t.Errorf("doctor does not say what waits:\n%s%s", out, errOut)
		}
		if err := n.DB.Update(t.Context(), func(tx *db.Tx) error { // a day passes
			for _, table := range []string{"dmarc_report_days", "dmarc_report_rows", "dmarc_reports"} {
				tx.Queue(t.Context(), `UPDATE `+table+` SET day = day - 86400000000`)
			}
			tx.Queue(t.Context(), `UPDATE dmarc_reports SET send_at = 0`)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := n.DMARCReports.Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := mx.Wait(1)[0]
		if got.From != "notices@acme.example" || len(got.To) != 1 || got.To[0] != "dmarc@sender.example" {
			t.Errorf("from %s to %v", got.From, got.To)
		}
		passed, failed := int64(0), int64(0)
		h, err := readAggregate(t, got.Data, func(r dmarcrpt.Row) error {
			if r.SPF {
				passed += r.Count
			} else {
				failed += r.Count
			}
			return nil
		})
		if err != nil || h.Policy.Domain != "sender.example" || h.Policy.P != "reject" || passed != 50 || failed != 50 {
			t.Errorf("%d passed and %d failed: %+v, %v", passed, failed, h, err)
		}
		keys := map[string]string{}
		for _, r := range n.Domains.Records(&d) {
			keys[r.FQDN] = r.Value
		}
		verifySignatures(t, keys, got.Data, "from", "subject")
	})
}

// readAggregate reads the DMARC report in an email.
func readAggregate(t *testing.T, raw []byte, each func(dmarcrpt.Row) error) (dmarcrpt.Header, error) {
	t.Helper()
	e := testnode.Must(gomessage.Read(bytes.NewReader(raw)))
	if s := e.Header.Get("Subject"); !strings.HasPrefix(s, "Report Domain: sender.example Submitter: acme.example Report-ID: <") {
		t.Errorf("subject %s", s)
	}
	parts := e.MultipartReader()
	testnode.Must(parts.NextPart())
	file := testnode.Must(io.ReadAll(testnode.Must(parts.NextPart()).Body))
	text := testnode.Must(io.ReadAll(testnode.Must(gzip.NewReader(bytes.NewReader(file)))))
	return dmarcrpt.Read(bytes.NewReader(text), int64(len(text)), each)
}
