package domainreports_test

import (
	"testing"

	"github.com/postrider/postrider/internal/sending/domainreports"
)

// Forwarded mail is recognized by signatures of rotated keys, which have selectors of their own, but not by a selector
// that never signed.
func TestRotatedSelectors(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		f.Exec(`UPDATE domains SET rsa_selector = 'current'`)
		for _, state := range []string{"retired", "next"} {
			f.Exec(`INSERT INTO domain_keys (id, domain_id, team_id, selector, algorithm, state, private_key, record,
				emergency, reused, created_at, state_at, seen_at, stepped_at, waited, ttl) SELECT ` +
				map[string]string{"retired": "id", "next": "team_id"}[state] + `, id, team_id, '` + state + `', 'rsa-sha256', '` +
				state + `', rsa_key, 'v=DKIM1; p=', placeholder, placeholder, 0, 0, 0, 0, 0, 0 FROM domains`)
		}
		found, err := f.Domains.Get(t.Context(), d.TeamID, d.ID)
		f.Must(err)
		c := dial(t, f.listen(t))
		want := map[string]domainreports.Class{"192.0.2.1": domainreports.Forwarded, "192.0.2.2": domainreports.Forwarded,
			"192.0.2.3": domainreports.Forwarded, "192.0.2.4": domainreports.Unlisted}
		f.send(c, to, "mail.example", f.day(d.Name, "one", 1, row(d.Name, "192.0.2.1", 5, "current", true, false),
			row(d.Name, "192.0.2.2", 5, "retired", true, false), row(d.Name, "192.0.2.3", 5, "postrider", true, false),
			row(d.Name, "192.0.2.4", 5, "next", true, false)))
		v := f.dmarc(&found, 20)
		for _, x := range v.Sources {
			if x.Class != want[x.Name] {
				t.Errorf("%s is %s, not %s", x.Name, x.Class, want[x.Name])
			}
			delete(want, x.Name)
		}
		if len(want) > 0 {
			t.Errorf("missing: %v", want)
		}
	})
}
