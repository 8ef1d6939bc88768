package domains_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/nameserver"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// lines returns the records of a zone, one per line, without the keys.
func lines(z nameserver.Zone, token string) string {
	var b strings.Builder
	for _, r := range z.Records {
		value := r.Value
		if before, _, ok := strings.Cut(value, "p="); ok && strings.HasPrefix(value, "v=DKIM1") {
			value = before + "KEY"
		}
		fmt.Fprintf(&b, "%s %s %s\n", r.Name, r.Type, value)
	}
	return strings.ReplaceAll(b.String(), token, "TOKEN")
}

// zonesIn returns the zones of a name server's content.
func zonesIn(c nameserver.Content, err error) ([]nameserver.Zone, error) { return c.Zones, err }

// oneByOne returns a source of advised records that asks f about each domain.
func oneByOne(f func(context.Context, *domains.Domain) ([]domains.AdvisedRecord, error)) domains.AdvisedSource {
	return func(ctx context.Context, of []*domains.Domain) (map[string][]domains.AdvisedRecord, error) {
		all := map[string][]domains.AdvisedRecord{}
		for _, d := range of {
			records, err := f(ctx, d)
			if err != nil {
				return nil, err
			}
			all[d.ID] = records
		}
		return all, nil
	}
}

// The number of statements for all zones does not depend on the number of domains.
func TestZonesReadInBulk(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newSetups(t, d)
		asked := 0
		f.Advised = append(f.Advised, func(context.Context,
			[]*domains.Domain) (map[string][]domains.AdvisedRecord, error) {
			asked++
			return nil, nil
		})
		count := func() int {
			t.Helper()
			_, err := f.Zones(t.Context()) // stores new serial numbers
			f.must(err)
			asked = 0
			trace.Take()
			_, err = f.Zones(t.Context())
			f.must(err)
			if asked != 1 {
				t.Errorf("the source was asked %d times", asked)
			}
			return len(trace.Take())
		}
		add := func(name string) {
			dom := f.create(team, name)
			f.install(f.choose(team, dom.ID, domains.SetupDelegation).Records, true)
			f.look(team, dom.ID)
		}
		add("mail.acme.example")
		one := count()
		for i := range 4 {
			add(fmt.Sprintf("mail%d.acme.example", i))
		}
		if five := count(); five != one || one == 0 {
			t.Errorf("%d statements for one domain, %d for five", one, five)
		}
	})
}

