package domainreports_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

// signFields signs a message for a domain, as reporters do that do not sign all fields.
func (f *fixture) signFields(domain, header, body string, fields ...string) []byte {
	f.T.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.dns.TXTRecords["few._domainkey."+domain] = []string{"v=DKIM1; k=ed25519; p=" +
		base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))}
	f.dns.TXTRecords["_dmarc."+domain] = []string{"v=DMARC1; p=reject"}
	raw := "From: x@" + domain + "\r\nTo: you@example.com\r\nDate: " + f.now.Format(time.RFC1123Z) + "\r\n" +
		"MIME-Version: 1.0\r\n" + header + "\r\n" + body
	var out bytes.Buffer
	f.Must(dkim.Sign(&out, bytes.NewReader([]byte(raw)), &dkim.SignOptions{Domain: domain, Selector: "few", Signer: key,
		HeaderKeys: append([]string{"From", "To", "Date", "MIME-Version", "Subject"}, fields...)}))
	return out.Bytes()
}

// tlsText returns a TLS report of google.com about a domain.
func (f *fixture) tlsText(id, domain string) string {
	begin := f.today().AddDate(0, 0, -1)
	return fmt.Sprintf(`{"organization-name":"Google Inc.","contact-info":"tls@google.com","report-id":%q,"date-range":`+
		`{"start-datetime":%q,"end-datetime":%q},"policies":[{"policy":{"policy-type":"tlsa","policy-domain":%q},"summary":`+
		`{"total-successful-session-count":0,"total-failure-session-count":777}}]}`, id, begin.Format(time.RFC3339),
		begin.Add(time.Hour).Format(time.RFC3339), domain)
}

// A text in a signed message of a well-known reporter does not become its report by a Content-Type that is not signed.
// Its reports, which it signs without that field too, count.
func TestRetyped(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		multipart := "Content-Type: multipart/mixed; boundary=X\r\n"
		part := func(text string) string {
			return "--X\r\nContent-Type: application/tlsrpt+json\r\n\r\n" + text + "\r\n--X--\r\n"
		}
		plain := "Content-Type: text/plain\r\n"
		send := func(raw []byte, proven bool) {
			t.Helper()
			f.Exec(`DELETE FROM received_reports`) // the reports overlap
			accept(t, c, to, raw)
			all := f.list(d)
			if len(all) != 1 || all[0].Proven != proven || proven != (all[0].Reason == "") || all[0].Messages != 777 {
				t.Errorf("%+v", all)
			}
		}
		invitation := "You are invited:\r\n" + part(f.tlsText("1", d.Name))
		send(f.signFields("google.com", multipart, invitation), false)
		send(append([]byte(multipart), f.signFields("google.com", plain, invitation)...), false)
		send(append([]byte(multipart), f.signFields("google.com", plain, part(f.tlsText("1", d.Name)))...), false)
		send(f.signFields("google.com", plain, f.tlsText("1", d.Name)), false)
		send(f.signFields("google.com", multipart, part(f.tlsText("2", d.Name))), true)
		send(f.signFields("google.com", multipart, "A report.\r\n"+part(f.tlsText("4", d.Name)), "Content-Type"), true)
		send(f.signFields("google.com", "Content-Type: application/tlsrpt+json\r\n", f.tlsText("5", d.Name)), true)
		if v := f.tls(d); v.Failed != 3*777 {
			t.Errorf("%d failed sessions are counted", v.Failed)
		}
	})
}

// The field TLS-Report-Domain decides only if it is signed and occurs once.
func TestReaddressed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		kind := "Content-Type: application/tlsrpt+json\r\n"
		ours, theirs := tlsrpt.DomainField+": shop.example\r\n", tlsrpt.DomainField+": evil.example\r\n"
		file := func(id string) string { return f.tlsText(id, "mx.shop.example") }
		accept(t, c, to, f.signFields("google.com", kind+ours, file("1")))
		accept(t, c, to, append([]byte(ours), f.signFields("google.com", kind+theirs, file("2"), tlsrpt.DomainField)...))
		accept(t, c, to, f.signFields("google.com", kind+ours, file("2"), tlsrpt.DomainField))
		var got []string
		for _, x := range f.list(d) {
			got = append(got, fmt.Sprintf("%s %s %t %t", x.ReportID, x.State, x.Proven, x.Reason == ""))
		}
		if want := "[1 counted false false 2 overlapping false false 2 counted true true]"; fmt.Sprint(got) != want {
			t.Errorf("%v, not %s", got, want)
		}
	})
}
