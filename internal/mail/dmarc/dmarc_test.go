package dmarc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// tree is a DNS with DMARC records at domains. A domain may have several, separated by "|".
type tree map[string]string

// walker returns a Walker and the list of the names that it queries.
func (z tree) walker(fail ...string) (*dmarc.Walker, *[]string) {
	dns := resolve.Fake{TXTRecords: map[string][]string{}, Fail: fail}
	for domain, text := range z {
		dns.TXTRecords["_dmarc."+domain] = strings.Split(text, "|")
	}
	// Names that exist without a record of their own.
	dns.TXTRecords["www.exists.example.com"] = []string{"x"}
	queries := new([]string)
	return dmarc.NewWalker(func(ctx context.Context, name string) ([]string, error) {
		*queries = append(*queries, name)
		return dns.TXT(ctx, name)
	}), queries
}

// forest has a tree for each rule.
var forest = tree{
	// Appendix B.4 of RFC 9989: records of the organization and of the public suffix above it.
	"example.com":      "v=DMARC1; p=none; sp=quarantine; np=reject",
	"mail.example.com": "v=DMARC1; p=reject",
	"giant.bank":       "v=DMARC1; p=reject; sp=none",
	"bank":             "v=DMARC1; p=reject; sp=quarantine; psd=y",
	"us.bank":          "v=DMARC1; p=none; psd=n",
	"mega.bank":        "v=DMARC1; p=none; psd=u",
	"branch.mega.bank": "v=DMARC1; p=quarantine",
	// A public suffix that does not say that it is one, and an organization that protects itself.
	"quiet":             "v=DMARC1; p=none",
	"careful.quiet":     "v=DMARC1; p=reject; psd=n",
	"sub.careful.quiet": "v=DMARC1; p=quarantine",
	"twice.example":     "v=DMARC1; p=none|v=DMARC1; p=reject",
	"above.twice":       "v=DMARC1; p=none|v=DMARC1; p=reject|x",
	"twice":             "v=DMARC1; p=quarantine",
	"other.example":     "x|v=spf1 -all|v=DMARC1; p=reject",
	"none.example":      "x|v=DMARC10; p=reject",
	"broken.example":    "v=DMARC1; p=block",
	"reports.example":   "v=DMARC1; p=block; sp=reject; rua=mailto:a@b.example",
	"badsub.example":    "v=DMARC1; p=reject; np=block",
	"test.example":      "v=DMARC1; p=reject; sp=quarantine; np=none; t=y",
	"np.example":        "v=DMARC1; p=none; np=reject",
	"same.example":      "v=DMARC1; p=reject; np=reject",
	"long.example":      "v=DMARC1; p=reject",
	"e.f.g.h.long8.com": "v=DMARC1; p=reject; psd=y",
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{ // where the record is, the requested policy and the one to apply
		"example.com":                  "example.com none none",
		"mail.example.com":             "mail.example.com reject reject",
		"exists.example.com":           "example.com quarantine quarantine",
		"missing.example.com":          "example.com reject reject",
		"a.mail.example.com":           "example.com reject reject", // that of the organization, not the nearest
		"giant.bank":                   "giant.bank reject reject",
		"news.giant.bank":              "giant.bank none none",
		"a.news.giant.bank":            "giant.bank none none",
		"tiny.bank":                    "bank quarantine quarantine",
		"a.tiny.bank":                  "bank quarantine quarantine",
		"bank":                         "bank reject reject",
		"a.us.bank":                    "us.bank none none",
		"a.branch.mega.bank":           "mega.bank none none",
		"branch.mega.bank":             "branch.mega.bank quarantine quarantine",
		"a.careful.quiet":              "careful.quiet reject reject",
		"a.sub.careful.quiet":          "careful.quiet reject reject",
		"a.quiet":                      "quiet none none",
		"a.above.twice":                "twice quarantine quarantine",
		"a.other.example":              "other.example reject reject",
		"a.none.example":               "  ",
		"example":                      "  ",
		"unknown.example":              "  ",
		"broken.example":               "broken.example  ",
		"a.broken.example":             "broken.example  ",
		"reports.example":              "reports.example none none",
		"a.reports.example":            "reports.example none none",
		"badsub.example":               "badsub.example  ",
		"test.example":                 "test.example reject quarantine",
		"a.np.example":                 "np.example reject reject",
		"a.same.example":               "same.example reject reject",
		"a.b.c.d.e.f.g.h.long.example": "long.example reject reject",
		"a.b.c.d.e.f.g.h.long8.com":    "e.f.g.h.long8.com reject reject",
		"x." + strings.Repeat("l.", 119) + "long.example": "long.example reject reject",
	} {
		walker, _ := forest.walker()
		d, err := walker.Discover(t.Context(), domain)
		if got := fmt.Sprintf("%s %s %s", d.At, d.Requested, d.Policy); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", domain, got, err, want)
		}
		if d.Text != forest[d.At] && !strings.Contains(forest[d.At], "|"+d.Text) {
			t.Errorf("%s: %q", domain, d.Text)
		}
	}
}