// The zone of a delegated domain has everything that mail needs; other domains have names in the operator's zone.
func TestZones(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		yes := true
		dmarc := domains.AdvisedRecord{Purpose: domains.PurposeDMARC, Name: "_dmarc.mail.acme.example", Type: "TXT",
			Value: "v=DMARC1; p=none", Why: "Receivers want it."}
		outside := domains.AdvisedRecord{Purpose: domains.PurposeDMARC, Name: "_dmarc.other.example", Type: "TXT",
			Value: "v=DMARC1; p=reject"}
		beside := domains.AdvisedRecord{Purpose: domains.PurposeBIMI, Name: "links.mail.acme.example", Type: "TXT",
			Value: "x"}
		f.Advised = append(f.Advised, oneByOne(func(_ context.Context,
			d *domains.Domain) ([]domains.AdvisedRecord, error) {
			if d.Name != "mail.acme.example" {
				return nil, nil
			}
			return []domains.AdvisedRecord{dmarc, outside, beside}, nil
		}))
		dom, err := f.Create(t.Context(), team, domains.NewDomain{Name: "mail.acme.example", TrackingSubdomain: "links",
			Capabilities: domains.Capabilities{Receiving: &yes}})
		f.must(err)
		alias := f.create(otherTeam, "other.example")
		aliasToken, _, _ := strings.Cut(f.choose(otherTeam, alias.ID, domains.SetupCNAME).Records[0].Value, ".")
		v := f.choose(team, dom.ID, domains.SetupDelegation)
		if zones, err := zonesIn(f.Zones(t.Context())); err != nil || len(zones) != 1 {
			t.Errorf("before the delegation was seen: %v, %v", zones, err)
		}
		f.install(v.Records, true)
		f.look(team, dom.ID)
		token, _, _ := strings.Cut(v.Records[0].Value, ".")
		zones, err := zonesIn(f.Zones(t.Context()))
		f.must(err)
		if len(zones) != 2 {
			t.Fatalf("%d zones", len(zones))
		}
		if got, want := lines(zones[0], token), `_dmarc.mail.acme.example TXT v=DMARC1; p=none
links.mail.acme.example CNAME t.test
mail.acme.example CAA 0 issue "ca.test"
mail.acme.example MX 10 i.test
mail.acme.example TXT v=spf1 -all
postrider-ed._domainkey.mail.acme.example TXT v=DKIM1; k=ed25519; s=email:tlsrpt; t=s; KEY
postrider._domainkey.mail.acme.example TXT v=DKIM1; k=rsa; s=email:tlsrpt; t=s; KEY
send.mail.acme.example MX 10 b.test
send.mail.acme.example TXT v=spf1 include:s.test ~all
`; got != want {
			t.Errorf("the zone of %s has\n%s", zones[0].Name, got)
		}
		if ns := strings.ReplaceAll(strings.Join(zones[0].NS, " "), token, "TOKEN"); zones[0].Name != dom.Name ||
			ns != "TOKEN.ns1.dns.mail.test TOKEN.ns2.dns.mail.test" {
			t.Errorf("%s has the servers %s", zones[0].Name, ns)
		}
		if got, want := lines(zones[1], aliasToken), `TOKEN.rp.dns.mail.test MX 10 b.test
TOKEN.rp.dns.mail.test TXT v=spf1 include:s.test ~all
TOKEN.s1.dns.mail.test TXT v=DKIM1; k=rsa; KEY
`; got != want || zones[1].Name != "dns.mail.test" {
			t.Errorf("the zone %s has\n%s", zones[1].Name, got)
		}

		again, err := zonesIn(f.Zones(t.Context()))
		f.must(err)
		if again[0].Serial != zones[0].Serial || again[1].Serial != zones[1].Serial || zones[0].Serial == 0 {
			t.Errorf("without a change the serials are %d, %d and %d, %d", zones[0].Serial, again[0].Serial, zones[1].Serial,
				again[1].Serial)
		}
		dmarc.Value = "v=DMARC1; p=reject"
		f.must(f.Delete(t.Context(), otherTeam, alias.ID))
		changed, err := zonesIn(f.Zones(t.Context()))
		f.must(err)
		if changed[0].Serial <= zones[0].Serial || changed[1].Serial <= zones[1].Serial || len(changed[1].Records) != 0 {
			t.Errorf("after changes the serials are %d, %d and %d, %d", zones[0].Serial, changed[0].Serial, zones[1].Serial,
				changed[1].Serial)
		}
		f.Advised = append(f.Advised, oneByOne(func(context.Context, *domains.Domain) ([]domains.AdvisedRecord, error) {
			return nil, errors.New("a source is away")
		}))
		failed, err := zonesIn(f.Zones(t.Context()))
		f.must(err)
		if lines(failed[0], token) != lines(changed[0], token) || failed[0].Serial != changed[0].Serial {
			t.Errorf("after a source failed the zone has\n%s", lines(failed[0], token))
		}
	})
}

// Mail that was signed with the set-up cname can still be verified after the domain was delegated.
func TestZoneAfterCNAME(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		f.install(f.choose(team, dom.ID, domains.SetupCNAME).Records, true)
		f.look(team, dom.ID)
		f.signs(dom.ID, "s1")
		f.install(f.choose(team, dom.ID, domains.SetupDelegation).Records, true)
		f.look(team, dom.ID)
		zones, err := zonesIn(f.Zones(t.Context()))
		if err != nil || len(zones) != 2 {
			t.Fatalf("%d zones: %v", len(zones), err)
		}
		keys := map[string]string{}
		for _, r := range zones[0].Records {
			keys[r.Name] = r.Value
		}
		if k := keys["s1._domainkey.mail.acme.example"]; k == "" || k != keys["postrider._domainkey.mail.acme.example"] {
			t.Errorf("s1 has the key %q; all: %v", k, keys)
		}
	})
}

