package resolve_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// NS returns the records of the apex alone: those of an alias's target belong to another zone.
func TestNameServers(t *testing.T) {
	t.Parallel()
	n := serve(t, zone(`acme.com. 60 IN NS B.ns.test.`, `acme.com. 60 IN NS a.ns.test.`, `www.acme.com. 60 IN A 192.0.2.1`,
		`alias.acme.com. 60 IN CNAME other.test.`, `other.test. 60 IN NS c.ns.test.`))
	d, err := resolve.NewDNS([]string{n.addr})
	if err != nil {
		t.Fatal(err)
	}
	servers, err := d.NS(t.Context(), "ACME.com.")
	slices.Sort(servers)
	if err != nil || !slices.Equal(servers, []string{"a.ns.test", "b.ns.test"}) {
		t.Errorf("%v, %v", servers, err)
	}
	for _, name := range []string{"www.acme.com", "alias.acme.com", "missing.acme.com"} {
		if servers, err := d.NS(t.Context(), name); !errors.Is(err, resolve.ErrNotFound) {
			t.Errorf("%s: %v, %v", name, servers, err)
		}
	}
}
