package tlsreports_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/dailyreports"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

// later is a time at which all reports are due.
var later = today.Add(28*time.Hour + time.Second)

// policiesOf returns a policy of each type.
func policiesOf(domain string) []tlsrpt.Policy {
	return []tlsrpt.Policy{{Type: tlsrpt.NoPolicy, Domain: domain},
		{Type: tlsrpt.STS, Domain: domain, MX: []string{"*." + domain},
			Strings: []string{"version: STSv1", "mode: enforce", "mx: *." + domain, "max_age: 604800"}},
		{Type: tlsrpt.TLSA, Domain: "mx." + domain, Strings: []string{"3 1 1 " + strings.Repeat("0a", 32)}}}
}

// flat returns the counts of a report as text.
func flat(r *tlsrpt.Report) map[string]int64 {
	all := map[string]int64{}
	for _, p := range r.Policies {
		name := fmt.Sprint(p.Policy)
		all[name+" successful"] += p.Successful
		all[name+" failed"] += p.Failed
		for _, x := range p.Failures {
			all[fmt.Sprintf("%s %s %s %s", name, x.Result, x.Host, x.SendingIP)] += x.Sessions
		}
	}
	return all
}

// Two nodes count the sessions of a day with 50 domains in every type of failure. The next day, each domain gets one
// report with exactly these counts, by mail or HTTPS, and nothing is left.
func TestDay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		nodes := []*tlsreports.Service{f.node(), f.node()}
		want := map[string]map[string]int64{}
		count := func(to string, x tlsreports.Session, n int64) {
			for i := range n {
				nodes[i%2].Count(x)
			}
			name := fmt.Sprint(x.Policy)
			c := want[to]
			if c == nil {
				c = map[string]int64{}
				want[to] = c
			}
			c[name+" successful"] += 0 // a report has both sums
			c[name+" failed"] += 0
			if x.Result == "" {
				c[name+" successful"] += n
				return
			}
			c[name+" failed"] += n
			c[fmt.Sprintf("%s %s %s %s", name, x.Result, x.Host, x.Address)] += n
		}
		for i := range 50 {
			domain := fmt.Sprintf("d%d.example", i)
			to := "mailto:tls@" + domain
			if i%2 == 1 {
				to = "https://reports.example/" + domain
			}
			f.publish(domain, to)
			for j, p := range policiesOf(domain) {
				count(to, tlsreports.Session{Domain: strings.ToUpper(domain), Policy: p, Host: "mx." + domain}, int64(1+(i+j)%3))
				for k, result := range tlsrpt.Results() {
					count(to, tlsreports.Session{Domain: domain, Policy: p, Host: "mx." + domain, Result: result,
						Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + k%2)})}, int64(1+(i+j+k)%4))
				}
			}
			if i == 20 {
				f.Flush(nodes[0])
			}
		}
		f.Flush(nodes[0])
		f.Flush(nodes[1])
		f.At(today.Add(24*time.Hour + 14*time.Minute))
		if all := f.Send(nodes[0]); len(all) > 0 {
			t.Errorf("%d reports before the counts are complete", len(all))
		}
		// The reports are spread over the first hours.
		f.At(today.Add(26 * time.Hour))
		early := f.Send(nodes[0])
		f.At(later)
		all := f.Send(nodes[1])
		if len(early) == 0 || len(all) == 0 {
			t.Errorf("%d reports within two hours, and %d after", len(early), len(all))
		}
		all = append(all, early...)
		for _, x := range all {
			checkSchema(t, x.report)
			if diff := cmp.Diff(want[x.to], flat(x.report)); diff != "" {
				t.Errorf("%s: %s", x.to, diff)
			}
			if !x.report.Begin.Equal(today) || !x.report.End.Equal(today.Add(24*time.Hour-time.Second)) {
				t.Errorf("from %s to %s", x.report.Begin, x.report.End)
			}
			delete(want, x.to)
		}
		if len(all) != 50 || len(want) != 0 {
			t.Errorf("%d reports; without one are %v", len(all), slices.Collect(maps.Keys(want)))
		}
		if n := f.rows(); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// The owner of a mail host with TLSA records gets reports too, if the host's name has a record.
