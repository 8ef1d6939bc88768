package domainreports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/domains"
)

// inheritedRow is a delegated domain whose record above changes.
type inheritedRow struct {
	name   string
	own    []string // the domain's records before it was delegated
	above  []string // the records above it then
	chosen string   // the record that the owner chose afterwards
	now    []string // the records above it after that
	fails  bool     // whether the look-up of the records above fails
	// first and want are the published records before and after the last look-up, without the address for reports, and
	// changes says whether the policy has applied only since then.
	first, want string
	changes     bool
}

var inheritedRows = []inheritedRow{
	{name: "stricter", above: []string{"v=DMARC1; p=none"}, now: []string{"v=DMARC1; p=reject"},
		first: "p=none", want: "p=reject", changes: true},
	{name: "stricter-below", above: []string{"v=DMARC1; p=reject; sp=none"},
		now:   []string{"v=DMARC1; p=reject; sp=quarantine; np=reject; adkim=s; aspf=s; rua=mailto:a@b.example"},
		first: "p=none", want: "p=quarantine; np=reject; adkim=s; aspf=s; rua=mailto:a@b.example", changes: true},
	{name: "addresses", above: []string{"v=DMARC1; p=quarantine"},
		now:   []string{"v=DMARC1; p=quarantine; rua=mailto:a@b.example"},
		first: "p=quarantine", want: "p=quarantine; rua=mailto:a@b.example"},
	{name: "test-ended", above: []string{"v=DMARC1; p=reject; t=y"}, now: []string{"v=DMARC1; p=reject"},
		first: "p=reject; t=y", want: "p=reject", changes: true},
	{name: "new", now: []string{"v=DMARC1; p=quarantine"}, first: "p=none", want: "p=quarantine", changes: true},
	{name: "weaker", above: []string{"v=DMARC1; p=reject"}, now: []string{"v=DMARC1; p=none"},
		first: "p=reject", want: "p=none", changes: true},
	{name: "removed", above: []string{"v=DMARC1; p=reject; rua=mailto:a@b.example"},
		first: "p=reject; rua=mailto:a@b.example", want: "p=none", changes: true},
	{name: "failing", above: []string{"v=DMARC1; p=reject"}, fails: true, first: "p=reject", want: "p=reject"},
	{name: "failing-stricter", above: []string{"v=DMARC1; p=none"}, now: []string{"v=DMARC1; p=reject"}, fails: true,
		first: "p=none", want: "p=none"},
	{name: "several", above: []string{"v=DMARC1; p=reject"}, now: []string{"v=DMARC1; p=reject", "v=DMARC1; p=none"},
		first: "p=reject", want: "p=reject"},
	{name: "own", own: []string{"v=DMARC1; p=none"}, above: []string{"v=DMARC1; p=none"},
		now: []string{"v=DMARC1; p=reject"}, first: "p=none", want: "p=none"},
	{name: "several-own", own: []string{"v=DMARC1; p=none", "v=DMARC1; p=quarantine"},
		now: []string{"v=DMARC1; p=reject"}, first: "p=quarantine", want: "p=quarantine"},
	{name: "chosen", above: []string{"v=DMARC1; p=none"}, chosen: "v=DMARC1; p=quarantine",
		now: []string{"v=DMARC1; p=reject"}, first: "p=quarantine", want: "p=quarantine"},
}

// published returns the DMARC record that our name servers answer with for a delegated domain.
func (f *fixture) published(d *domains.Domain) string {
	f.T.Helper()
	all, err := f.Reports.Advised(f.T.Context(), d)
	f.Must(err)
	return all[0].Value
}

// since returns since when the record of a domain asks for its policy; 0 means since before the first look-up.
func (f *fixture) since(to string) int {
	token, _, _ := strings.Cut(to, "@")
	return f.Count(fmt.Sprintf(`SELECT asks_since FROM report_addresses WHERE token = '%s'`, token))
}

