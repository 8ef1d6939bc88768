package domains_test

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Select returns domains that were verified once, of all teams or of one, up to a limit.
func TestSelect(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := testnode.New(t, d, testnode.Options{})
		n.TeamOf("second.example")
		testnode.Must(n.Domains.Create(t.Context(), n.Acme.TeamID, domains.NewDomain{Name: "fresh.example"}))
		for _, c := range []struct {
			of   domains.Selection
			want string
			more bool
		}{
			{domains.Selection{Limit: 10}, "acme.example second.example", false},
			{domains.Selection{Limit: 2}, "acme.example second.example", false},
			{domains.Selection{Limit: 1}, "", true},
			{domains.Selection{TeamID: n.Acme.TeamID, Limit: 10}, "acme.example", false},
			{domains.Selection{TeamID: n.Other.TeamID, Limit: 10}, "", false},
			{domains.Selection{Name: "fresh.example", Limit: 10}, "fresh.example", false},
			{domains.Selection{Name: "unknown.example", Limit: 10}, "", false},
		} {
			all, more, err := domains.Select(t.Context(), d.Reader, c.of)
			if err != nil || more != c.more {
				t.Errorf("%+v: more %v, %v", c.of, more, err)
			}
			var names []string
			for _, x := range all {
				names = append(names, x.Name)
			}
			if got := strings.Join(names, " "); got != c.want && c.want != "" || len(names) > c.of.Limit {
				t.Errorf("%+v: %q, want %q", c.of, got, c.want)
			}
		}
	})
}

// LookUp says which records are in the DNS now, whatever the stored states are, and stores nothing.
func TestLookUpNow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		zone, resolver := serve(t)
		n := testnode.Bare(t, d, testnode.Options{DNS: resolver})
		by, _ := n.Team("Acme")
		of := testnode.Must(n.Domains.Create(t.Context(), by.TeamID, domains.NewDomain{Name: "found.example"}))
		zone.mu.Lock()
		zone.rrs = []dns.RR{testnode.Must(dns.NewRR(`send.found.example. 60 IN TXT "v=spf1 include:old.example ~all"`)),
			testnode.Must(dns.NewRR(`send.found.example. 60 IN MX 10 bounces.postrider.test.`))}
		zone.mu.Unlock()
		c := domains.Config{Default: domains.Region{BounceHost: "bounces.postrider.test", SPFInclude: "spf.postrider.test"},
			Selector: "postrider", SelectorEd25519: "postrider-ed25519"}
		all := map[string]domains.Record{}
		for _, r := range c.LookUp(t.Context(), resolver, &of) {
			all[r.Key] = r
		}
		for key, want := range map[string]struct {
			status        domains.Status
			found, advice string
		}{
			"mx":   {domains.Verified, "", ""},
			"spf":  {domains.Failed, "v=spf1 include:old.example ~all", "Add include:spf.postrider.test to the record"},
			"dkim": {domains.Failed, "", "whole name is postrider._domainkey.found.example."},
		} {
			r := all[key]
			if r.Status != want.status || r.Found != want.found || !strings.Contains(r.Advice(), want.advice) || r.Unanswered {
				t.Errorf("%s: %+v, advice %q", key, r, r.Advice())
			}
		}
		again := testnode.Must(n.Domains.Get(t.Context(), by.TeamID, of.ID))
		for _, r := range n.Domains.Records(&again) {
			if r.Status != domains.NotStarted {
				t.Errorf("the look-up stored the state %s of %s", r.Status, r.Key)
			}
		}
	})
}
