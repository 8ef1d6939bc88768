//go:build browser

package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
)

// reporters are the authenticated senders of reports. The advice about a policy needs two of them.
var reporters = []string{"mail.example", "post.example.net"}

// reported delivers DMARC reports of two weeks, a TLS report and an unreadable report to the address of the team's
// domain.
func (s *sample) reported() {
	s.t.Helper()
	k, err := dkim.GenerateEd25519()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, from := range reporters {
		s.names.add("s1._domainkey."+from+`. 60 IN TXT "`+k.Record()+`"`, "_dmarc."+from+`. 60 IN TXT "v=DMARC1; p=reject"`)
	}
	s.names.add(`acme.example. 60 IN TXT "v=spf1 ip4:203.0.113.0/28 -all"`, `_dmarc.acme.example. 60 IN TXT "v=DMARC1; p=none"`)
	var v struct{ Address string }
	path := "/domains/" + s.id["domain"] + "/reports/dmarc"
	s.must(http.MethodGet, path, "", &v)
	row := func(ip string, n int, result string) string {
		return fmt.Sprintf(`<record><row><source_ip>%s</source_ip><count>%d</count><policy_evaluated><disposition>none`+
			`</disposition><dkim>%[3]s</dkim><spf>%[3]s</spf></policy_evaluated></row><identifiers><header_from>acme.example`+
			`</header_from></identifiers></record>`, ip, n, result)
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for back := range 14 {
		begin := today.AddDate(0, 0, -1-back)
		for i, from := range reporters {
			s.report(k, from, v.Address, fmt.Sprintf(`<feedback><report_metadata><org_name>%s</org_name><report_id>%d`+
				`</report_id><date_range><begin>%d</begin><end>%d</end></date_range></report_metadata><policy_published><domain>`+
				`acme.example</domain><p>none</p></policy_published>%s%s</feedback>`, from, back, begin.Unix(), begin.Unix()+86_399,
				row("203.0.113.7", (900+37*back%200)/(i+1), "pass"), row("198.51.100.23", 20+back, "fail")))
		}
	}
	from := reporters[0]
	begin := today.AddDate(0, 0, -1)
	s.report(k, from, v.Address, fmt.Sprintf(`{"organization-name":"mail.example","report-id":"t1","date-range":{`+
		`"start-datetime":%q,"end-datetime":%q},"policies":[{"policy":{"policy-type":"sts","policy-domain":"acme.example"},`+
		`"summary":{"total-successful-session-count":412,"total-failure-session-count":18},"failure-details":[{"result-type":`+
		`"certificate-expired","receiving-mx-hostname":"mx2.acme.example","failed-session-count":18}]}]}`,
		begin.Format(time.RFC3339), begin.Add(23*time.Hour).Format(time.RFC3339)))
	s.report(k, from, v.Address, "<feedback>")
	var shown struct{ Messages int64 }
	s.must(http.MethodGet, path, "", &shown)
	if shown.Messages < 14*900 {
		s.t.Fatalf("the reports have %d messages", shown.Messages)
	}
}

// report delivers a signed message with a report.
func (s *sample) report(k *dkim.Key, from, to, text string) {
	s.t.Helper()
	raw := []byte(fmt.Sprintf("From: reports@%s\r\nTo: %s\r\nSubject: Report\r\nDate: %s\r\nMessage-ID: <%d@%[1]s>\r\n"+
		"MIME-Version: 1.0\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n%[5]s\r\n",
		from, to, time.Now().UTC().Format(time.RFC1123Z), len(text), wrapped(base64.StdEncoding.EncodeToString([]byte(text)))))
	signature, err := dkim.Sign(raw, time.Now(), dkim.Signer{Domain: from, Selector: "s1", Key: k})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := inject(s.mx, to, append(signature, raw...)); err != nil {
		s.t.Fatalf("receive a report: %v", err)
	}
}

func wrapped(text string) string {
	var b strings.Builder
	for len(text) > 76 {
		b.WriteString(text[:76] + "\r\n")
		text = text[76:]
	}
	return b.String() + text
}
