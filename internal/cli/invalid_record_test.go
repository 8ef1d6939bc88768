package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/domains"
)

// An invalid record of one team's domain is left out. The domain shows it, a metric counts it, and neither the node nor
// the zone of another team is affected.
func TestInvalidRecordOfOneTeam(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		for name, value := range map[string]string{"DNS_ZONE": "dns.host.example", "DNS_LISTEN": "127.0.0.1:0",
			"DNS_NAMES":     "ns1.dns.host.example,ns2.dns.host.example",
			"DNS_ADDRESSES": "ns1.dns.host.example=203.0.113.1,ns2.dns.host.example=203.0.113.2",
			"ROLES":         "api,delivery,jobs,dns", "METRICS_LISTEN": "127.0.0.1:0"} {
			p.vars["POSTRIDER_"+name] = value
		}
		names := map[string]string{"Acme": "mail.acme.example", "Other": "mail.other.example"}
		keys, ids := map[string]string{}, map[string]string{}
		for team := range names {
			keys[team] = p.key(team)
		}
		first := p.start()
		for team, name := range names {
			id := p.teamOf(team)[0]
			d, err := first.Domains.AddVerified(t.Context(), id, domains.NewDomain{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			change := domains.SetupChange{Setup: new(domains.SetupDelegation), BIMI: new("v=BIMI1; l=https://a.example/a.svg")}
			if err := first.Domains.ChangeSetup(t.Context(), id, d.ID, change); err != nil {
				t.Fatal(err)
			}
			ids[team] = d.ID
			eventually(t, "the domain is verified", func() bool {
				got, err := first.Domains.Get(t.Context(), id, d.ID)
				return err == nil && got.Status == domains.Verified
			})
		}
		first.end()
		// The zones are read only after the check has failed, so that its next success is one with the invalid record.
		read := make(chan struct{})
		p.options.Trace = func(st db.Statement) {
			if strings.Contains(st.SQL, "setup_token > $1") {
				<-read
			}
		}
		n := p.start(func(n *node.Node) {
			if err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE domains SET bimi_record = $2 WHERE id = $1`, db.ID(ids["Acme"]),
					"v=BIMI1;\tl=https://a.example/a.svg")
				return err
			}); err != nil {
				t.Fatal(err)
			}
		})
		check := func(status string) {
			t.Helper()
			eventually(t, "the check dns_zones is "+status, func() bool {
				return slices.ContainsFunc(n.Ready(t.Context()).Checks, func(c telemetry.Result) bool {
					return c.Name == "dns_zones" && c.Status == status
				})
			})
		}
		resume := sync.OnceFunc(func() { close(read) })
		t.Cleanup(resume)
		check(telemetry.StatusDegraded)
		resume()
		check(telemetry.StatusOK)
		eventually(t, "the node serves metrics", func() bool { return n.MetricsAddr() != "" })
		_, text := n.scrape()
		for _, want := range []string{`postrider_dns_zones 3`, `postrider_dns_invalid{kind="record"} 1`,
			`postrider_dns_invalid{kind="zone"} 0`} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("the scrape lacks %s", want)
			}
		}
		for team, name := range names {
			for prefix, want := range map[string]bool{"": true, "default._bimi.": team != "Acme"} {
				q := new(dns.Msg).SetQuestion(prefix+name+".", dns.TypeTXT)
				a, err := dns.Exchange(q, n.DNSAddr())
				if err != nil || (len(a.Answer) == 1) != want {
					t.Errorf("%s%s: %v, %v", prefix, name, a, err)
				}
			}
			var v struct {
				Problems []struct {
					Code     string
					FullName string `json:"full_name"`
				}
			}
			status, text := n.ask(keys[team], http.MethodGet, "/domains/"+ids[team]+"/setup", "")
			if err := json.Unmarshal([]byte(text), &v); err != nil || status != 200 {
				t.Fatalf("the set-up: %d %s", status, text)
			}
			if team != "Acme" && len(v.Problems) != 0 || team == "Acme" && (len(v.Problems) != 1 ||
				v.Problems[0].Code != "record_left_out" || v.Problems[0].FullName != "default._bimi.mail.acme.example") {
				t.Errorf("%s has the problems %+v", team, v.Problems)
			}
		}
	})
}