// A source of advised records that fails for one domain does not end the zones of the others, and the domain keeps the
// records of the last look-up.
func TestZonesWithoutASource(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		fails := false
		f.Advised = append(f.Advised, oneByOne(func(_ context.Context,
			d *domains.Domain) ([]domains.AdvisedRecord, error) {
			if fails && d.Name == "mail.acme.example" {
				return nil, errors.New("it is away")
			}
			return []domains.AdvisedRecord{{Purpose: domains.PurposeDMARC, Name: "_dmarc." + d.Name, Type: "TXT",
				Value: "v=DMARC1; p=reject"}}, nil
		}))
		for name, of := range map[string]string{"mail.acme.example": team, "mail.other.example": otherTeam} {
			dom := f.create(of, name)
			f.install(f.choose(of, dom.ID, domains.SetupDelegation).Records, true)
			f.look(of, dom.ID)
		}
		fails = true
		zones, err := zonesIn(f.Zones(t.Context()))
		if err != nil || len(zones) != 3 {
			t.Fatalf("%d zones: %v", len(zones), err)
		}
		for _, z := range zones[:2] {
			if text := lines(z, "-"); !strings.Contains(text, "_dmarc."+z.Name+" TXT v=DMARC1; p=reject") {
				t.Errorf("the zone of %s has\n%s", z.Name, text)
			}
		}
	})
}

// Advised records have states of their own, which do not count in the status of the domain.
func TestAdvisedRecords(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "acme.example")
		f.install(f.Records(&dom), true)
		txt := func(name, value string) domains.AdvisedRecord {
			return domains.AdvisedRecord{Purpose: domains.PurposeDMARC, Name: name, Type: "TXT", Value: value}
		}
		f.Advised = append(f.Advised, oneByOne(func(context.Context, *domains.Domain) ([]domains.AdvisedRecord, error) {
			return []domains.AdvisedRecord{txt("_dmarc.acme.example", "v=DMARC1; p=none"),
				txt("_smtp._tls.acme.example", "v=TLSRPTv1; rua=mailto:a@b.test"), txt("default._bimi.acme.example", "v=BIMI1; l="),
				{Purpose: domains.PurposeMTASTS, Name: "mta-sts.acme.example", Type: "CNAME", Value: "sts.test"}}, nil
		}))
		f.dns.TXTRecords["_dmarc.acme.example"] = []string{"unrelated", `"v=DMARC1;p=none;"`}
		f.dns.TXTRecords["_smtp._tls.acme.example"] = []string{"v=TLSRPTv1; rua=mailto:old@b.test"}
		f.dns.CNAMERecords["mta-sts.acme.example"] = "sts.test"
		states := func() string {
			t.Helper()
			v, err := f.GetSetup(t.Context(), team, dom.ID)
			f.must(err)
			var all []string
			for _, a := range v.Advised {
				all = append(all, string(a.State)+" "+a.Found)
			}
			return strings.Join(all, ", ")
		}
		if got := states(); got != "not_started , not_started , not_started , not_started " {
			t.Errorf("before a look-up: %s", got)
		}
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
			t.Errorf("the domain is %s", dom.Status)
		}
		if got := states(); got != "verified , different v=TLSRPTv1; rua=mailto:old@b.test, missing , verified " {
			t.Errorf("after a look-up: %s", got)
		}
	})
}

