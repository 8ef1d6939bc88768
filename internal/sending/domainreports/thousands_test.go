package domainreports_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/dmarcrpt/dmarcrpttest"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

const (
	thousands = 2000
	customers = 5
)

// sums are what the view of a domain must show.
type sums struct {
	Messages, Passed int64
	Days, Classes    map[string]int64
	Sources          map[string]int64
	Reporters        map[string]int64
}

func newSums() *sums {
	return &sums{Days: map[string]int64{}, Classes: map[string]int64{}, Sources: map[string]int64{},
		Reporters: map[string]int64{}}
}

// 2,000 reports in the dialects of ten reporters come over SMTP, in many forms of messages. The views have exactly
// their sums. Of the five domains, the first has five faults, which are named, and nothing else is.
func TestThousands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		addr := f.listen(t)
		c := dial(t, addr)
		random := rand.New(rand.NewPCG(9990, 30))
		want := make([]*sums, customers)
		var addresses []string
		for i := range customers {
			want[i] = newSums()
			_, address := f.domain(customer(i))
			addresses = append(addresses, address)
		}
		for i := range thousands {
			m := f.model(random, i)
			d := dmarcrpttest.Dialects[i/customers%len(dmarcrpttest.Dialects)]
			reporter := fmt.Sprintf("r%d.example", i/customers%10)
			m.H.Email = "reports@" + reporter
			file := d.File(&m)
			f.reporter(reporter)
			x := &mail{from: reporter, subject: "Report", file: file, signed: true}
			x.kind, x.name, x.isBody = form(i)
			accept(t, c, addresses[i%customers], f.compose(x))
			want[i%customers].add(&m, reporter)
		}
		f.plantTLS(t, addr, customer(0), addresses[0])
		for i := range customers {
			d, err := f.Domains.GetByName(t.Context(), f.team.TeamID, customer(i))
			f.Must(err)
			v := f.dmarc(&d, 20)
			if diff := cmp.Diff(want[i], shown(v)); diff != "" {
				t.Errorf("%s: %s", d.Name, diff)
			}
			found := named(v.Findings)
			for _, x := range f.tls(&d).Findings {
				found = append(found, fmt.Sprintf("%s %s", x.Kind, x.Source))
			}
			var faults []string
			if i == 0 {
				faults = []string{"old_selector Zendesk zd2019", "missing_in_spf " + unlistedSource + " crm",
					"impostor " + foreignSource, "forwarder " + forwardSource, "certificate-expired mx." + d.Name}
			}
			if diff := cmp.Diff(faults, found); diff != "" {
				t.Errorf("findings of %s: %s", d.Name, diff)
			}
			if v.Apart != (domainreports.Apart{}) || v.Incomplete {
				t.Errorf("%s: %+v, incomplete %t", d.Name, v.Apart, v.Incomplete)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM received_reports WHERE state = 'counted'`); n != thousands+1 {
			t.Errorf("%d reports are counted", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM received_emails`); n != 0 {
			t.Errorf("%d emails are stored", n)
		}
	})
}

func customer(i int) string { return fmt.Sprintf("customer%d.example", i) }

// form returns the form of a message: reporters give files wrong types and names, or send them as the body.
func form(i int) (kind, name string, isBody bool) {
	switch i % 7 {
	case 0:
		return "application/gzip", "google.com!example.com!1!2.xml.gz", false
	case 1:
		return "application/octet-stream", "", false
	case 2:
		return "application/zip", "report.zip", true
	case 3:
		return "text/xml", "report.xml", false
	case 4:
		return "application/x-zip-compressed", "a.bin", false
	case 5:
		return "application/gzip", "r.gz", true
	}
	return "image/png", "picture.png", false
}