// The examples of RFC 9989 appendix B.4. Each has the author's domain, the domains that SPF and DKIM authenticated, and
// the queries that find out whether they are aligned.
func TestAppendixB(t *testing.T) {
	t.Parallel()
	organization := tree{"example.com": "v=DMARC1; p=none", "signing.example.com": "v=DMARC1; p=none"}
	suffix := tree{"bank.example": "v=DMARC1; p=none; psd=y", "giant.bank.example": "v=DMARC1; p=none",
		"mega.bank.example": "v=DMARC1; p=none"}
	for _, c := range []struct {
		name              string
		records           tree
		author, spf, dkim string
		at, org           string
		bySPF, byDKIM     bool
		queries           string
	}{
		{"simple", organization, "example.com", "example.com", "signing.example.com", "example.com", "example.com", true, true,
			"example.com com signing.example.com"},
		{"deep", organization, "a.b.c.d.e.f.g.h.i.j.mail.example.com", "example.com", "signing.example.com", "example.com",
			"example.com", true, true, "a.b.c.d.e.f.g.h.i.j.mail.example.com g.h.i.j.mail.example.com " +
				"h.i.j.mail.example.com i.j.mail.example.com j.mail.example.com mail.example.com example.com com " +
				"signing.example.com"},
		{"public suffix", suffix, "giant.bank.example", "mail.giant.bank.example", "mail.mega.bank.example",
			"giant.bank.example", "giant.bank.example", true, false,
			"giant.bank.example bank.example mail.giant.bank.example"},
	} {
		walker, queries := c.records.walker()
		d, err := walker.Discover(t.Context(), c.author)
		if err != nil || d.At != c.at {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
		if org, err := walker.Organizational(t.Context(), c.author); err != nil || org != c.org {
			t.Errorf("%s: %s, %v", c.name, org, err)
		}
		for domain, want := range map[string]bool{c.spf: c.bySPF, c.dkim: c.byDKIM} {
			if got, err := walker.Aligned(t.Context(), c.author, domain, false); err != nil || got != want {
				t.Errorf("%s, %s: %v, %v", c.name, domain, got, err)
			}
		}
		if got := strings.ReplaceAll(strings.Join(*queries, " "), "_dmarc.", ""); got != c.queries {
			t.Errorf("%s: queries %s", c.name, got)
		}
	}
}

func TestDiscardedRecords(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string][]dmarc.Discarded{
		"twice.example":   {{"twice.example", []string{"v=DMARC1; p=none", "v=DMARC1; p=reject"}}},
		"a.above.twice":   {{"above.twice", []string{"v=DMARC1; p=none", "v=DMARC1; p=reject"}}},
		"a.other.example": nil,
	} {
		walker, _ := forest.walker()
		d, err := walker.Discover(t.Context(), domain)
		if diff := cmp.Diff(want, d.Discarded); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", domain, err, diff)
		}
	}
}