// withOurs returns a record with an address for reports.
func withOurs(record, to string) string {
	if strings.Contains(record, "rua=") {
		return "v=DMARC1; " + record + ",mailto:" + to
	}
	return "v=DMARC1; " + record + "; rua=mailto:" + to
}

// A delegated domain without a DMARC record of its own follows the records above it, as it did before. The record of
// the owner stays.
func TestInherited(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, r := range inheritedRows {
			t.Run(r.name, func(t *testing.T) { f.testInherited(t, &r) })
		}
	})
}

func (f *fixture) testInherited(t *testing.T, r *inheritedRow) {
	org := r.name + ".example"
	d, to := f.domain("news." + org)
	f.dns.TXTRecords["_dmarc."+d.Name], f.dns.TXTRecords["_dmarc."+org] = r.own, r.above
	f.Must(f.Reports.LookUp(t.Context(), d, false))
	d.DMARCRecord = r.chosen
	f.Must(f.Reports.LookUp(t.Context(), d, true))
	if got, want := f.published(d), withOurs(r.first, to); got != want {
		t.Errorf("at first: %q instead of %q", got, want)
	}
	f.Exec(`UPDATE report_addresses SET asks_since = 0`)
	f.dns.TXTRecords["_dmarc."+d.Name], f.dns.TXTRecords["_dmarc."+org] = nil, r.now
	if f.dns.Fail = nil; r.fails {
		f.dns.Fail = []string{"_dmarc." + org}
	}
	s := f.laterBy(0)
	if err := s.LookUp(t.Context(), d, true); (err != nil) != r.fails {
		t.Errorf("the look-up: %v", err)
	}
	since := f.since(to)
	if got, want := f.published(d), withOurs(r.want, to); got != want || (since > 0) != r.changes {
		t.Errorf("published since %d: %q instead of %q", since, got, want)
	}
	if s.LookUp(t.Context(), d, true); f.since(to) != since {
		t.Error("the policy counts as new again")
	}
	if r.chosen == "" {
		return
	}
	d.DMARCRecord = "" // the owner restores the default
	f.Must(s.LookUp(t.Context(), d, true))
	if got, want := f.published(d), withOurs("p=reject", to); got != want || f.since(to) == 0 {
		t.Errorf("after the choice: %q instead of %q", got, want)
	}
}

// While the delegation of a domain is not found for some hours, resolvers still ask our name servers. Their answer is
// not the owner's record. A record that differs is.
func TestInheritedAcrossAGap(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for i, x := range []struct {
			text   string // "" for the record that our name servers publish
			served bool
			want   string
		}{{"", true, "p=reject"}, {"", false, "p=none"}, {"v=DMARC1; p=quarantine", true, "p=quarantine"}} {
			org := fmt.Sprintf("gap%d.example", i)
			d, to := f.domain("news." + org)
			f.dns.TXTRecords["_dmarc."+org] = []string{"v=DMARC1; p=none"}
			f.Must(f.Reports.LookUp(t.Context(), d, true))
			if x.served {
				f.Exec(fmt.Sprintf(`UPDATE domains SET setup = 'delegation', checks = '{"ns":{"status":"verified"}}'
					WHERE name = '%s'`, d.Name))
			}
			at, err := f.Domains.Get(t.Context(), d.TeamID, d.ID)
			f.Must(err)
			if x.text == "" {
				x.text = f.published(&at)
			}
			f.dns.TXTRecords["_dmarc."+at.Name] = []string{x.text}
			f.Must(f.Reports.LookUp(t.Context(), &at, false))
			f.dns.TXTRecords["_dmarc."+org] = []string{"v=DMARC1; p=reject"}
			f.Must(f.Reports.LookUp(t.Context(), &at, true))
			if got, want := f.published(&at), withOurs(x.want, to); got != want {
				t.Errorf("%d: %q instead of %q", i, got, want)
			}
		}
	})
}