func TestHostOwner(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	s := f.node()
	f.publish("mx.provider.example", "mailto:tls@provider.example")
	x := session("customer.example")
	x.Policy = tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: "mx.provider.example", Strings: []string{"3 1 1 00"}}
	s.Count(x)
	f.Flush(s)
	f.At(later)
	all := f.Send(s)
	if len(all) != 1 || all[0].to != "mailto:tls@provider.example" || all[0].report.Policies[0].Successful != 1 {
		t.Errorf("%+v", all)
	}
}

// Domains without a usable record get no report, and a failing look-up is repeated.
func TestNoReport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("null.example", "")
		f.publish("unusable.example", "ftp://reports.example/,mailto:nobody")
		f.publish("two.example", "mailto:a@two.example")
		f.DNS.TXTRecords["_smtp._tls.two.example"] = append(f.DNS.TXTRecords["_smtp._tls.two.example"],
			f.DNS.TXTRecords["_smtp._tls.two.example"]...)
		f.publish("silent.example", "mailto:a@silent.example")
		f.publish("dead.example", "mailto:a@dead.example")
		broken := f.DNS
		broken.Fail = []string{"_smtp._tls.dead.example"}
		s := f.node(func(_ *tlsreports.Config, p *tlsreports.Deps) { p.DNS = broken })
		for _, domain := range []string{"null.example", "unusable.example", "two.example", "none.example", "dead.example",
			"[192.0.2.1]", ""} {
			s.Count(session(domain))
		}
		f.Flush(s)
		f.At(later)
		if all := f.Send(s); len(all) > 0 {
			t.Errorf("%+v", all)
		}
		if n := f.rows(); n != 3 {
			t.Errorf("%d rows are left, want those of dead.example", n)
		}
		f.At(later.Add(15*time.Minute + time.Second))
		if all := f.Send(f.node()); len(all) != 1 || all[0].to != "mailto:a@dead.example" {
			t.Errorf("after the DNS works again: %+v", all)
		}
	})
}

// A target that fails gets the same report later, for 24 hours. Other targets get it once.
func TestRetry(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("a.example", "mailto:one@a.example,https://reports.example/a")
		f.publish("b.example", "mailto:never@b.example")
		f.statuses["/a"] = http.StatusInternalServerError
		tries := 0
		f.OnMail = func(to string) error {
			if to == "never@b.example" {
				tries++
				return errors.New("refused")
			}
			return nil
		}
		s := f.node()
		s.Count(session("a.example"))
		s.Count(session("b.example"))
		f.Flush(s)
		f.At(later)
		first := f.Send(s)
		if len(first) != 1 || first[0].to != "mailto:one@a.example" || first[0].id == "" {
			t.Errorf("%+v", first)
		}
		if all := f.Send(s); len(all) > 0 || tries != 1 {
			t.Errorf("at once: %+v, %d tries", all, tries)
		}
		f.statuses["/a"] = http.StatusFound
		f.At(later.Add(15*time.Minute + time.Second))
		if all := f.Send(s); len(all) > 0 || tries != 2 {
			t.Errorf("after 15 minutes: %+v, %d tries", all, tries)
		}
		f.statuses["/a"] = http.StatusAccepted
		f.At(later.Add(75*time.Minute + 2*time.Second))
		all := f.Send(f.node())
		if len(all) != 1 || all[0].to != "https://reports.example/a" || cmp.Diff(first[0].report, all[0].report) != "" {
			t.Errorf("after an hour: %+v", all)
		}
		for f.Clock().Before(later.Add(23 * time.Hour)) {
			f.At(f.Clock().Add(time.Hour + time.Second))
			f.Send(s)
		}
		if tries != 7 || f.rows() != 3 {
			t.Errorf("%d tries within 24 hours, and %d rows", tries, f.rows())
		}
		f.At(later.Add(28 * time.Hour))
		f.Send(s)
		if tries != 7 || f.rows() != 0 || !strings.Contains(f.LogText.String(), "a TLS report is dropped") {
			t.Errorf("%d tries, %d rows, log:\n%s", tries, f.rows(), f.LogText)
		}
	})
}