// In test mode, each policy becomes one step milder, including those for domains below the record.
func TestTestMode(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		"p=reject; t=y":                  "reject quarantine",
		"p=quarantine; t=y":              "quarantine none",
		"p=none; t=y":                    "none none",
		"p=reject; sp=quarantine; t=y":   "quarantine none",
		"p=none; sp=none; np=reject;t=y": "reject quarantine",
		"p=reject; t=n":                  "reject reject",
		"p=block; t=y; rua=mailto:a@b.c": "none none",
	} {
		walker, _ := tree{"org.example": "v=DMARC1; " + record}.walker()
		d, err := walker.Discover(t.Context(), "a.org.example")
		if got := fmt.Sprintf("%s %s", d.Requested, d.Policy); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", record, got, err, want)
		}
	}
}

func TestOrganizational(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{
		"example.com":                  "example.com",
		"a.mail.example.com":           "example.com",
		"a.b.exists.example.com":       "example.com",
		"bank":                         "bank",
		"tiny.bank":                    "tiny.bank",
		"a.b.tiny.bank":                "tiny.bank",
		"giant.bank":                   "giant.bank",
		"a.giant.bank":                 "giant.bank",
		"a.us.bank":                    "us.bank",
		"a.branch.mega.bank":           "mega.bank",
		"a.sub.careful.quiet":          "careful.quiet",
		"a.open.quiet":                 "quiet",
		"a.unknown.example":            "a.unknown.example",
		"a.twice.example":              "a.twice.example",
		"a.b.c.d.e.f.g.h.long.example": "long.example",
		"a.b.c.d.e.f.g.h.long8.com":    "d.e.f.g.h.long8.com",
		"b.c.d.e.f.g.h.long8.com":      "d.e.f.g.h.long8.com",
		"com":                          "com",
	} {
		walker, _ := forest.walker()
		if got, err := walker.Organizational(t.Context(), domain); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", domain, got, err, want)
		}
	}
}

func TestAligned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		author, authenticated string
		strict, want          bool
	}{
		{"example.com", "example.com", true, true},
		{"example.com", "example.com", false, true},
		{"example.com", "mail.example.com", false, true},
		{"mail.example.com", "example.com", false, true},
		{"mail.example.com", "a.b.example.com", false, true},
		{"mail.example.com", "example.com", true, false},
		{"example.com", "", true, false},
		{"example.com", "", false, false},
		{"example.com", "notexample.com", false, false},
		{"example.com", "com", false, false},
		{"example.com", "other.example", false, false},
		{"tiny.bank", "small.bank", false, false},
		{"tiny.bank", "a.tiny.bank", false, true},
		{"tiny.bank", "bank", false, false},
		{"bank", "tiny.bank", false, false},
		{"a.us.bank", "b.us.bank", false, true},
		{"careful.quiet", "open.quiet", false, false},
		{"open.quiet", "careful.quiet", false, false},
		{"a.open.quiet", "b.shop.quiet", false, true}, // that is why public suffixes should publish psd=y
		{"a.unknown.example", "unknown.example", false, false},
	} {
		walker, _ := forest.walker()
		if got, err := walker.Aligned(t.Context(), c.author, c.authenticated, c.strict); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

// The walk of RFC 9989 section 4.10, in the order of its queries.
func TestQueries(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{
		"a.b.c.d.e.f.g.h.i.j.mail.example.com": "a.b.c.d.e.f.g.h.i.j.mail.example.com g.h.i.j.mail.example.com " +
			"h.i.j.mail.example.com i.j.mail.example.com j.mail.example.com mail.example.com example.com com",
		"b.c.d.e.f.mail.example.com": "b.c.d.e.f.mail.example.com c.d.e.f.mail.example.com d.e.f.mail.example.com " +
			"e.f.mail.example.com f.mail.example.com mail.example.com example.com com",
		"c.d.e.f.mail.example.com": "c.d.e.f.mail.example.com d.e.f.mail.example.com e.f.mail.example.com " +
			"f.mail.example.com mail.example.com example.com com",
		"example.com": "example.com com",
		"com":         "com",
		// A name that is too long for a record is not queried.
		strings.Repeat("l.", 122) + "mail.com": "l.l.l.l.l.mail.com l.l.l.l.mail.com l.l.l.mail.com l.l.mail.com " +
			"l.mail.com mail.com com",
	} {
		walker, queries := tree{}.walker()
		if _, err := walker.Discover(t.Context(), domain); err != nil {
			t.Error(err)
		}
		got := strings.ReplaceAll(strings.Join(*queries, " "), "_dmarc.", "")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", domain, diff)
		}
	}
	walker, queries := forest.walker()
	for range 2 {
		walker.Discover(t.Context(), "example.com")
		walker.Aligned(t.Context(), "example.com", "example.com", false)
		walker.Aligned(t.Context(), "example.com", "other.example", true)
	}
	if diff := cmp.Diff([]string{"_dmarc.example.com"}, *queries); diff != "" {
		t.Error("identical domains: " + diff)
	}
}

