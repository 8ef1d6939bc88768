package domains_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// upgrade runs the domain migrations again on rows from the previous release.
func upgrade(t *testing.T, d *db.DB, statements ...string) {
	t.Helper()
	for _, text := range append([]string{`DROP TABLE domain_names`, `DROP INDEX domains_unproved`,
		`DELETE FROM migrations WHERE name LIKE '%\_domain\_%' ESCAPE '\'`}, statements...) {
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), text)
			return err
		}); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if applied, err := d.Migrate(t.Context()); err != nil || len(applied) == 0 {
		t.Fatalf("applied %v, %v", applied, err)
	}
}

func asBefore(checks, name string) string {
	return `UPDATE domains SET status = 'verified', checks = '` + checks + `' WHERE name = '` + name + `'`
}

// If a domain received mail before the proof was required, it continues to receive mail during a grace period, and the
// missing record is shown. The domain's other capabilities stop immediately, because another team could misuse them.
func TestReceivingGoesOnForAWhileAfterTheUpgrade(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := &zone{Fake: resolve.Fake{MXRecords: map[string][]resolve.MX{}, TXTRecords: map[string][]string{}}}
		s, _ := newService(t, d, dns)
		on, off := true, false
		only := domains.Capabilities{Sending: &off, Receiving: &on}
		dom, err := s.Create(t.Context(), "team", domains.NewDomain{Name: "in.acme.example", Capabilities: only})
		if err != nil {
			t.Fatal(err)
		}
		for team, n := range map[string]domains.NewDomain{"victim": {Name: "victim.example"},
			"thief": {Name: "send.victim.example", Capabilities: only}, "new": {Name: "new.example", Capabilities: only}} {
			if _, err := s.Create(t.Context(), team, n); err != nil {
				t.Fatal(err)
			}
		}
		const received = `{"receiving":{"status":"verified","since":0}}`
		upgrade(t, d, asBefore(received, "in.acme.example"), asBefore(received, "send.victim.example"),
			asBefore(`{"mx":{"status":"verified","since":0},"spf":{"status":"verified","since":0},`+
				`"dkim":{"status":"verified","since":0}}`,
				"victim.example"),
			asBefore(`{"receiving":{"status":"pending","since":0}}`, "new.example"))

		dns.set(func(f *resolve.Fake) { f.MXRecords["in.acme.example"] = []resolve.MX{{Host: "i.test", Pref: 10}} })
		shown := func() string {
			got, err := s.Get(t.Context(), "team", dom.ID)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, r := range s.Records(&got) {
				all = append(all, r.Kind+" "+string(r.Status))
			}
			return string(got.Status) + ": " + strings.Join(all, ", ")
		}
		want := "verified: DKIM temporary_failure, Receiving verified"
		if got := shown(); got != want {
			t.Errorf("after the upgrade %s", got)
		}
		before, err := s.Get(t.Context(), "team", dom.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context(), "team", dom.ID); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "it was looked at", func() bool {
			got, err := s.Get(t.Context(), "team", dom.ID)
			return err == nil && got.CheckedAt.After(before.CheckedAt)
		})
		if got := shown(); got != want {
			t.Errorf("after the first look %s", got)
		}
		for host, want := range map[string]domains.Receiver{"new.example": {},
			"in.acme.example": {TeamID: "team", DomainID: dom.ID, CatchAll: true}} {
			if got, err := s.Receiver(t.Context(), host); err != nil || got != want {
				t.Errorf("mail for %s: %+v, %v", host, got, err)
			}
		}
		_, err = s.Create(t.Context(), "thief", domains.NewDomain{Name: "below.send.victim.example"})
		if fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a domain is added below a return path host: %v", err)
		}
		if got, err := s.Receiver(t.Context(), "send.victim.example"); err != nil || got.TeamID != "victim" ||
			!got.ReturnPath {
			t.Errorf("a return path host is %+v, %v", got, err)
		}
	})
}