// model returns the i-th report. The periods of a reporter are eight hours long and do not overlap.
func (f *fixture) model(r *rand.Rand, i int) dmarcrpttest.Model {
	domain, j := customer(i%customers), i/customers
	slot := j / 10
	begin := f.today().AddDate(0, 0, -15).Add(time.Duration(slot) * 8 * time.Hour)
	m := dmarcrpttest.Model{H: dmarcrpt.Header{Org: "Reporter", Email: "reports@reporter.example",
		ID: fmt.Sprintf("%d.%d@reporter.example", i, r.IntN(1e6)), Begin: begin,
		End:    begin.Add(8*time.Hour - time.Second),
		Policy: dmarcrpt.Policy{Domain: domain, P: "none", Percent: 100}}}
	m.Rows = append(m.Rows, row(domain, ownSource, 100+r.Int64N(900), "postrider", true, true),
		row(domain, googleSource, 50+r.Int64N(500), "google", true, true))
	if r.IntN(2) == 0 {
		m.Rows = append(m.Rows, row("news."+domain, "198.51.100.11", 1+r.Int64N(9), "postrider", true, true))
	}
	if i%customers == 0 && j%4 == 0 {
		m.Rows = append(m.Rows, row(domain, zendeskSource, 20+r.Int64N(5), "zd2019", false, true),
			row(domain, unlistedSource, 10+r.Int64N(5), "crm", true, false),
			row(domain, forwardSource, 10+r.Int64N(5), "postrider", true, false),
			row(domain, foreignSource, 15+r.Int64N(5), "", false, false))
	}
	return m
}

func (s *sums) add(m *dmarcrpttest.Model, reporter string) {
	classes := map[string]string{ownSource: "ours", "198.51.100.11": "ours", googleSource: "provider",
		zendeskSource: "provider", unlistedSource: "unlisted", forwardSource: "forwarded", foreignSource: "unknown"}
	names := map[string]string{googleSource: "Google Workspace", zendeskSource: "Zendesk"}
	for _, r := range m.Rows {
		ip := r.Source.String()
		name := ip
		if names[ip] != "" {
			name = names[ip]
		}
		s.Messages += r.Count
		s.Days[m.H.Begin.Format(time.DateOnly)] += r.Count
		s.Classes[classes[ip]] += r.Count
		s.Sources[classes[ip]+" "+name] += r.Count
		s.Reporters[reporter] += r.Count
		if r.DKIM || r.SPF {
			s.Passed += r.Count
		}
	}
}

// shown returns the sums in a view.
func shown(v *domainreports.DMARCView) *sums {
	s := newSums()
	s.Messages, s.Passed = v.Messages, v.Passed
	for _, d := range v.Days {
		s.Days[d.Day.Format(time.DateOnly)] = d.Passed + d.Failed
		for class, n := range d.Classes {
			s.Classes[string(class)] += n
		}
	}
	for _, x := range v.Sources {
		s.Sources[string(x.Class)+" "+x.Name] = x.Messages
	}
	for _, x := range v.Reporters {
		s.Reporters[x.Domain] = x.Messages
	}
	return s
}

func named(all []domainreports.Finding) (names []string) {
	for _, x := range all {
		name := fmt.Sprintf("%s %s", x.Kind, x.Source)
		if x.Selector != "" {
			name += " " + x.Selector
		}
		names = append(names, name)
	}
	return names
}

// plantTLS sends a TLS report about an expired certificate.
func (f *fixture) plantTLS(t *testing.T, addr, domain, to string) {
	t.Helper()
	begin := f.today().AddDate(0, 0, -1)
	r := &tlsrpt.Report{Organization: "Reporter", ID: "tls-1", Begin: begin, End: begin.Add(24*time.Hour - time.Second),
		Policies: []tlsrpt.PolicyReport{{Policy: tlsrpt.Policy{Type: tlsrpt.NoPolicy, Domain: domain}, Successful: 500,
			Failed: 30, Failures: []tlsrpt.Failure{{Result: tlsrpt.CertificateExpired, Host: "mx." + domain, Sessions: 30}}}}}
	f.reporter("tls.example")
	accept(t, dial(t, addr), to, f.tlsMail(t, r, "tls.example", domain))
}

// tlsMail returns a signed message with a TLS report.
func (f *fixture) tlsMail(t *testing.T, r *tlsrpt.Report, from, domain string) []byte {
	t.Helper()
	file, err := r.Gzip()
	f.Must(err)
	return f.compose(&mail{from: from, subject: tlsrpt.Subject(from, domain, r.ID), file: file, signed: true,
		name: tlsrpt.FileName(from, domain, r.Begin, r.End, ""), kind: tlsrpt.MediaTypeGzip})
}
