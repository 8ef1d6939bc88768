package domains_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A team gets no records that cannot work, such as `v=spf1 include:vm` from a machine called vm. The error names the
// setting.
func TestHostsThatNobodyCanLookUp(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		good := domains.Region{BounceHost: "mail.example.com", InboundHost: "mail.example.com",
			SPFInclude: "spf.example.com", TrackingHost: "links.example.com"}
		bad := func(change func(r *domains.Region)) domains.Config {
			r := good
			change(&r)
			return domains.Config{Default: r, CheckHosts: true}
		}
		sending, receiving := domains.Capabilities{}, domains.Capabilities{Receiving: new(true)}
		for name, c := range map[string]struct {
			config domains.Config
			domain domains.NewDomain
			says   string
		}{
			"good": {bad(func(*domains.Region) {}), domains.NewDomain{Capabilities: receiving, TrackingSubdomain: "l"}, ""},
			"spf": {bad(func(r *domains.Region) { r.SPFInclude = "vm" }), domains.NewDomain{Capabilities: sending},
				"\"vm\", which other servers cannot look up. Ask the operator to set `spf_include`, whose default"},
			"bounces": {bad(func(r *domains.Region) { r.BounceHost = "192.0.2.1" }), domains.NewDomain{}, "`bounce_host`"},
			"cloud": {bad(func(r *domains.Region) { r.BounceHost = "vm.c.project.internal" }), domains.NewDomain{},
				"`bounce_host`, whose default comes from `hostname`"},
			"receiving": {bad(func(r *domains.Region) { r.InboundHost = "vm.localdomain" }),
				domains.NewDomain{Capabilities: receiving}, "`inbound_host`"},
			"not receiving": {bad(func(r *domains.Region) { r.InboundHost = "vm" }), domains.NewDomain{}, ""},
			"links": {bad(func(r *domains.Region) { r.TrackingHost = "localhost" }),
				domains.NewDomain{TrackingSubdomain: "l"}, "set `tracking_host`, whose default comes from `public_url`"},
			"no links": {bad(func(r *domains.Region) { r.TrackingHost = "localhost" }), domains.NewDomain{}, ""},
		} {
			s, _, _ := build(t, d, newZone(), c.config)
			c.domain.Name = strings.ReplaceAll(name, " ", "-") + ".example"
			made, err := s.Create(t.Context(), dbtest.ID("acme"), c.domain)
			if (err == nil) != (c.says == "") || err != nil &&
				(fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "no links" {
				err := s.Update(t.Context(), dbtest.ID("acme"), made.ID, domains.Change{TrackingSubdomain: new("l")})
				if err == nil || !strings.Contains(err.Error(), "`tracking_host`") {
					t.Errorf("a tracking subdomain is added: %v", err)
				}
				err = s.Update(t.Context(), dbtest.ID("acme"), made.ID, domains.Change{TLS: new(domains.Enforced)})
				if err != nil {
					t.Errorf("another change: %v", err)
				}
			}
		}
	})
}
