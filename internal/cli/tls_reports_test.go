package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	gomessage "github.com/emersion/go-message"
	verifier "github.com/emersion/go-msgauth/dkim"

	"github.com/postrider/postrider/internal/mail/dkim/opendkimtest"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A node delivers two emails over one connection and, on the next day, sends the report about it to the domain. The
// report is signed by the domain of notice_from and is not counted itself. OpenDKIM verifies it, too.
func TestTLSReport(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		mx := smtptest.NewServer(t, smtptest.Config{TLS: smtptest.NewCA(t).ServerTLS("mx.recipient.example")})
		_, port, _ := net.SplitHostPort(mx.Addr)
		z := startZone(t)
		z.set(t, "recipient.example. 60 IN MX 10 mx.recipient.example.", "mx.recipient.example. 60 IN A 127.0.0.1",
			`_smtp._tls.recipient.example. 60 IN TXT "v=TLSRPTv1; rua=mailto:tls@recipient.example"`)
		for name, value := range map[string]string{"TRANSPORT": "direct", "SMTP_PORT": port, "DNS_SERVERS": z.addr,
			"TRUST_DOMAINS": "true", "NOTICE_FROM": "Acme <notices@acme.example>"} {
			p.vars["POSTRIDER_"+name] = value
		}
		p.options.Loopback = true
		key := p.key("Acme")
		n := p.start()
		team := testnode.Must(n.Teams.Find(t.Context(), "Acme"))
		d := testnode.Must(n.Domains.Create(t.Context(), team.ID, domains.NewDomain{Name: "acme.example"}))
		if err := n.Domains.Verify(t.Context(), team.ID, d.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the domain is verified", func() bool {
			return testnode.Must(n.Domains.Get(t.Context(), team.ID, d.ID)).Status == domains.Verified
		})
		keys := map[string]string{}
		for _, r := range n.Domains.Records(&d) {
			keys[r.FQDN] = r.Value
		}
		for i := range 2 {
			status, text := n.ask(key, http.MethodPost, "/emails",
				`{"from":"a@acme.example","to":"a@recipient.example","subject":"Hello","text":"Hello"}`)
			if status/100 != 2 {
				t.Fatalf("%d %s", status, text)
			}
			mx.Wait(i + 1)
		}
		eventually(t, "the sessions are stored", func() bool {
			if err := n.TLSReports.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			return n.count(`SELECT COUNT(*) FROM tls_report_sessions`) == 1
		})
		connections := mx.Connections()
		if err := n.DB.Update(t.Context(), func(tx *db.Tx) error { // a day passes
			for _, table := range []string{"tls_report_sessions", "tls_report_policies", "tls_reports"} {
				tx.Queue(t.Context(), `UPDATE `+table+` SET day = day - 86400000000`)
			}
			tx.Queue(t.Context(), `UPDATE tls_reports SET send_at = 0`)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := n.TLSReports.Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := mx.Wait(3)[2]
		if got.From != "notices@acme.example" || len(got.To) != 1 || got.To[0] != "tls@recipient.example" {
			t.Errorf("from %s to %v", got.From, got.To)
		}
		r := reportIn(t, got.Data)
		if x := r.Policies[0]; len(r.Policies) != 1 || x.Policy.Type != tlsrpt.NoPolicy ||
			x.Policy.Domain != "recipient.example" || x.Successful != int64(connections) || x.Failed != 0 {
			t.Errorf("%d connections, report %+v", connections, r)
		}
		if err := n.TLSReports.Flush(t.Context()); err != nil || n.count(`SELECT COUNT(*) FROM tls_report_sessions`) != 0 {
			t.Errorf("the session of the report was counted, or not all rows were deleted (%v)", err)
		}
		verifyReport(t, keys, got.Data)
	})
}

// reportIn returns the report in an email.
func reportIn(t *testing.T, raw []byte) *tlsrpt.Report {
	t.Helper()
	e := testnode.Must(gomessage.Read(bytes.NewReader(raw)))
	parts := e.MultipartReader()
	testnode.Must(parts.NextPart())
	return testnode.Must(tlsrpt.Read(testnode.Must(io.ReadAll(testnode.Must(parts.NextPart()).Body))))
}

// verifyReport verifies the signatures of a TLS report with the keys at the given names.
func verifyReport(t *testing.T, keys map[string]string, raw []byte) {
	t.Helper()
	verifySignatures(t, keys, raw, "tls-report-domain", "tls-report-submitter")
}

// verifySignatures verifies the signatures of an email from acme.example, which must cover some fields.
func verifySignatures(t *testing.T, keys map[string]string, raw []byte, fields ...string) {
	t.Helper()
	all, err := verifier.VerifyWithOptions(bytes.NewReader(raw), &verifier.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) {
			return []string{keys[strings.TrimSuffix(name, ".")]}, nil
		}})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d signatures, %v", len(all), err)
	}
	for _, v := range all {
		signed := strings.ToLower(strings.Join(v.HeaderKeys, " "))
		if v.Err != nil || v.Domain != "acme.example" {
			t.Errorf("signature %+v", v)
		}
		for _, field := range fields {
			if !strings.Contains(signed, field) {
				t.Errorf("the field %s is not signed: %+v", field, v)
			}
		}
	}
	opendkimtest.Verify(t, "acme.example", keys, raw)
}
