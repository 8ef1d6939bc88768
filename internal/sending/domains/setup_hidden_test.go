package domains_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// zoneConfig is the configuration of newSetups, as a command has it.
var zoneConfig = domains.Config{DNSZone: "dns.mail.test", DNSNames: []string{"ns1.mail.test", "ns2.mail.test"},
	Default:  domains.Region{BounceHost: "b.test", InboundHost: "i.test", SPFInclude: "s.test"},
	Selector: "postrider", SelectorEd25519: "postrider-ed"}

// While a domain is still delegated, its records of another set-up are hidden. Neither the set-up nor a look-up of a
// command blames another team or silent name servers, also if our own servers have a record with the wanted value.
func TestHiddenRecords(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom, err := f.Create(t.Context(), team, domains.NewDomain{Name: "mail.acme.example",
			Capabilities: domains.Capabilities{Sending: new(true), Receiving: new(true)}})
		f.must(err)
		ns := f.choose(team, dom.ID, domains.SetupDelegation).Records
		f.install(ns, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
			t.Fatalf("delegated, it is %s", dom.Status)
		}
		wanted := f.choose(team, dom.ID, domains.SetupCNAME).Records
		f.install(wanted[len(wanted)-1:], true) // the MX record, which the zone has too
		dom = f.look(team, dom.ID)
		check := func(who string, all []domains.Record, hidden bool) {
			t.Helper()
			if len(all) != 4 || all[3].Key != "receiving" {
				t.Fatalf("%s: %+v", who, all)
			}
			for _, r := range all {
				if tells := strings.Contains(r.Advice(), "remove the NS records"); r.Hidden != hidden || tells != hidden ||
					hidden && (r.Found != "" || r.Unanswered) {
					t.Errorf("%s, hidden %v: %+v, advice %q", who, hidden, r, r.Advice())
				}
			}
		}
		check("the service", f.Records(&dom), true)
		check("a command", zoneConfig.LookUp(t.Context(), f.dns, &dom), true)
		f.parents.err = resolve.ErrTemporary // It is unknown whether the delegation has ended.
		dom = f.look(team, dom.ID)
		check("without an answer of the parent zone", f.Records(&dom), true)

		f.parents.err = nil
		f.install(ns, false)
		dom = f.look(team, dom.ID)
		check("after the delegation", f.Records(&dom), false)
		all := zoneConfig.LookUp(t.Context(), f.dns, &dom)
		check("a command, after the delegation", all, false)
		if all[3].Status != domains.Verified || all[0].Status != domains.Failed || all[0].Unanswered {
			t.Errorf("after the delegation: %+v", all)
		}
	})
}

// A domain with another domain of the team below it cannot be delegated, and the list of set-ups says so.
func TestDelegationAboveAnotherDomain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		apex, below := f.create(team, "acme.example"), f.create(team, "mail.acme.example")
		reason := func(domainID string) string {
			t.Helper()
			v, err := f.GetSetup(t.Context(), team, domainID)
			f.must(err)
			return v.Choices[2].Reason
		}
		said := reason(apex.ID)
		if !strings.Contains(said, "This team has the domain `mail.acme.example`") || reason(below.ID) != "" {
			t.Errorf("of %s: %q, of %s: %q", apex.Name, said, below.Name, reason(below.ID))
		}
		err := f.ChangeSetup(t.Context(), team, apex.ID, to(domains.SetupDelegation))
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Field != "setup" || !strings.HasSuffix(e.Message, said) {
			t.Errorf("it is refused with %v", err)
		}
		f.must(f.Delete(t.Context(), team, below.ID))
		if said := reason(apex.ID); said != "" {
			t.Errorf("without a domain below: %q", said)
		}
		f.choose(team, apex.ID, domains.SetupDelegation)
	})
}

// No team can add a name at or below the zone of this installation's name servers, nor claim one.
func TestNamesInTheOperatorsZone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		for _, name := range []string{"dns.mail.test", "ns1.dns.mail.test", "a.b.dns.mail.test", "DNS.mail.test"} {
			_, err := f.Create(t.Context(), team, domains.NewDomain{Name: name})
			_, _, claimed := f.Claim(t.Context(), team, domains.NewDomain{Name: name})
			for _, err := range []error{err, claimed} {
				if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind != fault.Invalid || e.Field != "name" ||
					!strings.Contains(e.Message, "belongs to this service") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		f.create(team, "mail.test")
		_, err := f.Create(t.Context(), team, domains.NewDomain{Name: "other.test", TrackingSubdomain: "links"})
		f.must(err)
	})
}

// The look-up that verifies a delegation is repeated until it finds the advised records too: resolvers may keep their
// absence from before. It is not repeated for ever.
func TestAdvisedRecordsAfterADelegation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		f.Advised = append(f.Advised, oneByOne(func(_ context.Context,
			d *domains.Domain) ([]domains.AdvisedRecord, error) {
			return []domains.AdvisedRecord{{Purpose: domains.PurposeDMARC, Name: "_dmarc." + d.Name, Type: "TXT",
				Value: "v=DMARC1; p=none"}}, nil
		}))
		dom := f.create(team, "mail.acme.example")
		f.install(f.choose(team, dom.ID, domains.SetupDelegation).Records, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
			t.Fatalf("it is %s", dom.Status)
		}
		again := func() {
			t.Helper()
			f.must(f.Kind().Handle(t.Context(), inHand(t, d, dom.ID)))
		}
		again() // It is due once more, although no record is pending.
		f.dns.set(func(z *resolve.Fake) { z.TXTRecords["_dmarc.mail.acme.example"] = []string{"v=DMARC1; p=none"} })
		again()
		v, err := f.GetSetup(t.Context(), team, dom.ID)
		f.must(err)
		if len(v.Advised) != 1 || v.Advised[0].State != domains.AdvisedFound {
			t.Errorf("%+v", v.Advised)
		}
		if n, _ := left(t, d, dom.ID); n != 0 {
			t.Errorf("%d look-ups are due after all records were found", n)
		}
		f.dns.set(func(z *resolve.Fake) { delete(z.TXTRecords, "_dmarc.mail.acme.example") })
		for hours, want := range map[time.Duration]int{0: 1, 2: 0} {
			changed := time.Now().Add(-hours * time.Hour).UnixMicro()
			exec(t, d, `UPDATE domains SET checks = $1`, `{"ns":{"status":"verified","changed":`+strconv.FormatInt(changed, 10)+
				`},"ns-seen":{"status":"verified"}}`)
			f.look(team, dom.ID)
			if n, _ := left(t, d, dom.ID); n != want {
				t.Errorf("%d look-ups after %d hours, want %d", n, hours, want)
			}
		}
	})
}
