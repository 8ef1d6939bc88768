package dmarcreports_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/dailyreports"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

func unpack(file []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Two nodes count messages. The report about the day has their sums, by address and result, and the policy. Its email
// has the form that RFC 9990 prescribes.
func TestReport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("example.net", "p=quarantine; sp=reject; np=none; adkim=s; rua=mailto:dmarc@example.net")
		one, two := f.node(), f.node()
		fill(one)
		for range 3 {
			one.Count(f.facts("example.net", "192.0.2.2"))
			two.Count(f.facts("example.net", "192.0.2.2"))
			two.Count(f.facts("example.net", "192.0.2.3"))
		}
		f.Flush(one)
		f.Flush(two)
		two.Count(f.facts("sub.example.net", "192.0.2.5"))
		f.Flush(two)
		f.At(today.Add(24*time.Hour + 10*time.Minute))
		if got := f.Send(one); len(got) > 0 {
			t.Fatalf("before the counts are complete: %+v", got)
		}
		f.At(later)
		got := f.Send(two)
		if len(got) != 1 {
			t.Fatalf("%d reports", len(got))
		}
		r := got[0]
		if want := "192.0.2.2 6 pass true false\n192.0.2.3 3 none false false\n192.0.2.5 1 none false false"; sums(r) != want {
			t.Errorf("rows:\n%s", sums(r))
		}
		h := r.header
		if h.Org != "acme.example" || h.Email != "notices@acme.example" || !h.Begin.Equal(today) ||
			!h.End.Equal(today.Add(24*time.Hour-time.Second)) || h.Generator != "Postrider" {
			t.Errorf("%+v", h)
		}
		if p := h.Policy; p.Domain != "example.net" || p.Discovery != "treewalk" || p.P != "quarantine" || p.SP != "reject" ||
			p.NP != "none" || !p.StrictDKIM || p.StrictSPF || p.Testing {
			t.Errorf("%+v", p)
		}
		first := r.rows[0]
		if s := first.Signatures; len(s) != 2 || s[0].Domain != "example.net" || s[0].Selector != "k1" || s[0].Result != "pass" {
			t.Errorf("signatures %+v", s)
		}
		if first.EnvelopeTo != "" || first.EnvelopeFrom != "bounces.example.net" || first.Paths[0].Scope != "mfrom" {
			t.Errorf("%+v", first)
		}
		if reasons := r.rows[1].Reasons; len(reasons) != 1 || reasons[0].Type != "local_policy" {
			t.Errorf("reasons %+v", reasons)
		}
		id, _, _ := strings.Cut(h.ID, "@")
		if r.to != "dmarc@example.net" || r.id != "<"+h.ID+">" ||
			r.subject != "Report Domain: example.net Submitter: acme.example Report-ID: <"+h.ID+">" ||
			r.file != fmt.Sprintf("acme.example!example.net!%d!%d!%s.xml.gz", today.Unix(), today.Unix()+86399, id) {
			t.Errorf("%+v", r)
		}
		if n := f.Rows("dmarc_reports", "dmarc_report_rows"); n > 0 {
			t.Errorf("%d rows are left", n)
		}
		f.At(later.Add(96 * time.Hour))
		if got := f.Send(one); len(got) > 0 || f.Rows("dmarc_report_days") > 0 {
			t.Errorf("%+v; %d days are left", got, f.Rows("dmarc_report_days"))
		}
	})
}

