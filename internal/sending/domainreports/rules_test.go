package domainreports_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Addresses are random, also for equal names, and other local parts are refused.
func TestAddresses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, to := f.domain("shop.example")
		_, other := f.domain("store.example")
		local, host, _ := strings.Cut(to, "@")
		if to == other || len(local) != 16 || host != "inbound.postrider.test" {
			t.Errorf("the addresses are %s and %s", to, other)
		}
		c := dial(t, f.listen(t))
		raw := []byte("Subject: x\r\n\r\nx\r\n")
		for address, want := range map[string]int{to: 250, strings.ToUpper(local) + "@" + host: 250,
			local + "@mx.postrider.test": 250, local + "x@" + host: 550, strings.Repeat("a", 16) + "@" + host: 550,
			"tlsrpt-" + to: 550, local + "@shop.example": 550} {
			if code := deliver(c, address, raw); code != want {
				t.Errorf("%s: %d instead of %d", address, code, want)
			}
		}
	})
}

// Domains get their addresses when they are created, or by the sweep, and no view writes one.
func TestViewsDoNotWrite(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		if to == "" {
			t.Error("a new domain has no address")
		}
		f.Exec(`DELETE FROM report_addresses`)
		f.dns.TXTRecords["_dmarc.shop.example"] = []string{"v=DMARC1; p=none"}
		v := f.dmarc(d, 20)
		f.tls(d)
		if address, err := f.Reports.Address(t.Context(), d); address != "" || err != nil || v.Readiness.Next != "" {
			t.Errorf("without an address: %q, %v, %q", address, err, v.Readiness.Next)
		}
		if n := f.Count(`SELECT COUNT(*) FROM report_addresses`); n != 0 {
			t.Error("a view wrote an address")
		}
		f.Must(f.Reports.Sweep(t.Context()))
		if address, err := f.Reports.Address(t.Context(), d); address == "" || err != nil {
			t.Errorf("after the sweep: %q, %v", address, err)
		}
		f.Exec(`DELETE FROM report_addresses`)
		f.Must(f.Reports.LookUp(t.Context(), d, false))
		if all, err := f.Reports.Advised(t.Context(), d); err != nil || len(all) != 2 {
			t.Errorf("after a look-up: %+v, %v", all, err)
		}
	})
}

// A report counts once. A second report about the same time is listed, but not added up. Reports that prove nothing are
// apart, and do not keep the genuine report with the same id from counting.
func TestTrust(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		r := f.day("shop.example", "one", 1, row("shop.example", ownSource, 7, "s", true, true))
		forged := r
		forged.rows = append(r.rows, row("shop.example", foreignSource, 5000, "", false, false))
		f.reporter("mail.example")
		accept(t, c, to, f.compose(&mail{from: "mail.example", file: forged.xml()})) // not signed
		f.send(c, to, "mail.example", r)
		f.send(c, to, "mail.example", r)
		second := r
		second.id, second.begin = "two", r.begin.Add(time.Hour)
		f.send(c, to, "mail.example", second)
		third := r
		third.id, third.org = "three", "Another part of the reporter"
		f.send(c, to, "mail.example", third)
		foreign := f.day("elsewhere.example", "four", 1, row("elsewhere.example", ownSource, 7, "s", true, true))
		f.send(c, to, "mail.example", foreign)
		future, old := f.day("shop.example", "five", -3), f.day("shop.example", "six", 70)
		f.send(c, to, "mail.example", future)
		f.send(c, to, "mail.example", old)
		var got []string
		for _, x := range f.list(d) {
			got = append(got, fmt.Sprintf("%s %t %d", x.State, x.Proven, x.Repeats))
		}
		want := []string{"counted false 0", "counted true 1", "overlapping true 0", "counted true 0", "discarded true 0",
			"unreadable true 0", "unreadable true 0"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		v := f.dmarc(d, 20)
		if v.Messages != 14 || v.Apart != (domainreports.Apart{Messages: 5007, Failed: 5000}) || len(v.Findings) != 0 ||
			len(v.Others) != 0 || v.Readiness.Messages != 14 {
			t.Errorf("%+v", v)
		}
	})
}

