package domains_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// The owner chooses the DMARC and BIMI records of a delegated domain, and takes them back.
func TestChosenRecords(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		f.Advised = append(f.Advised, oneByOne(func(_ context.Context,
			d *domains.Domain) ([]domains.AdvisedRecord, error) {
			value := d.DMARCRecord
			if value == "" {
				value = "v=DMARC1; p=none"
			}
			return []domains.AdvisedRecord{{Purpose: domains.PurposeDMARC, Name: "_dmarc." + d.Name, Type: "TXT",
				Value: value}}, nil
		}))
		dom := f.create(team, "mail.acme.example")
		if v := f.choose(team, dom.ID, domains.SetupDelegation); len(v.Advised) != 0 {
			t.Errorf("before the delegation is found: %+v", v.Advised)
		}
		view, err := f.GetSetup(t.Context(), team, dom.ID)
		f.must(err)
		f.install(view.Records, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
			t.Fatalf("it is %s", dom.Status)
		}
		check := func(when string, want ...string) {
			t.Helper()
			zones, err := zonesIn(f.Zones(t.Context()))
			f.must(err)
			var got []string
			for line := range strings.Lines(lines(zones[0], "-")) {
				if strings.HasPrefix(line, "_dmarc.") || strings.Contains(line, "._bimi.") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		change := func(dmarc, bimi *string) error {
			return f.ChangeSetup(t.Context(), team, dom.ID, domains.SetupChange{DMARC: dmarc, BIMI: bimi})
		}
		const byDefault = "_dmarc.mail.acme.example TXT v=DMARC1; p=none"
		const strict, logo = "v=DMARC1; p=reject; sp=reject", "v=BIMI1; l=https://acme.example/l.svg; a="
		check("at first", byDefault)

		f.must(change(new(" "+strict), new(logo)))
		chosen := []string{"_dmarc.mail.acme.example TXT " + strict, "default._bimi.mail.acme.example TXT " + logo}
		check("after the choice", chosen...)
		f.must(change(new(strict), nil))
		check("after the same choice", chosen...)

		for _, x := range []struct {
			field string
			c     domains.SetupChange
		}{
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=rejekt"), BIMI: new("")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; sp=none"), BIMI: new("")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; p=reject")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; P=reject")}},
			{"dmarc", domains.SetupChange{DMARC: new(`v=DMARC1; p=none; rua=mailto:"a"@b.example`)}},
			{"bimi", domains.SetupChange{BIMI: new(`v=BIMI1; l=https://acme.example/"; "/logo.svg`)}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; reject")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; adkim=strict")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; aspf=x")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=reject; t=yes")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; psd=x")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; rua=a@acme.example")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; n=\n")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; n=é")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=spf1 -all")}},
			{"dmarc", domains.SetupChange{DMARC: new("v=DMARC1; p=none; n=" + strings.Repeat("n", 450))}},
			{"bimi", domains.SetupChange{DMARC: new(""), BIMI: new("v=BIMI1; l=http://acme.example/l.svg")}},
			{"bimi", domains.SetupChange{DMARC: new(""), BIMI: new("v=BIMI1; a=")}},
			{"bimi", domains.SetupChange{BIMI: new("https://acme.example/l.svg")}},
			{"setup", domains.SetupChange{DMARC: new(""), BIMI: new(""), Setup: new("mx")}},
			{"setup", domains.SetupChange{}},
		} {
			err := f.ChangeSetup(t.Context(), team, dom.ID, x.c)
			if e, ok := errors.AsType[*fault.Error](err); !ok || e.Field != x.field {
				t.Errorf("%+v: %v", x.c, err)
			}
		}
		err = f.ChangeSetup(t.Context(), otherTeam, dom.ID, domains.SetupChange{DMARC: new("")})
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind != fault.NotFound {
			t.Errorf("another team: %v", err)
		}
		check("after refused changes", chosen...)

		f.must(change(new(""), new("")))
		check("by default again", byDefault)
	})
}

// A chosen BIMI record is among the advised records of a domain whose owner installs each record.
func TestChosenRecordToInstall(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "acme.example")
		const logo = "v=BIMI1; l=https://acme.example/l.svg"
		f.must(f.ChangeSetup(t.Context(), team, dom.ID, domains.SetupChange{BIMI: new(logo)}))
		for _, state := range []domains.AdvisedState{domains.AdvisedMissing, domains.AdvisedFound} {
			f.look(team, dom.ID)
			v, err := f.GetSetup(t.Context(), team, dom.ID)
			f.must(err)
			if len(v.Advised) != 1 || v.Advised[0].State != state || v.Advised[0].Value != logo {
				t.Errorf("%+v, want %s", v.Advised, state)
			}
			f.dns.TXTRecords["default._bimi.acme.example"] = []string{logo}
		}
	})
}