// The targets of another organization must accept reports about the domain.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, rua string
		records   map[string]string
		fail      string
		want      []string
	}{
		{"own", "mailto:a@example.net,mailto:b@sub.example.net", nil, "", []string{"a@example.net", "b@sub.example.net"}},
		{"stranger", "mailto:a@other.example", nil, "", nil},
		{"permitted", "mailto:a@other.example",
			map[string]string{"example.net._report._dmarc.other.example": "v=DMARC1"}, "", []string{"a@other.example"}},
		{"another record", "mailto:a@other.example",
			map[string]string{"example.net._report._dmarc.other.example": "v=spf1 -all"}, "", nil},
		{"another address", "mailto:a@other.example",
			map[string]string{"example.net._report._dmarc.other.example": "v=DMARC1; rua=MAILTO:b@other.example?subject=x"}, "",
			[]string{"b@other.example"}},
		{"another host", "mailto:a@other.example",
			map[string]string{"example.net._report._dmarc.other.example": "v=DMARC1; rua=mailto:b@third.example"}, "",
			[]string{"a@other.example"}},
		{"failing", "mailto:a@other.example,mailto:a@example.net", nil, "txt example.net._report._dmarc.other.example", nil},
		{"web", "https://example.net/reports,mailto:a@example.net!10m", nil, "", []string{"a@example.net"}},
		{"twice", "mailto:a@example.net,mailto:a@example.net", nil, "", []string{"a@example.net"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, dbtest.SQLite(t))
			f.publish("example.net", "p=none; rua="+c.rua)
			for name, text := range c.records {
				f.DNS.TXTRecords[name] = []string{text}
			}
			s := f.node()
			fill(s)
			s.Count(f.facts("example.net", "192.0.2.2"))
			f.Flush(s)
			f.At(later)
			if c.fail != "" {
				f.DNS.Fail = []string{c.fail}
				s = f.node()
			}
			var to []string
			for _, d := range f.Send(s) {
				to = append(to, d.to)
			}
			slices.Sort(to)
			if !slices.Equal(to, c.want) {
				t.Errorf("targets %v, want %v", to, c.want)
			}
			if left := f.Rows("dmarc_reports"); left > 0 != (c.fail != "") {
				t.Errorf("%d reports are left", left)
			}
		})
	}
}

// A day with few messages leads to no reports, because they would say more about the recipients than about the senders.
func TestNoReportsAboutFewMessages(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("example.net", "p=none; rua=mailto:a@example.net")
		s := f.node()
		for range 99 {
			s.Count(f.facts("example.net", "192.0.2.2"))
		}
		f.Flush(s)
		f.At(later)
		if got := f.Send(s); len(got) > 0 || f.Rows("dmarc_reports") > 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A service that is off counts nothing, and leaves what others counted to them, for two days. Domains without targets take no rows.
func TestOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("example.net", "p=none; rua=mailto:a@example.net")
	f.publish("quiet.example", "p=none; rua=https://quiet.example")
	on, off := f.node(), f.node(func(c *dmarcreports.Config, _ *dmarcreports.Deps) { c.Off = true })
	off.Count(f.facts("example.net", "192.0.2.2"))
	on.Count(f.facts("quiet.example", "192.0.2.2"))
	f.Flush(off)
	f.Flush(on)
	if n := f.Rows("dmarc_reports"); n > 0 {
		t.Errorf("%d reports", n)
	}
	fill(on)
	on.Count(f.facts("example.net", "192.0.2.2"))
	f.Flush(on)
	f.At(later)
	if got := f.Send(off); len(got) > 0 || f.Rows("dmarc_reports") != 1 {
		t.Errorf("%+v", got)
	}
	f.At(later.Add(49 * time.Hour))
	if got := f.Send(off); len(got) > 0 || f.Rows("dmarc_reports") > 0 {
		t.Errorf("%+v", got)
	}
}