// Failing signatures of this installation are a defect: the team gets a notice once, and the operator's list has it.
// Reports without proof change neither.
func TestOwnSignatures(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		bad := row("shop.example", ownSource, 40, "postrider", false, true)
		f.reporter("mail.example")
		forged := f.day("shop.example", "zero", 1, bad)
		accept(t, c, to, f.compose(&mail{from: "mail.example", file: forged.xml()}))
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		// One reporter is not enough, also if its names differ, as any domain can sign a report.
		f.send(c, to, "mail.example", f.day("shop.example", "one", 1, bad))
		f.send(c, to, "reports.mail.example", f.day("shop.example", "one", 1, bad))
		f.send(c, to, "little.example", f.day("shop.example", "one", 1, row("shop.example", ownSource, 9, "s", false, true)))
		// The good mail that a reporter claims does not hide failures that others find.
		f.send(c, to, "good.example", f.day("shop.example", "one", 1, row("shop.example", ownSource, 1, "s", false, true),
			row("shop.example", ownSource, 1e9, "s", true, true)))
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM report_addresses WHERE noticed_at > 0`); n != 0 {
			t.Error("the team got a notice because of one reporter")
		}
		f.send(c, to, "post.example", f.day("shop.example", "two", 1, bad))
		all, err := f.Reports.Defects(t.Context())
		want := []domainreports.Defect{{TeamID: d.TeamID, Domain: d.Name, Failed: 129, Messages: 129, Reporters: 3}}
		if diff := cmp.Diff(want, all); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
		if n := f.Count(`SELECT COUNT(*) FROM report_addresses WHERE noticed_at > 0`); n != 1 {
			t.Error("the team got no notice")
		}
		if got := named(f.dmarc(d, 20).Findings); !cmp.Equal(got, []string{"own_signature " + ownSource + " postrider",
			"own_signature " + ownSource + " s"}) {
			t.Errorf("%q", got)
		}
		// A well-known reporter needs no second one. Its address for questions may lie elsewhere.
		known, toKnown := f.domain("known.example")
		r := f.day(known.Name, "one", 1, row(known.Name, ownSource, 40, "postrider", false, true))
		r.by = "yahooinc.com"
		f.reporter("dmarc.yahoo.com")
		accept(t, c, toKnown, f.compose(&mail{from: "dmarc.yahoo.com", file: r.xml(), signed: true}))
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 2 || all[1].Domain != known.Name {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// A signature covers the last From field, so a message with a second one above it is not authenticated. Users of the
// organization of a well-known reporter do not speak for it.
func TestForgedFrom(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		bad := row(d.Name, ownSource, 500, "postrider", false, false)
		f.reporter("comcast.net")
		r := f.day(d.Name, "one", 1, bad)
		r.by = "alerts.comcast.net"
		signed := f.compose(&mail{from: "comcast.net", file: r.xml(), signed: true})
		for _, name := range []string{"From", "from", "From "} {
			accept(t, c, to, append([]byte(name+": x@alerts.comcast.net\r\n"), signed...))
		}
		f.dns.TXTRecords["_dmarc.alerts.comcast.net"] = []string{"v=DMARC1; p=reject"}
		raw := f.compose(&mail{from: "alerts.comcast.net", file: r.xml()})
		signature, err := dkim.Sign(raw, f.now, dkim.Signer{Domain: "comcast.net", Selector: "s1", Key: f.key})
		f.Must(err)
		accept(t, c, to, append(signature, raw...))
		for i, x := range f.list(d) {
			if x.Proven && x.Reporter != "comcast.net" {
				t.Errorf("%d: %+v", i, x)
			}
		}
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		f.reporter("alerts.comcast.net")
		accept(t, c, to, f.compose(&mail{from: "alerts.comcast.net", file: r.xml(), signed: true}))
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("the genuine report does not count: %v, %v", all, err)
		}
	})
}

// A report that names another reporter than the domain that signed its message proves nothing, and the list says why.
func TestMisnamed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		bad := row("shop.example", ownSource, 4000, "postrider", false, false)
		for _, signer := range []string{"evil.example", "google.com.evil.example", "yahoo.com"} {
			f.reporter(signer)
			for _, claimed := range []string{"google.com", "notevil.example"} {
				r := f.day(d.Name, signer+claimed, 1, bad)
				r.by, r.org = claimed, "google.com"
				accept(t, c, to, f.compose(&mail{from: signer, file: r.xml(), signed: true}))
			}
		}
		for i, x := range f.list(d) {
			if x.Proven || x.State == domainreports.Discarded || !strings.Contains(x.Reason, "as its reporter, but it came from") &&
				x.State == domainreports.Counted {
				t.Errorf("%d: %+v", i, x)
			}
		}
		if v := f.dmarc(d, 20); v.Messages != 0 || v.Apart.Messages != 12_000 {
			t.Errorf("%+v", v)
		}
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// A stranger who forwards genuine reports of a well-known reporter about another domain does not use up its limit.
func TestForwardedReportsUseNoLimit(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		for i, want := range []int{0, 1} {
			about := []string{"evil.example", d.Name}[i]
			f.send(c, to, "google.com", f.day(about, "a", 1, row(about, ownSource, 1, "s", true, true)))
			if n := f.Count(`SELECT COALESCE(SUM(reports), 0) FROM report_reporters`); n != want {
				t.Errorf("%d reports count against the limit after one about %s", n, about)
			}
		}
	})
}

// One reporter cannot use up the limits of a day. The half that is not open to all is left for well-known reporters.
func TestReporterLimits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		r := row(d.Name, ownSource, 1, "s", true, true)
		f.send(c, to, "evil.example", f.day(d.Name, "a", 1, r))
		f.Exec(`UPDATE report_reporters SET reports = 200`)
		f.send(c, to, "evil.example", f.day(d.Name, "b", 2, r))
		f.send(c, to, "sub.evil.example", f.day(d.Name, "c", 3, r))
		f.send(c, to, "good.example", f.day(d.Name, "d", 2, r))
		if n := f.Count(`SELECT dropped FROM report_days`); n != 2 || len(f.list(d)) != 2 {
			t.Errorf("%d are dropped", n)
		}
		f.Exec(`UPDATE report_days SET reports = 1000, bytes = 26000000, stored_rows = 5000`)
		f.send(c, to, "other.example", f.day(d.Name, "e", 3, r))
		f.send(c, to, "google.com", f.day(d.Name, "f", 3, r, row(d.Name, foreignSource, 5, "", false, false)))
		if n := f.Count(`SELECT dropped FROM report_days`); n != 3 || len(f.list(d)) != 3 {
			t.Errorf("%d are dropped", n)
		}
		if v := f.dmarc(d, 20); len(v.Others) != 1 || !f.list(d)[2].HasFile {
			t.Errorf("the report of a well-known reporter has no details: %+v", v)
		}
	})
}

// TLS reports whose subject, file name or header contradict them are discarded, as are those without a signature.
func TestTLS(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		addr := f.listen(t)
		c := dial(t, addr)
		f.reporter("mail.example")
		begin := f.today().AddDate(0, 0, -1)
		make := func(id, domain string, change func(*mail)) {
			r := &tlsrpt.Report{Organization: id, ID: id, Contact: "tls@mail.example", Begin: begin, End: begin.Add(24*time.Hour - time.Second),
				Policies: []tlsrpt.PolicyReport{{Policy: tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: domain}, Successful: 10, Failed: 3,
					Failures: []tlsrpt.Failure{{Result: tlsrpt.TLSAInvalid, Host: "mx.shop.example", Sessions: 2}}}}}
			file, err := r.Gzip()
			f.Must(err)
			m := &mail{from: "mail.example", subject: tlsrpt.Subject("mail.example", domain, "another-id"), file: file,
				signed: true, name: tlsrpt.FileName("mail.example", domain, r.Begin, r.End, "")}
			change(m)
			accept(t, c, to, f.compose(m))
		}
		make("good", "shop.example", func(*mail) {})
		make("host", "mx.shop.example", func(m *mail) { m.header = "TLS-Report-Domain: shop.example\r\n" })
		make("plain", "shop.example", func(m *mail) { m.subject, m.name = "Your report", "report.json.gz" })
		make("subject", "shop.example", func(m *mail) { m.subject = tlsrpt.Subject("mail.example", "x.example", "1") })
		make("file", "shop.example", func(m *mail) { m.name = "mail.example!x.example!1!2.json.gz" })
		make("time", "shop.example", func(m *mail) { m.name = "mail.example!shop.example!1!2.json.gz" })
		make("foreign", "x.example", func(*mail) {})
		make("unsigned", "shop.example", func(m *mail) { m.signed = false })
		var got []string
		for _, x := range f.list(d) {
			got = append(got, fmt.Sprintf("%s %s %t %d", x.ReportID, x.State, x.Proven, x.Messages))
		}
		want := []string{"good counted true 13", "host counted true 13", "plain counted true 13",
			"subject discarded true 0",
			"file discarded true 0", "time discarded true 0", "foreign discarded true 0", "unsigned counted false 13"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		v := f.tls(d)
		if v.Successful != 30 || v.Failed != 9 || v.Apart.Messages != 13 || len(v.Failures) != 2 ||
			v.Failures[0].Type != "tlsa-invalid" || v.Failures[0].Sessions != 6 || v.Failures[0].Host != "mx.shop.example" ||
			!strings.Contains(v.Failures[0].Advice, "TLSA") || v.Failures[1].Type != "unspecified" {
			t.Errorf("%+v", v)
		}
		sessions := func(wantAll, wantFailed int64) {
			t.Helper()
			all, failed, err := f.Reports.Sessions(t.Context(), d.TeamID, d.Name, begin)
			if all != wantAll || failed != wantFailed || err != nil {
				t.Errorf("%d, %d, %v", all, failed, err)
			}
		}
		sessions(0, 0) // one reporter proves nothing
		f.plantTLS(t, addr, d.Name, to)
		sessions(569, 39)
		f.reporter("google.com")
		make("google", "shop.example", func(m *mail) { m.from = "google.com" })
		sessions(13, 3)
	})
}

// The limits of a day count what is dropped.
func TestDayLimits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		r := row("shop.example", ownSource, 1, "s", true, true)
		f.send(c, to, "mail.example", f.day("shop.example", "a", 1, r))
		f.Exec(`UPDATE report_days SET stored_rows = 10000`)
		f.send(c, to, "mail.example", f.day("shop.example", "b", 2, r, row("shop.example", foreignSource, 5, "", false, false)))
		f.Exec(`UPDATE report_days SET reports = 2000, others = 200`)
		f.send(c, to, "mail.example", f.day("shop.example", "c", 3, r))
		accept(t, c, to, []byte("Subject: no report\r\n\r\nHello.\r\n"))
		if got := f.Count(`SELECT dropped FROM report_days`); got != 2 || len(f.list(d)) != 2 {
			t.Errorf("%d are dropped", got)
		}
		v := f.dmarc(d, 20)
		if v.Messages != 7 || v.Passed != 2 || len(v.Others) != 0 || len(v.Reporters) != 2 {
			t.Errorf("%+v", v)
		}
	})
}

// Reports disappear with their domain and their team, and after their time; files go after 30 days.
func TestDeletion(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		gone, toGone := f.domain("gone.example")
		c := dial(t, f.listen(t))
		for _, x := range []struct{ domain, to string }{{d.Name, to}, {gone.Name, toGone}} {
			f.send(c, x.to, "mail.example", f.day(x.domain, "a", 1, row(x.domain, ownSource, 1, "s", true, true)))
			f.send(c, x.to, "mail.example", f.day(x.domain, "b", 20, row(x.domain, ownSource, 1, "s", true, true)))
		}
		if _, _, err := f.Reports.Reports(t.Context(), &domains.Domain{ID: d.ID, TeamID: f.other.TeamID},
			page.Page{}); err != nil {
			t.Error(err)
		}
		if n := len(f.list(&domains.Domain{ID: d.ID, TeamID: f.other.TeamID})); n != 0 {
			t.Errorf("another team sees %d reports", n)
		}
		f.Must(f.Domains.Delete(t.Context(), gone.TeamID, gone.ID))
		if code := deliver(c, toGone, []byte("Subject: x\r\n\r\n")); code != 550 {
			t.Errorf("%d for the address of a deleted domain", code)
		}
		f.Must(f.Reports.Sweep(t.Context()))
		rows := func() int {
			return f.Count(`SELECT (SELECT COUNT(*) FROM received_reports) + (SELECT COUNT(*) FROM received_dmarc_rows)
				+ (SELECT COUNT(*) FROM report_addresses)`)
		}
		if n := rows(); n != 5 {
			t.Errorf("%d rows instead of 5", n)
		}
		later := f.laterBy(31 * 24 * time.Hour)
		f.Must(later.Sweep(t.Context()))
		if n := f.Count(`SELECT COUNT(*) FROM received_reports WHERE blob_key <> ''`); n != 0 || rows() != 5 {
			t.Errorf("%d files, %d rows after 31 days", n, rows())
		}
		f.Must(f.laterBy(80 * 24 * time.Hour).Sweep(t.Context()))
		if n := f.Count(`SELECT COUNT(*) FROM received_dmarc_rows`); n != 1 {
			t.Errorf("%d rows after 80 days", n)
		}
		f.send(c, to, "mail.example", f.day(d.Name, "c", 3, row(d.Name, ownSource, 1, "s", true, true)))
		f.Must(f.Reports.EraseTeam(t.Context(), d.TeamID))
		if n := rows(); n != 0 {
			t.Errorf("%d rows of a deleted team", n)
		}
	})
}

// laterBy returns the service with another clock.
func (f *fixture) laterBy(by time.Duration) *domainreports.Service {
	f.T.Helper()
	s, err := domainreports.New(domainreports.Config{HostOf: func(string) string { return "inbound.postrider.test" },
		Now: func() time.Time { return f.DB.Now().Add(by) }},
		domainreports.Deps{DB: f.DB, Blobs: f.Blobs, DNS: f.dns, Domains: f.Domains, Log: f.Log,
			Notify: func(context.Context, *db.Tx, string, string, string) error { return nil }})
	f.Must(err)
	return s
}

// Mail of a domain that a rule of this installation forwarded is not the installation's own: it says nothing about our
// signatures.
func TestForwardedByUs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		copied := row(d.Name, ownSource, 400, "", false, false)
		copied.Paths = []dmarcrpt.Result{{Domain: "send.in.acme.example", Result: "pass"}}
		f.send(c, to, "mail.example", f.day(d.Name, "one", 1, copied))
		if all, err := f.Reports.Defects(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("defects %+v, %v", all, err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM report_addresses WHERE noticed_at > 0`); n != 0 {
			t.Error("the team got a notice")
		}
		v := f.dmarc(d, 20)
		if len(v.Sources) != 1 || v.Sources[0].Class != domainreports.Forwarded || v.Sources[0].Messages != 400 {
			t.Errorf("sources %+v", v.Sources)
		}
		for _, x := range v.Findings {
			if x.Kind == domainreports.OwnSignature {
				t.Errorf("finding %+v", x)
			}
		}
	})
}

