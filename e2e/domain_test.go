package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// domainShown holds the API fields of a domain that these tests check.
type domainShown struct {
	ID, Name, Status string
	Records          []struct{ Record, Status string }
}

func (n *node) domains() (all []domainShown) {
	n.t.Helper()
	var list struct{ Data []domainShown }
	n.must(http.MethodGet, "/domains", "", &list)
	return list.Data
}

// TestADomainsLifeInDevelopment: in development, a domain goes through the same states as in production and stays
// unverified until a client requests verification.
func TestADomainsLifeInDevelopment(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { domainsLife(t, nil) })
	t.Run("postgres", func(t *testing.T) { domainsLife(t, []string{"POSTRIDER_DATABASE_URL=" + dbtest.PostgresURL(t)}) })
}

func domainsLife(t *testing.T, env []string) {
	n := start(t, env)
	var d domainShown
	n.must(http.MethodPost, "/domains", `{"name":"acme.example","capabilities":{"receiving":"enabled"}}`, &d)
	records := func(want string) {
		t.Helper()
		for _, r := range d.Records {
			if r.Status != want {
				t.Errorf("of a domain that is %s the record %s is %s", d.Status, r.Record, r.Status)
			}
		}
		if d.Status != want || len(d.Records) != 5 {
			t.Errorf("the domain is %s with %d records, want %s", d.Status, len(d.Records), want)
		}
	}
	const refusal = `{"statusCode":403,"message":"The domain acme.example of the ` + "`from`" +
		` field is not verified. ` +
		`Install its DNS records and verify it.","name":"validation_error"}`
	refused := func() {
		t.Helper()
		var text string
		status, err := n.call(t.Context(), http.MethodPost, "/emails",
			`{"from":"a@acme.example","to":"b@example.net","subject":"s","text":"t"}`, &text)
		if err != nil || status != http.StatusForbidden || text != refusal {
			t.Errorf("an email from it: %d %s, %v", status, text, err)
		}
	}
	records("not_started")
	refused()
	n.must(http.MethodPost, "/emails", `{"from":"onboarding@resend.dev","to":"b@example.net","subject":"s","text":"t"}`,
		nil)

	n.verifyDomain(d.ID)
	n.must(http.MethodGet, "/domains/"+d.ID, "", &d)
	records("verified")
	n.must(http.MethodPost, "/emails", `{"from":"a@acme.example","to":"b@example.net","subject":"s","text":"t"}`, nil)

	n.must(http.MethodPatch, "/domains/"+d.ID, `{"tracking_subdomain":"links"}`, nil)
	n.must(http.MethodGet, "/domains/"+d.ID, "", &d)
	if i := slices.IndexFunc(d.Records,
		func(r struct{ Record, Status string }) bool { return r.Record == "Tracking" }); i < 0 ||
		d.Records[i].Status != "not_started" || d.Status != "verified" {
		t.Errorf("with a tracking subdomain: %+v", d)
	}
}

// TestDevelopmentBeginsWithDomains: domains given with the --domain flag are verified after each start, and the program
// prints them.
func TestDevelopmentBeginsWithDomains(t *testing.T) {
	says := func(n *node, words string) {
		t.Helper()
		eventually(t, 20*time.Second, "it says "+words, func() bool { return strings.Contains(n.out.String(), words) })
	}
	n := start(t, nil, "--domain", "acme.example", "--domain=Mail.Other.example")
	for range 2 {
		says(n, "verified: acme.example, mail.other.example")
		says(n, "POST /domains/{id}/verify")
		all := n.domains()
		if len(all) != 2 || all[0].Status != "verified" || all[1].Status != "verified" {
			t.Errorf("domains: %+v", all)
		}
		n.must(http.MethodPost, "/emails", `{"from":"a@mail.other.example","to":"b@example.net","subject":"s","text":"t"}`,
			nil)
		n.kill()
		n.launch()
	}
	_, errOut, err := command(t, nil, "dev", "--data-dir", t.TempDir(), "--http", "127.0.0.1:0", "--domain", "gmail.com")
	if err == nil || !strings.Contains(errOut, "--domain gmail.com: ") {
		t.Errorf("with a domain that cannot be added: %s%v", errOut, err)
	}
	says(start(t, nil), "--domain acme.com")
}