// If a node is killed during a try, or loses its job to another node, no other node sends the report again. It sends
// the other reports.
func TestOneReport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		const n = 5
		s, other := f.node(), f.node()
		for i := range n {
			domain := fmt.Sprintf("d%d.example", i)
			f.publish(domain, "mailto:tls@"+domain)
			s.Count(session(domain))
		}
		f.Flush(s)
		f.At(later)
		// While the first node sends its first email, the other one does the rest, hours later.
		taken := false
		f.OnMail = func(string) error {
			f.mu.Lock()
			again := taken
			taken = true
			f.mu.Unlock()
			if again {
				return nil
			}
			f.At(later.Add(10 * time.Hour))
			return other.Send(t.Context())
		}
		all := f.Send(s)
		got := map[string]int{}
		for _, x := range all {
			got[x.to]++
		}
		if len(all) != n || len(got) != n || f.rows() != 0 {
			t.Errorf("%v, and %d rows are left", got, f.rows())
		}
	})
}

// An email that may have been sent is not sent again.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("a.example", "mailto:tls@a.example")
	s := f.node()
	s.Count(session("a.example"))
	f.Flush(s)
	f.At(later)
	tries := 0
	f.OnMail = func(string) error {
		tries++
		return fmt.Errorf("%w: the connection broke off", dailyreports.ErrUnknown)
	}
	f.Send(s)
	f.At(later.Add(time.Hour))
	f.Send(s)
	if tries != 1 || f.rows() != 0 {
		t.Errorf("%d tries, %d rows", tries, f.rows())
	}
}

// Counts that reach the database too late are dropped, because the report may have been sent.
func TestLateCounts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("a.example", "mailto:tls@a.example")
		f.At(today.Add(24*time.Hour - time.Microsecond))
		s, slow := f.node(), f.node()
		s.Count(session("a.example"))
		slow.Count(session("a.example"))
		f.At(today.Add(24*time.Hour + 9*time.Minute))
		s.Count(session("a.example")) // counts for the next day
		f.Flush(s)
		f.At(today.Add(24*time.Hour + 9*time.Minute + time.Microsecond))
		slow.Count(session("a.example"))
		f.Flush(slow)
		f.At(later)
		first := f.Send(s)
		f.At(later.Add(24 * time.Hour))
		second := f.Send(s)
		if len(first) != 1 || first[0].report.Policies[0].Successful != 1 || len(second) != 1 ||
			second[0].report.Policies[0].Successful != 2 || first[0].report.ID == second[0].report.ID {
			t.Errorf("%+v, then %+v", first, second)
		}
		if f.rows() != 0 || !strings.Contains(f.LogText.String(), "not reported") {
			t.Errorf("%d rows, log:\n%s", f.rows(), f.LogText)
		}
	})
}