// A domain is ready for the next step after 14 days with good mail.
func TestReadiness(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		f.dns.TXTRecords["_dmarc.shop.example"] = []string{"v=DMARC1; p=none; pct=50; rua=mailto:me@shop.example"}
		for back := 1; back <= 14; back++ {
			f.send(c, to, "google.com", f.day(d.Name, fmt.Sprint(back), back,
				row(d.Name, ownSource, 1000, "postrider", true, true)))
			if r := f.dmarc(d, 20).Readiness; back == 13 && (r.Ready || len(r.Reasons) != 1 || r.Days != 13) {
				t.Errorf("after 13 days: %+v", r)
			}
		}
		r := f.dmarc(d, 2).Readiness
		want := "v=DMARC1; p=quarantine; rua=mailto:me@shop.example,mailto:" + to + "; t=y"
		if !r.Ready || r.Policy != "none" || r.Next != want || r.Messages != 14_000 || len(r.Reasons) != 0 {
			t.Errorf("%+v", r)
		}
		f.send(c, to, "post.example", f.day(d.Name, "x", 1, row(d.Name, foreignSource, 200, "", false, false)))
		if r := f.dmarc(d, 2).Readiness; !r.Ready || r.Messages != 14_000 {
			t.Errorf("with a report that any domain could sign: %+v", r)
		}
		f.send(c, to, "microsoft.com", f.day(d.Name, "x", 1, row(d.Name, foreignSource, 200, "", false, false)))
		if r := f.dmarc(d, 2).Readiness; r.Ready || r.Unknown != foreignSource || len(r.Reasons) != 1 {
			t.Errorf("with an unknown source: %+v", r)
		}
		f.send(c, to, "corp.mail.ru", f.day(d.Name, "y", 2, row(d.Name, ownSource, 500, "postrider", false, false),
			row(d.Name, ownSource, 10_000, "postrider", true, true)))
		if r := f.dmarc(d, 2).Readiness; r.Ready || len(r.Reasons) != 1 ||
			!strings.Contains(r.Reasons[0], "known sources") {
			t.Errorf("with failing mail of our own: %+v", r)
		}
		f.mustWaitAfterStep(c)
		f.mustEndAtReject(c)
		// Reports of one domain that is not well-known prove nothing. Those of two do, from the second one's first day.
		d, to = f.domain("store.example")
		f.dns.TXTRecords["_dmarc.store.example"] = []string{"v=DMARC1; p=none"}
		for back := 1; back <= 14; back++ {
			f.send(c, to, []string{"evil.example", "a.evil.example"}[back%2], f.day(d.Name, fmt.Sprint(back), back,
				row(d.Name, ownSource, 1000, "postrider", true, true)))
		}
		if r := f.dmarc(d, 2).Readiness; r.Ready || r.Days != 14 || len(r.Reasons) != 1 {
			t.Errorf("with one reporter: %+v", r)
		}
		for _, back := range []int{13, 14} {
			f.send(c, to, "good.example", f.day(d.Name, fmt.Sprint(back), back, row(d.Name, ownSource, 9, "postrider", true, true)))
			if r := f.dmarc(d, 2).Readiness; r.Ready != (back == 14) || r.Days != back {
				t.Errorf("with a second reporter: %+v", r)
			}
		}
	})
}

