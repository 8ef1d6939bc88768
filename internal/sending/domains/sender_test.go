package domains_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A sandbox domain is created when a team first sends from it, and its keys sign emails.
func TestSandbox(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, anyone := range []bool{false, true} {
			s, _, _ := build(t, d, resolve.Fake{}, domains.Config{SandboxDomains: []string{"sandbox.example"},
				SandboxSend: anyone})
			key := s.GenerateRSA
			if s.GenerateRSA = func() (*dkim.Key, error) { return nil, errors.New("no entropy") }; !anyone {
				if _, err := s.Sender(t.Context(), dbtest.ID("team"), "sandbox.example"); !fault.Ours(err) {
					t.Errorf("without a key: %v", err)
				}
				s.GenerateRSA = key
			}
			var first, second domains.Sender
			var err1, err2 error
			together(func() { first, err1 = s.Sender(t.Context(), dbtest.ID("one"), "sandbox.example") },
				func() { second, err2 = s.Sender(t.Context(), dbtest.ID("two"), "sandbox.example") })
			if err1 != nil || err2 != nil || first.DomainID == "" || first != second {
				t.Fatalf("%+v, %v and %+v, %v", first, err1, second, err2)
			}
			if !first.Sandbox || first.OwnerOnly == anyone || first.TLS != domains.Opportunistic {
				t.Errorf("%+v", first)
			}
			g, err := s.Signing(t.Context(), first.DomainID)
			if err != nil || len(g.Signers) != 2 || g.ReturnPathHost != "send.sandbox.example" {
				t.Errorf("it signs with %+v, %v", g, err)
			}
		}
	})
}

// Emails are signed with those of the domain's keys that are published in DNS. If a key cannot be read, Signing returns
// an error.
func TestSigning(t *testing.T) {
	ctx, dns, d := t.Context(), newZone(), dbtest.SQLite(t)
	s, _, _ := build(t, d, dns, domains.Config{})
	oneKey(t, s)
	dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
	dns.install(s.Records(&dom))
	dns.set(func(f *resolve.Fake) { delete(f.TXTRecords, "postrider-ed._domainkey.acme.example") })
	verify(t, s, dbtest.ID("team"), dom.ID)
	if err := s.Kind().Handle(ctx, inHand(t, d, dom.ID)); err != nil {
		t.Fatal(err)
	}
	g, err := s.Signing(ctx, dom.ID)
	if err != nil || len(g.Signers) != 1 || g.Signers[0].Selector != "postrider" || g.Signers[0].Domain != "acme.example" {
		t.Errorf("without the record of Ed25519: %+v, %v", g, err)
	}
	keys, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	junk, err := keys.Seal("dkim", []byte("no key"), []byte(dom.ID))
	if err != nil {
		t.Fatal(err)
	}
	for said, sealed := range map[string][]byte{"open the DKIM key of acme.example": []byte("of another master key"),
		"read the DKIM key of acme.example": junk} {
		exec(t, d, `UPDATE domains SET rsa_key = $2 WHERE id = $1`, db.ID(dom.ID), sealed)
		d.Hint("domains", dom.ID)
		if _, err := s.Signing(ctx, dom.ID); !fault.Ours(err) || !strings.Contains(err.Error(), said) {
			t.Errorf("want %s: %v", said, err)
		}
	}
}

func exec(t *testing.T, d *db.DB, text string, args ...any) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), text, args...); return err })
	if err != nil {
		t.Fatal(err)
	}
}

// A row that cannot be read causes an internal error, whereas a missing row does not.
func TestRowsThatCannotBeRead(t *testing.T) {
	ctx, d := t.Context(), dbtest.SQLite(t)
	s, _, _ := build(t, d, resolve.Fake{}, domains.Config{TrustDomains: true})
	oneKey(t, s)
	off, on := false, true
	dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example",
		Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
	if got, err := s.Get(ctx, dbtest.ID("team"), dom.ID); err != nil || got.Tracked != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Sender(ctx, dbtest.ID("team"), "acme.example"); fault.KindOf(err) != fault.Forbidden ||
		!strings.Contains(err.Error(), "not enabled for sending") {
		t.Errorf("it only receives: %v", err)
	}
	for _, id := range []string{dbtest.ID("none"), dom.ID} {
		if there, err := s.Exists(ctx, dbtest.ID("other"), id); err != nil || there {
			t.Errorf("%s is there for another team: %v, %v", id, there, err)
		}
	}
	if _, err := s.GetClaim(ctx, dbtest.ID("team"), dom.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a claim that there is not: %v", err)
	}
	c, _, err := s.Claim(ctx, dbtest.ID("other"), domains.NewDomain{Name: "acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, d, `UPDATE domains SET checks = 'x'`)
	exec(t, d, `UPDATE domain_claims SET request = 'x'`)
	if _, err := s.Get(ctx, dbtest.ID("team"), dom.ID); !fault.Ours(err) {
		t.Errorf("a domain: %v", err)
	}
	if there, err := s.Exists(ctx, dbtest.ID("team"), dom.ID); !fault.Ours(err) || there {
		t.Errorf("whether a domain is there: %v, %v", there, err)
	}
	if _, err := s.GetClaim(ctx, dbtest.ID("other"), c.DomainID); !fault.Ours(err) {
		t.Errorf("a claim: %v", err)
	}
}
