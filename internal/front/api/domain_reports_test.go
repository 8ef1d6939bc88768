package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

// reported stores a proven DMARC report and a proven TLS report about yesterday.
func (f *fixture) reported(t testing.TB, teamID, domainID string) {
	t.Helper()
	d, err := f.Domains.Get(t.Context(), teamID, domainID)
	f.Must(err)
	address, err := f.Reports.Address(t.Context(), &d)
	f.Must(err)
	local, _, _ := strings.Cut(address, "@")
	target, _, err := f.Reports.Find(t.Context(), local)
	f.Must(err)
	begin := f.DB.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	const iso = "2006-01-02T15:04:05.000Z"
	row := func(ip string, n int, dkim, spf string) string {
		return fmt.Sprintf(`<record><row><source_ip>%s</source_ip><count>%d</count><policy_evaluated><disposition>none`+
			`</disposition><dkim>%s</dkim><spf>%s</spf></policy_evaluated></row><identifiers><header_from>%s</header_from>`+
			`</identifiers></record>`, ip, n, dkim, spf, d.Name)
	}
	for _, text := range []string{
		fmt.Sprintf(`<feedback><report_metadata><org_name>Example Mail</org_name><email>a@mail.example</email><report_id>4711</report_id><date_range><begin>`+
			`%d</begin><end>%d</end></date_range></report_metadata><policy_published><domain>%s</domain><p>none</p>`+
			`</policy_published>%s%s</feedback>`, begin.Unix(), begin.Unix()+86_399, d.Name, row("192.0.2.1", 120, "pass", "pass"),
			row("198.51.100.7", 15, "fail", "fail")),
		fmt.Sprintf(`{"organization-name":"Example Mail","contact-info":"a@mail.example","report-id":"815","date-range":{"start-datetime":%q,"end-datetime":%q},`+
			`"policies":[{"policy":{"policy-type":"sts","policy-domain":%q},"summary":{"total-successful-session-count":200,`+
			`"total-failure-session-count":12},"failure-details":[{"result-type":"certificate-expired","receiving-mx-hostname":`+
			`"mx.%[3]s","failed-session-count":12}]}]}`, begin.Format(iso), begin.Add(time.Hour).Format(iso),
			d.Name)} {
		m := domainreports.Message{Parsed: mailparse.Parse([]byte("From: reports@mail.example\r\nContent-Type: " +
			"application/" +
			"octet-stream\r\n\r\n" + text)), Results: &authres.Results{DKIM: []authres.Verdict{{Result: "pass",
			Domain: "mail.example"}}}}
		draft, err := f.Reports.Read(t.Context(), target, m)
		f.Must(err)
		f.Update(func(tx *db.Tx) error { return f.Reports.Store(t.Context(), tx, draft) })
	}
}

// The views and the list show what was received, only to the domain's team.
func TestDomainReports(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		id := f.verified("reported.example").ID
		f.reported(t, f.Acme.TeamID, id)
		ask := func(path string, into any) {
			t.Helper()
			w := f.do(t, "GET /domains/"+id+"/reports"+path)
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			f.Must(json.Unmarshal(w.Body.Bytes(), into))
		}
		var v dmarcViewWire
		ask("/dmarc", &v)
		if v.Messages != 135 || v.Passed != 120 || len(v.Days) != 1 || len(v.Sources) != 2 || len(v.Others) != 1 ||
			len(v.Findings) != 1 || v.Findings[0].Kind != "impostor" || v.Readiness.Ready ||
			!strings.HasSuffix(v.Address, "@inbound.postrider.test") {
			t.Errorf("%+v", v)
		}
		var w tlsViewWire
		ask("/tls", &w)
		if w.Successful != 200 || w.Failed != 12 || len(w.Failures) != 1 || w.Failures[0].Type != "certificate-expired" ||
			len(w.Findings) != 1 || w.Address != v.Address {
			t.Errorf("%+v", w)
		}
		yesterday := f.DB.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
		ask("/dmarc?start_date="+yesterday+"&end_date="+yesterday, &v)
		if v.Messages != 135 || v.StartDate != yesterday || v.EndDate != yesterday {
			t.Errorf("%+v", v)
		}
		var list struct {
			HasMore bool `json:"has_more"`
			Data    []struct {
				ID     string `json:"id"`
				State  string `json:"state"`
				Proven bool   `json:"proven"`
				Total  int64  `json:"total"`
				Begin  string `json:"begin"`
			} `json:"data"`
		}
		ask("?limit=1", &list)
		if len(list.Data) != 1 || !list.HasMore || list.Data[0].State != "counted" || !list.Data[0].Proven ||
			list.Data[0].Begin != yesterday+"T00:00:00.000Z" {
			t.Errorf("%+v", list)
		}
		ask("?limit=5&after="+list.Data[0].ID, &list)
		if len(list.Data) != 1 || list.HasMore || list.Data[0].Total != 135 {
			t.Errorf("%+v", list)
		}
		w2 := f.do(t, "GET /domains/"+id+"/reports/"+list.Data[0].ID+"/file")
		if h := w2.Header(); w2.Code != 200 || !strings.HasPrefix(w2.Body.String(), "<feedback>") ||
			h.Get("Content-Type") != "application/xml" || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Disposition") != `attachment; filename="report-`+list.Data[0].ID+`.xml"` {
			t.Errorf("the file: %d %v %s", w2.Code, h, w2.Body)
		}
		other := f.verified("other.example").ID
		for _, path := range []string{other + "/reports/" + list.Data[0].ID, id + "/reports/" + other} {
			if w := f.do(t, "GET /domains/"+path+"/file"); w.Code != 404 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		f.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE received_reports SET blob_key = ''`)
			return err
		})
		if w := f.do(t, "GET /domains/"+id+"/reports/"+list.Data[0].ID+"/file"); w.Code != 404 ||
			!strings.Contains(w.Body.String(), "not kept") {
			t.Errorf("a file that is not kept: %d %s", w.Code, w.Body)
		}
		for _, path := range []string{"", "/dmarc", "/tls", "/" + list.Data[0].ID + "/file"} {
			if w := f.do(t, "GET /domains/"+id+"/reports"+path+"\nAuthorization: other"); w.Code != 404 {
				t.Errorf("another team: %s: %d %s", path, w.Code, w.Body)
			}
			if w := f.do(t, "GET /domains/"+id+"/reports"+path+"\nAuthorization: sending"); w.Code != 401 {
				t.Errorf("a key for sending: %s: %d %s", path, w.Code, w.Body)
			}
		}
		for query, field := range map[string]string{"start_date=x": "start_date", "end_date=2026-13-01": "end_date",
			"start_date=2026-01-01&end_date=2026-04-01": "start_date", "start_date=2026-02-02&end_date=2026-02-01": "end_date"} {
			w := f.do(t, "GET /domains/"+id+"/reports/dmarc?"+query)
			if w.Code != 422 || !strings.Contains(w.Body.String(), field) && !strings.Contains(w.Body.String(), "31 days") {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
		}
	})
}