// Advised records contain what is published, and never weaken the policy.
func TestAdvised(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("news.shop.example")
		ours := "mailto:" + to
		for i, x := range []struct {
			own  []string // the domain's records
			org  string   // of shop.example
			want string
		}{
			{nil, "", "v=DMARC1; p=none; rua=" + ours},
			{[]string{"v=DMARC1; p=none; rua=" + ours}, "", "v=DMARC1; p=none; rua=" + ours},
			{[]string{"v=DMARC1;p=reject;rua=mailto:a@b.example; fo=1"}, "",
				"v=DMARC1; p=reject; rua=mailto:a@b.example," + ours + "; fo=1"},
			{[]string{"v=DMARC1; p=quarantine; t=y"}, "", "v=DMARC1; p=quarantine; t=y; rua=" + ours},
			{nil, "v=DMARC1; p=reject", "v=DMARC1; p=reject; rua=" + ours},
			{nil, "v=DMARC1; p=reject; sp=quarantine; t=y", "v=DMARC1; p=quarantine; t=y; rua=" + ours},
			{nil, "v=DMARC1; p=reject; adkim=s; rf=afrf", "v=DMARC1; p=reject; adkim=s; rua=" + ours},
			{nil, "v=DMARC1; p=reject; aspf=s; sp=none", "v=DMARC1; p=none; aspf=s; rua=" + ours},
			{nil, "v=DMARC1; p=none; np=reject", "v=DMARC1; p=none; np=reject; rua=" + ours},
			{nil, "v=DMARC1; p=reject; np=none", "v=DMARC1; p=reject; rua=" + ours},
			{nil, "v=DMARC1; p=reject; rua=mailto:d@shop.example", "v=DMARC1; p=reject; rua=mailto:d@shop.example," + ours},
			{[]string{"v=DMARC1; p=none", "v=DMARC1; p=reject; adkim=s"}, "", "v=DMARC1; p=reject; adkim=s; rua=" + ours},
		} {
			f.dns.TXTRecords["_dmarc.news.shop.example"] = x.own
			f.dns.TXTRecords["_dmarc.shop.example"] = nil
			if x.org != "" {
				f.dns.TXTRecords["_dmarc.shop.example"] = []string{x.org}
			}
			f.Must(f.Reports.LookUp(t.Context(), d, false))
			all, err := f.Reports.Advised(t.Context(), d)
			f.Must(err)
			if all[0].Value != x.want || all[0].Name != "_dmarc.news.shop.example" || all[0].Type != "TXT" {
				t.Errorf("%d: %q instead of %q", i, all[0].Value, x.want)
			}
			if all[1].Value != "v=TLSRPTv1; rua="+ours || all[1].Name != "_smtp._tls.news.shop.example" {
				t.Errorf("%+v", all[1])
			}
		}
		chosen := *d
		chosen.DMARCRecord = "v=DMARC1; p=quarantine; rua=mailto:c@b.example"
		if all, err := f.Reports.Advised(t.Context(), &chosen); err != nil || len(all) != 2 ||
			all[0].Value != chosen.DMARCRecord+","+ours {
			t.Errorf("the record that the owner has chosen: %+v, %v", all, err)
		}
		f.dns.TXTRecords["_smtp._tls.news.shop.example"] = []string{"v=TLSRPTv1; rua=https://a.example/r"}
		f.Must(f.Reports.LookUp(t.Context(), d, false))
		want := []string{"v=DMARC1; p=reject; adkim=s; rua=" + ours, "v=TLSRPTv1; rua=https://a.example/r," + ours}
		check := func(when string) {
			t.Helper()
			all, err := f.Reports.Advised(t.Context(), d)
			if err != nil || len(all) != 2 || all[0].Value != want[0] || all[1].Value != want[1] {
				t.Errorf("%s: %+v, %v", when, all, err)
			}
		}
		check("at first")
		// The zone of a delegated domain has the last records, although the DNS no longer has them.
		f.dns.TXTRecords["_dmarc.news.shop.example"], f.dns.TXTRecords["_dmarc.shop.example"] = nil, nil
		f.dns.TXTRecords["_smtp._tls.news.shop.example"] = nil
		f.Must(f.Reports.LookUp(t.Context(), d, true))
		check("when the domain is delegated")
		_, host, _ := strings.Cut(to, "@")
		mute, err := domainreports.New(domainreports.Config{HostOf: func(string) string { return host }},
			domainreports.Deps{DB: f.DB, Blobs: f.Blobs, Domains: f.Domains, Log: f.Log,
				DNS: resolve.Fake{TXTRecords: f.dns.TXTRecords, Fail: []string{"_dmarc.news.shop.example",
					"_smtp._tls.news.shop.example", "_dmarc.mail.shop.example", "_smtp._tls.mail.shop.example"}},
				Notify: func(context.Context, *db.Tx, string, string, string) error { return nil }})
		f.Must(err)
		if err := mute.LookUp(t.Context(), d, false); err == nil {
			t.Error("failed look-ups are not reported")
		}
		check("after failed look-ups")
		// Nothing is stored of a domain that was delegated at once, and its own zone does not answer yet.
		at, to := f.domain("mail.shop.example")
		if all, err := f.Reports.Advised(t.Context(), at); err != nil || len(all) != 0 {
			t.Errorf("without a look-up: %+v, %v", all, err)
		}
		f.dns.TXTRecords["_dmarc.shop.example"] = []string{"v=DMARC1; p=reject"}
		f.Must(mute.LookUp(t.Context(), at, true))
		all, err := f.Reports.Advised(t.Context(), at)
		if err != nil || len(all) != 2 || all[0].Value != "v=DMARC1; p=reject; rua=mailto:"+to ||
			all[1].Value != "v=TLSRPTv1; rua=mailto:"+to {
			t.Errorf("delegated at once: %+v, %v", all, err)
		}
	})
}

// A period that is too long or ends before it begins is refused.
func TestPeriods(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, _ := f.domain("shop.example")
		day := f.today()
		for name, p := range map[string]domainreports.Period{"start_date": {From: day.AddDate(0, 0, -40), To: day},
			"end_date": {From: day, To: day}} {
			_, err1 := f.Reports.DMARC(t.Context(), d, p)
			_, err2 := f.Reports.TLS(t.Context(), d, p)
			for _, err := range []error{err1, err2} {
				if fault.KindOf(err) != fault.Invalid {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}
