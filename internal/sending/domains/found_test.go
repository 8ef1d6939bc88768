package domains_test

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A look-up stores what it found instead of a record, and the record says what to do. A correct record forgets it.
func TestFoundValues(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		zone, resolver := serve(t)
		n := testnode.Bare(t, d, testnode.Options{DNS: resolver})
		by, _ := n.Team("Acme")
		of := testnode.Must(n.Domains.Create(t.Context(), by.TeamID, domains.NewDomain{Name: "found.example"}))
		stop := n.Run(n.Domains.Kind())
		defer stop()
		set := func(lines ...string) {
			zone.mu.Lock()
			defer zone.mu.Unlock()
			zone.rrs = nil
			for _, line := range lines {
				zone.rrs = append(zone.rrs, testnode.Must(dns.NewRR(line)))
			}
		}
		read := func() map[string]domains.Record {
			of = testnode.Must(n.Domains.Get(t.Context(), by.TeamID, of.ID))
			all := map[string]domains.Record{}
			for _, r := range n.Domains.Records(&of) {
				all[r.Key] = r
			}
			return all
		}
		look := func(done func(map[string]domains.Record) bool) map[string]domains.Record {
			n.Must(n.Domains.Verify(t.Context(), by.TeamID, of.ID))
			testnode.Until(t, "the records were looked up", func() bool { return done(read()) })
			return read()
		}
		set(`send.found.example. 60 IN TXT "google-site-verification=x"`,
			`send.found.example. 60 IN TXT "v=spf1 include:old.example ~all"`,
			`send.found.example. 60 IN MX 5 mx.old.example.`,
			`postrider._domainkey.found.example. 60 IN TXT "p=temporary_failure \000\007\"x"`)
		all := look(func(r map[string]domains.Record) bool { return r["spf"].Found != "" })
		for key, want := range map[string]struct{ found, advice string }{
			"spf":          {"v=spf1 include:old.example ~all", "Add include:spf.postrider.test to the record"},
			"mx":           {"5 mx.old.example", "Add this MX record"},
			"dkim":         {"p=temporary_failure", "Replace the value"},
			"dkim-ed25519": {"", "whole name is postrider-ed25519._domainkey.found.example."},
		} {
			r := all[key]
			if !strings.HasPrefix(r.Found, want.found) || want.found == "" && r.Found != "" ||
				!strings.Contains(r.Advice(), want.advice) {
				t.Errorf("%s: found %q, advice %q", key, r.Found, r.Advice())
			}
			if r.Status != domains.Pending || r.ChangedAt.IsZero() || r.Until.Before(r.ChangedAt) {
				t.Errorf("%s: %+v", key, r)
			}
		}
		set(`send.found.example. 60 IN TXT "v=spf1 include:old.example include:spf.postrider.test ~all"`)
		all = look(func(r map[string]domains.Record) bool { return r["spf"].Status == domains.Verified })
		if r := all["spf"]; r.Found != "" || r.Advice() != "" || !r.Until.IsZero() {
			t.Errorf("a verified record: %+v", r)
		}
		if r := all["mx"]; r.Found != "" {
			t.Errorf("a record that is gone: %+v", r)
		}
	})
}

func TestFind(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		for _, name := range []string{"a-b.example", "axb.example", "a_b.sub.example"} {
			if _, err := n.Domains.Create(t.Context(), n.Acme.TeamID, domains.NewDomain{Name: name}); err != nil &&
				!strings.Contains(name, "_") {
				t.Fatal(err)
			}
		}
		n.Verified(n.Other.TeamID, domains.NewDomain{Name: "other.example"})
		for _, c := range []struct {
			f    domains.Filter
			want string
		}{
			{domains.Filter{}, "axb.example a-b.example acme.example"},
			{domains.Filter{Name: "A-B"}, "a-b.example"},
			{domains.Filter{Name: "a_b"}, ""},
			{domains.Filter{Name: "%"}, ""},
			{domains.Filter{Name: `\`}, ""},
			{domains.Filter{Statuses: []domains.Status{domains.Verified}}, "acme.example"},
			{domains.Filter{Statuses: []domains.Status{domains.Verified, domains.NotStarted}, Name: "xb"}, "axb.example"},
			{domains.Filter{Statuses: []domains.Status{"x' OR 1=1"}}, ""},
		} {
			all, _, err := n.Domains.Find(t.Context(), n.Acme.TeamID, c.f, page.Page{Limit: 10})
			n.Must(err)
			var names []string
			for _, d := range all {
				names = append(names, d.Name)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%+v: %s, want %s", c.f, got, c.want)
			}
		}
	})
}