// A domain with very many hosts and policies gets a report of limited size with exact sums, and needs a limited number
// of rows.
func TestBounds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("a.example", "mailto:tls@a.example")
		nodes := []*tlsreports.Service{f.node(), f.node()}
		const n = 3000
		for i := range n {
			x := session("a.example")
			x.Policy = tlsrpt.Policy{Type: tlsrpt.STS, MX: []string{"*.a.example", strings.Repeat("x", 2000)},
				Strings: []string{fmt.Sprintf("max_age: %d", i%40)}}
			x.Host, x.Result = fmt.Sprintf("mx%d.a.example", i), tlsrpt.Results()[i%11]
			nodes[i%2].Count(x)
			x.Host, x.Result = "mx.a.example", tlsrpt.NoSTARTTLS
			nodes[0].Count(x)
		}
		f.Flush(nodes[0])
		f.Flush(nodes[1])
		if rows := f.rows(); rows > 2*1300 {
			t.Errorf("%d rows", rows)
		}
		f.At(later)
		all := f.Send(nodes[0])
		if len(all) != 1 {
			t.Fatalf("%d reports", len(all))
		}
		var failed, details int64
		rows := 0
		for _, p := range all[0].report.Policies {
			failed += p.Failed
			rows += len(p.Failures)
			for _, x := range p.Failures {
				details += x.Sessions
			}
			if len(p.Policy.MX) > 1 {
				t.Errorf("patterns %q", p.Policy.MX)
			}
		}
		if failed != 2*n || details != 2*n || rows > 1000 || rows < 900 {
			t.Errorf("%d failures, %d in %d details", failed, details, rows)
		}
		if k := len(all[0].report.Policies); k < 20 || k > 41 {
			t.Errorf("%d policies", k)
		}
		checkSchema(t, all[0].report)
	})
}

// While the database is away, a node keeps its counts.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 3*time.Second)
	f := newFixture(t, d)
	f.publish("a.example", "mailto:tls@a.example")
	s := f.node()
	s.Count(session("a.example"))
	proxy.Refuse()
	if err := s.Flush(t.Context()); err == nil {
		t.Error("counts are stored without a database")
	}
	s.Count(session("a.example"))
	if err := proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	f.Flush(s)
	f.At(later)
	if all := f.Send(s); len(all) != 1 || all[0].report.Policies[0].Successful != 2 {
		t.Errorf("%+v", all)
	}
}

// Reports go only to addresses that strangers may name.
func TestGuard(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("a.example", "https://reports.example/a")
	f.publish("b.example", "https://127.0.0.1/b")
	s := f.node(func(_ *tlsreports.Config, p *tlsreports.Deps) { p.Guard = netguard.New(netguard.Options{}) })
	s.Count(session("a.example"))
	s.Count(session("b.example"))
	f.Flush(s)
	f.At(later)
	if all := f.Send(s); len(all) > 0 || strings.Count(f.LogText.String(), netguard.ErrRefused.Error()) != 2 {
		t.Errorf("%+v, log:\n%s", all, f.LogText)
	}
	f.publish("c.example", "https://other.example/c") // the certificate has another name
	f.DNS.AddrRecords["other.example"] = f.DNS.AddrRecords["reports.example"]
	s = f.node()
	f.At(today)
	s.Count(session("c.example"))
	f.Flush(s)
	f.At(later)
	if all := f.Send(s); len(all) > 0 || !strings.Contains(f.LogText.String(), "certificate is valid for reports.example") {
		t.Errorf("%+v, log:\n%s", all, f.LogText)
	}
}

// A node without reports counts nothing, and leaves what others counted to them, for two days.
func TestOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("a.example", "mailto:tls@a.example")
	off := func(c *tlsreports.Config, _ *tlsreports.Deps) { c.Off = true }
	s, silent := f.node(), f.node(off)
	s.Count(session("a.example"))
	f.Flush(s)
	before := f.rows()
	silent.Count(session("b.example"))
	f.Flush(silent)
	if after := f.rows(); before != 3 || after != before {
		t.Errorf("%d rows, then %d", before, after)
	}
	f.At(later)
	if all := f.Send(silent); len(all) > 0 || f.rows() != before {
		t.Errorf("%+v, %d rows", all, f.rows())
	}
	f.At(later.Add(49 * time.Hour))
	if all := f.Send(silent); len(all) > 0 || f.rows() != 0 {
		t.Errorf("%+v, %d rows", all, f.rows())
	}
}

func TestNewNeedsDeps(t *testing.T) {
	t.Parallel()
	if _, err := tlsreports.New(tlsreports.Config{}, tlsreports.Deps{}); err == nil {
		t.Error("a service without dependencies")
	}
}