// Neither the existence of a name nor the records of another domain are looked up if they cannot change the result.
func TestNeedlessQueries(t *testing.T) {
	t.Parallel()
	walker, queries := forest.walker()
	d, err := walker.Discover(t.Context(), "a.same.example")
	if err != nil || d.Requested != dmarc.Reject {
		t.Errorf("%+v, %v", d, err)
	}
	for _, other := range []string{"b.other.example", "notsame.example"} {
		if ok, err := walker.Aligned(t.Context(), "a.same.example", other, false); ok || err != nil {
			t.Errorf("%s: %v, %v", other, ok, err)
		}
	}
	want := []string{"_dmarc.a.same.example", "_dmarc.same.example", "_dmarc.example"}
	if diff := cmp.Diff(want, *queries); diff != "" {
		t.Error(diff)
	}
}

// The number of queries for one message stays within the bound that the package comment gives.
func TestQueriesAreBounded(t *testing.T) {
	t.Parallel()
	walker, queries := tree{"com": "v=DMARC1; p=none; np=reject"}.walker()
	author := strings.Repeat("a.", 100) + "com"
	if _, err := walker.Discover(t.Context(), author); err != nil || len(*queries) != 9 {
		t.Errorf("%d queries, %v", len(*queries), err)
	}
	const n = 9
	for i := range n {
		domain := strings.Repeat(fmt.Sprintf("b%d.", i), 50) + "com"
		if ok, err := walker.Aligned(t.Context(), author, domain, false); !ok || err != nil {
			t.Errorf("%s: %v, %v", domain, ok, err)
		}
	}
	if got := len(*queries); got != 9+7*n {
		t.Errorf("%d queries", got)
	}
	slices.Sort(*queries)
	if got := len(slices.Compact(*queries)); got != 9+7*n {
		t.Errorf("%d different queries", got)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for domain, fail := range map[string]string{
		"example.com":         "_dmarc.example.com",
		"a.exists.quiet":      "_dmarc.exists.quiet",
		"missing.example.com": "missing.example.com", // whether the name exists
		"unknown.example":     "_dmarc.example",
	} {
		walker, _ := forest.walker(fail)
		d, err := walker.Discover(t.Context(), domain)
		if name := strings.TrimPrefix(fail, "_dmarc."); !errors.Is(err, resolve.ErrTemporary) ||
			!strings.Contains(err.Error(), " of "+name) && !strings.Contains(err.Error(), " whether "+name) {
			t.Errorf("%s: %v", domain, err)
		}
		if diff := cmp.Diff(dmarc.Discovery{}, d); diff != "" {
			t.Errorf("%s: %s", domain, diff)
		}
	}
	// A record of the domain's own needs no other answer.
	walker, _ := forest.walker("_dmarc.com", "mail.example.com")
	if d, err := walker.Discover(t.Context(), "mail.example.com"); err != nil || d.Policy != dmarc.Reject {
		t.Errorf("%+v, %v", d, err)
	}
	if ok, err := walker.Aligned(t.Context(), "mail.example.com", "mail.example.com", false); !ok || err != nil {
		t.Errorf("identical domains: %v, %v", ok, err)
	}
	if ok, err := walker.Aligned(t.Context(), "mail.example.com", "example.com", false); ok || err == nil {
		t.Errorf("without the end of the walk: %v, %v", ok, err)
	}
	walker, _ = forest.walker("_dmarc.b.example.com")
	if ok, err := walker.Aligned(t.Context(), "example.com", "b.example.com", false); ok || err == nil {
		t.Errorf("without the records of the other domain: %v, %v", ok, err)
	}
}