// The serial number of the operator's zone grows when the addresses of the name servers or the contact change, so that
// nodes with different settings are noticed.
func TestSerialCoversAddressesAndContact(t *testing.T) {
	d := dbtest.SQLite(t)
	serial := func(address, contact, mailbox string) uint32 {
		t.Helper()
		s, _, _ := build(t, d, newZone(), domains.Config{DNSZone: "dns.mail.test", DNSNames: []string{"ns1.mail.test"},
			DNSAddresses: []string{"ns1.mail.test=" + address}, DNSContact: contact})
		zones, err := zonesIn(s.Zones(t.Context()))
		if err != nil || len(zones) != 1 || zones[0].Mailbox != mailbox {
			t.Fatalf("%v, %v", zones, err)
		}
		return zones[0].Serial
	}
	first := serial("192.0.2.1", "", "hostmaster.dns.mail.test")
	if again := serial("192.0.2.1", "", "hostmaster.dns.mail.test"); again != first {
		t.Errorf("without a change the serial number is %d, then %d", first, again)
	}
	second := serial("192.0.2.2", "", "hostmaster.dns.mail.test")
	if second <= first {
		t.Errorf("after a change the serial number is %d, before %d", second, first)
	}
	if third := serial("192.0.2.2", "a.b@host.test", `a\.b.host.test`); third <= second {
		t.Errorf("with another contact the serial number is %d, before %d", third, second)
	}
}

// A domain with an invalid record shows it as a problem, whatever set-up leads to it. Other domains have no problem.
func TestRecordsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		delegate := func(teamID, name string) domains.Domain {
			dom := f.create(teamID, name)
			f.install(f.choose(teamID, dom.ID, domains.SetupDelegation).Records, true)
			return f.look(teamID, dom.ID)
		}
		dom, other := delegate(team, "mail.acme.example"), delegate(otherTeam, "mail.other.example")
		problems := func(teamID, domainID string) (all []string) {
			t.Helper()
			v, err := f.GetSetup(t.Context(), teamID, domainID)
			f.must(err)
			for _, p := range v.Problems {
				all = append(all, p.Code+" "+p.Type+" "+p.Name)
			}
			return all
		}
		if all := append(problems(team, dom.ID), problems(otherTeam, other.ID)...); len(all) != 0 {
			t.Errorf("valid records have the problems %s", all)
		}
		f.Advised = append(f.Advised, oneByOne(func(_ context.Context,
			d *domains.Domain) ([]domains.AdvisedRecord, error) {
			if d.Name != "mail.acme.example" {
				return nil, nil
			}
			return []domains.AdvisedRecord{{Purpose: domains.PurposeDMARC, Name: "_dmarc." + d.Name, Type: "TXT",
				Value: "v=DMARC1; p=none;\trua=x"}}, nil
		}))
		if all := problems(team, dom.ID); !slices.Equal(all, []string{"record_left_out TXT _dmarc.mail.acme.example"}) {
			t.Errorf("an invalid record has the problems %s", all)
		}
		if all := problems(otherTeam, other.ID); len(all) != 0 {
			t.Errorf("another team's domain has the problems %s", all)
		}
		c, err := f.Zones(t.Context())
		f.must(err)
		for i := range c.Zones[:2] {
			_, dropped, err := nameserver.CompileShared(c.Zones[i])
			if want := c.Zones[i].Name == dom.Name; err != nil || (len(dropped) == 1) != want {
				t.Errorf("%s: %d records are left out, %v", c.Zones[i].Name, len(dropped), err)
			}
		}
	})
}

// The name servers answer for as many domains as they can, and the content says whether there are more.
func TestTooManyZones(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		for i := range 3 {
			dom := f.create(team, fmt.Sprintf("mail%d.acme.example", i))
			f.install(f.choose(team, dom.ID, domains.SetupDelegation).Records, true)
			f.look(team, dom.ID)
		}
		for most := 1; most <= 4; most++ {
			f.SetZonesMax(most)
			c, err := f.Zones(t.Context())
			f.must(err)
			if len(c.Zones) != min(most, 3)+1 || c.Partial != (most < 3) { // also the operator's zone
				t.Errorf("with at most %d: %d zones, partial %v", most, len(c.Zones), c.Partial)
			}
		}
	})
}
