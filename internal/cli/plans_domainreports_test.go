package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

// domainReports takes reports about a domain: proven ones, one of them three times and one that overlaps, one without proof,
// and one that cannot be read. Then it reads all views.
func (d *driver) domainReports() {
	d.t.Helper()
	ctx := d.t.Context()
	all, _, err := d.Domains.List(ctx, d.team, page.Page{Limit: 1})
	if err != nil || len(all) == 0 {
		d.t.Fatalf("no domain: %v", err)
	}
	on := &all[0]
	address, err := d.Reports.Address(ctx, on)
	if err != nil {
		d.t.Fatal(err)
	}
	local, _, _ := strings.Cut(address, "@")
	target, ok, err := d.Reports.Find(ctx, local)
	if err != nil || !ok {
		d.t.Fatalf("the address %s: %t, %v", address, ok, err)
	}
	begin := d.DB.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	dmarc := func(id, domain string) string {
		return fmt.Sprintf(`<feedback><report_metadata><org_name>r.example</org_name><report_id>%s</report_id><date_range><begin>%d`+
			`</begin><end>%d</end></date_range></report_metadata><policy_published><domain>%s</domain></policy_published>`+
			`<record><row><source_ip>192.0.2.1</source_ip><count>50</count><policy_evaluated><dkim>fail</dkim></policy_evaluated>`+
			`</row><identifiers><header_from>%[4]s</header_from></identifiers></record></feedback>`, id, begin.Unix(),
			begin.Unix()+86_399, domain)
	}
	tls := fmt.Sprintf(`{"report-id":"t","organization-name":"r.example","date-range":{"start-datetime":%q,"end-datetime":%q},`+
		`"policies":[{"policy":{"policy-type":"sts","policy-domain":%q},"summary":{"total-successful-session-count":5,`+
		`"total-failure-session-count":2}}]}`, begin.Format(time.RFC3339), begin.Add(time.Hour).Format(time.RFC3339), on.Name)
	for _, x := range []struct {
		text   string
		proven bool
	}{{dmarc("1", on.Name), true}, {dmarc("1", on.Name), true}, {dmarc("1", on.Name) + "\n", true}, {dmarc("2", on.Name), true},
		{dmarc("3", on.Name), false},
		{tls, true}, {"no report", true}} {
		result := map[bool]string{true: "pass", false: "none"}[x.proven]
		m := domainreports.Message{Parsed: mailparse.Parse([]byte("From: a@r.example\r\nContent-Type: " +
			"application/x-report" +
			"\r\n\r\n" + x.text)), Results: &authres.Results{DKIM: []authres.Verdict{{Result: result, Domain: "r.example"}}}}
		draft, err := d.Reports.Read(ctx, target, m)
		if err == nil {
			err = d.DB.Update(ctx, func(tx *db.Tx) error { return d.Reports.Store(ctx, tx, draft) })
		}
		if err != nil {
			d.t.Error(err)
		}
	}
	period := d.Reports.LastDays(14)
	v, err := d.Reports.DMARC(ctx, on, period)
	if err != nil || v.Messages != 50 {
		d.t.Errorf("the view of DMARC reports: %+v, %v", v, err)
	}
	w, err := d.Reports.TLS(ctx, on, period)
	if err != nil || w.Failed != 2 {
		d.t.Errorf("the view of TLS reports: %+v, %v", w, err)
	}
	if _, _, err := d.Reports.Reports(ctx, on, page.Page{Limit: 2}); err != nil {
		d.t.Error(err)
	}
	if _, _, err := d.Reports.Sessions(ctx, d.team, on.Name, begin); err != nil {
		d.t.Error(err)
	}
	if _, err := d.Reports.Defects(ctx); err != nil {
		d.t.Error(err)
	}
	if err := d.Reports.Sweep(ctx); err != nil {
		d.t.Error(err)
	}
}