// After a temporary failure, a report is sent again with the same id, for at most a day. A report that may have arrived
// is not sent again.
func TestRetries(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("example.net", "p=none; rua=mailto:a@example.net,mailto:b@example.net,mailto:c@example.net")
		s := f.node()
		fill(s)
		s.Count(f.facts("example.net", "192.0.2.2"))
		f.Flush(s)
		f.At(later)
		tries := map[string]int{}
		f.OnMail = func(to string) error {
			tries[to]++
			switch {
			case to == "b@example.net" && tries[to] < 3:
				return errors.New("451 try again later")
			case to == "c@example.net":
				return fmt.Errorf("%w: the connection broke", dailyreports.ErrUnknown)
			}
			return nil
		}
		first := f.Send(s)
		if len(first) != 1 || first[0].to != "a@example.net" {
			t.Fatalf("%+v", first)
		}
		if got := f.Send(f.node()); len(got) > 0 {
			t.Errorf("before its time: %+v", got)
		}
		f.At(later.Add(16 * time.Minute))
		f.Send(f.node())
		f.At(later.Add(3 * time.Hour))
		second := f.Send(f.node())
		if len(second) != 1 || second[0].to != "b@example.net" || second[0].id != first[0].id || sums(second[0]) != sums(first[0]) {
			t.Errorf("%+v", second)
		}
		if fmt.Sprint(tries) != "map[a@example.net:1 b@example.net:3 c@example.net:1]" || f.Rows("dmarc_reports") > 0 {
			t.Errorf("tries %v", tries)
		}
	})
}

// A report that no target takes for a day is dropped.
func TestExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("example.net", "p=none; rua=mailto:a@example.net")
	s := f.node()
	fill(s)
	s.Count(f.facts("example.net", "192.0.2.2"))
	f.Flush(s)
	f.OnMail = func(string) error { return errors.New("451 never") }
	for hours := 0; hours <= 30; hours++ {
		f.At(later.Add(time.Duration(hours) * time.Hour))
		f.Send(s)
	}
	if f.Rows("dmarc_reports") > 0 || strings.Count(f.LogText.String(), "a DMARC report is dropped") != 1 {
		t.Errorf("%d reports\n%s", f.Rows("dmarc_reports"), f.LogText)
	}
}

// A target that refuses three reports gets none for 90 days. A success forgets the bounces.
func TestBounces(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish("example.net", "p=none; rua=mailto:a@example.net")
		refused, tries := true, 0
		f.OnMail = func(string) error {
			if tries++; refused {
				return fmt.Errorf("%w: 550 no such mailbox", dailyreports.ErrBounced)
			}
			return nil
		}
		on := func(days int) int {
			s := f.node()
			f.At(today.AddDate(0, 0, days))
			fill(s)
			s.Count(f.facts("example.net", "192.0.2.2"))
			f.Flush(s)
			f.At(today.AddDate(0, 0, days).Add(29 * time.Hour))
			before := tries
			f.Send(s)
			if n := f.Rows("dmarc_reports"); n > 0 {
				t.Errorf("day %d: %d reports are left", days, n)
			}
			return tries - before
		}
		var all []int
		for _, d := range []int{0, 1, 2, 3, 50} {
			all = append(all, on(d))
		}
		refused = false
		all = append(all, on(95), on(96))
		if !slices.Equal(all, []int{1, 1, 1, 0, 0, 1, 1}) {
			t.Errorf("tries by day: %v", all)
		}
	})
}

// Counts that arrive after the report may have been sent are dropped, and so are those beyond the limit.
func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("example.net", "p=none; rua=mailto:a@example.net")
	s := f.node()
	x := f.facts("example.net", "192.0.2.2")
	s.Count(x)
	f.At(today.Add(24*time.Hour + 10*time.Minute))
	f.Flush(s)
	if n := f.Rows("dmarc_reports", "dmarc_report_days"); n > 0 {
		t.Errorf("%d rows of late counts", n)
	}
	for i := range 50_100 {
		y := *x
		y.Signatures = []authres.Signature{{Verdict: authres.Verdict{Result: "pass", Domain: "example.net"},
			Selector: fmt.Sprint(i)}}
		s.Count(&y)
	}
	f.Flush(s)
	if n := f.Rows("dmarc_report_rows"); n != 50_000 || !strings.Contains(f.LogText.String(), "messages=100") {
		t.Errorf("%d rows\n%s", n, f.LogText)
	}
}
