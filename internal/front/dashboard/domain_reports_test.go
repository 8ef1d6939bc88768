package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

// The page shows how to get reports, and then what they say. Texts of reporters are escaped.
func TestDomainReports(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		d := b.domainOf(b.acme.TeamID)
		at := "/app/domains/" + d.ID + "/reports"
		v := b.visitor(teams.Viewer)
		address, err := b.Reports.Address(t.Context(), &d)
		b.must(err)
		v.shows(at, 200, "No reports yet", `data-copy="v=DMARC1; p=none; rua=mailto:`+address+`"`,
			`data-copy="_dmarc.`+d.Name+`"`, "Verified", // as each record in development
			`data-copy="v=TLSRPTv1; rua=mailto:`+address+`"`, `data-copy="_smtp._tls.`+d.Name+`"`)
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE report_addresses SET dmarc = 'v=DMARC1; p=reject', tls = 'v=TLSRPTv1; rua=https://a.example'
				WHERE domain_id = $1`, db.ID(d.ID))
			return nil
		}))
		if page := v.shows(at, 200, `data-copy="v=DMARC1; p=reject; rua=mailto:`+address+`"`,
			`data-copy="v=TLSRPTv1; rua=https://a.example,mailto:`+address+`"`); strings.Contains(page, "keep it, and add") {
			t.Errorf("the present records are known:\n%s", page)
		}
		b.visitorOf(b.other.TeamID, teams.Admin).shows(at, 404)
		local, _, _ := strings.Cut(address, "@")
		target, _, err := b.Reports.Find(t.Context(), local)
		b.must(err)
		begin := b.DB.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
		for _, text := range []string{
			fmt.Sprintf(`<feedback><report_metadata><org_name>mail.example</org_name><report_id>1</report_id><date_range><begin>%d</begin>`+
				`<end>%d</end></date_range></report_metadata><policy_published><domain>%s</domain></policy_published><record>`+
				`<row><source_ip>198.51.100.7</source_ip><count>40</count></row><identifiers><header_from>%[3]s</header_from>`+
				`</identifiers></record></feedback>`, begin.Unix(), begin.Unix()+86_399, d.Name), "<feedback><b>&lt;script>"} {
			m := domainreports.Message{Parsed: mailparse.Parse([]byte("From: r@mail.example\r\nContent-Type: application/x-r\r\n" +
				"\r\n" + text)), Results: &authres.Results{DKIM: []authres.Verdict{{Result: "pass", Domain: "mail.example"}}}}
			draft, err := b.Reports.Read(t.Context(), target, m)
			b.must(err)
			b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error { return b.Reports.Store(t.Context(), tx, draft) }))
		}
		page := v.shows(at+"?days=7", 200, "198.51.100.7 sent 40 messages as this domain", "Who else sends as this domain",
			"mail.example", "Unreadable", "Counted", "Next step of the policy", `<svg class="plot"`)
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>&lt;script") {
			t.Error("a text of a report is not escaped")
		}
		_, rest, _ := strings.Cut(page, `href="`+at+"/")
		file, _, _ := strings.Cut(rest, `"`)
		v.shows(at+"/"+file, 200, "<feedback>")
		b.visitorOf(b.other.TeamID, teams.Admin).shows(at+"/"+file, 404)
		v.shows(at+"?after="+d.ID, 200, "This is the end of the list.")
		v.shows(at+"?after=nonsense", 404)
		v.shows("/app/domains/"+d.ID, 200, at)
	})
}

// The owner of a delegated domain adds no records for reports, because the delegation publishes them.
func TestReportsOfDelegatedDomain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		id := b.api("POST", "/domains", `{"name":"mail.shop.example"}`)["id"].(string)
		b.api("PUT", "/domains/"+id+"/setup", `{"setup":"delegation"}`)
		if page := b.visitor(teams.Viewer).shows("/app/domains/"+id+"/reports", 200,
			"The delegation publishes the records"); strings.Contains(page, "_dmarc.") {
			t.Errorf("the page shows records:\n%s", page)
		}
	})
}
