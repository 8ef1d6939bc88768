package dashboard_test

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// says submits a form and checks the status and the texts of the page that follows.
func (v *visitor) says(path string, form url.Values, status int, texts ...string) string {
	v.t.Helper()
	got, text := v.post(path, form)
	if got != status {
		v.t.Errorf("POST %s: %d, want %d\n%s", path, got, status, text)
	}
	for _, want := range texts {
		if !strings.Contains(text, want) {
			v.t.Errorf("POST %s lacks %q\n%s", path, want, text)
		}
	}
	return text
}

// domainOf returns the team's newest domain.
func (b *board) domainOf(teamID string) domains.Domain {
	b.t.Helper()
	all, _, err := b.Domains.List(b.t.Context(), teamID, page.Page{Limit: 1})
	b.must(err)
	if len(all) == 0 {
		b.t.Fatal("the team has no domain")
	}
	return all[0]
}

func TestDomainPages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		v.shows("/app/domains", 200, "acme.example", "Verified", "Add domain")
		v.shows("/app/domains?status=failed", 200, "No domain matches", "1 filter is set", "Clear filters")
		v.shows("/app/domains?q=CME&status=verified", 200, "acme.example")
		v.shows("/app/domains?after=nonsense", 404)
		first := b.visitorOf(b.other.TeamID, teams.Admin)
		first.shows("/app/domains", 200, "Add your first domain")

		v.shows("/app/domains/new?name=news.acme.example", 200, "news.acme.example")
		for name, text := range map[string]string{"": "Enter a value.", "gmail.com": "public mailbox provider",
			"<script>": "This must be a domain name such as example.com.", "acme.example": "registered already, by this team.",
			strings.Repeat("a", 300) + ".example": "This must be a domain name"} {
			page := v.says("/app/domains/new", url.Values{"name": {name}, "sending": {"on"}, "region": {"eu-west-1"}},
				statusOf(name), text, "The domain was not added.", `<option value="eu-west-1" selected>`)
			if strings.Contains(page, "<script>alert") || strings.Contains(page, `value="<script>"`) {
				t.Errorf("the name is not escaped:\n%s", page)
			}
		}
		v.says("/app/domains/new", url.Values{"name": {"x.example"}}, 422, "Choose at least one use")
		v.says("/app/domains/new", url.Values{"name": {"x.example"}, "sending": {"on"}, "custom_return_path": {"-"}}, 422,
			`id="custom_return_path-error"`, " open>")
		v.says("/app/domains/new", url.Values{"name": {"news.acme.example"}, "sending": {"on"}, "receiving": {"on"},
			"custom_return_path": {"bounce"}, "tracking_subdomain": {"links"}, "click_tracking": {"on"},
			"tls": {"enforced"}}, 200, "Domain added.", "news.acme.example", `data-copy="bounce.news"`, `data-copy="bounce.news.acme.example"`, "Not started",
			"so no record is needed.", "the domain is verified within a second",
			"Sending waits for 3 records. Receiving waits for 2 records.", "Zone file")
		d := b.domainOf(b.acme.TeamID)
		if d.ReturnPath != "bounce" || d.TLS != domains.Enforced || !d.ClickTracking || d.OpenTracking {
			t.Errorf("added %+v", d)
		}
		at := "/app/domains/" + d.ID
		v.says(at+"/verify", nil, 200, "The records are looked up now.", "data-live-poll")
		b.eventually("the domain is verified", func() bool { return b.domainOf(b.acme.TeamID).Status == domains.Verified })
		if text := v.shows(at, 200, "Sending and receiving work.", "4 of 4"); strings.Contains(text, "data-live-poll") {
			t.Error("a verified domain is still read again and again")
		}

		b.found(d.ID, `{"mx":{"status":"verified","changed":1700000000000000},
			"spf":{"status":"temporary_failure","since":NOW,"found":"v=spf1 include:old.example <b> ~all"},
			"dkim":{"status":"verified"},"receiving":{"status":"pending","since":NOW},"dkim-ed25519":{"status":"failed"},
			"tracking":{"status":"pending","since":NOW,"unanswered":true}}`)
		v.shows(at, 200, "Sending works, but stops in 71 h unless SPF is correct again.", "Receiving waits for one record.",
			"1 record differs", "Wrong value", "<mark>include:old.example</mark>", "&lt;b&gt;", "71 h left", "since <time",
			"No record found", "No answer", "Add include:", "data-live-poll", "MX, priority 10")

		v.shows(at+"/settings", 200, `value="links"`, `name="click_tracking" value="on" checked`,
			"Nothing is tracked until the record of the tracking subdomain is verified.")
		v.says(at+"/settings", url.Values{"tls": {"opportunistic"}, "tracking_subdomain": {"a.b"}, "sending": {"on"}}, 422,
			`value="a.b"`, `id="tracking_subdomain-error"`, "The settings were not saved.")
		v.says(at+"/settings", url.Values{"tls": {"opportunistic"}}, 422, "Choose at least one use")
		v.says(at+"/settings", url.Values{"tls": {"opportunistic"}, "tracking_subdomain": {"go"}, "sending": {"on"},
			"open_tracking": {"on"}}, 200, "Settings saved.", `value="go"`)
		if d := b.domainOf(b.acme.TeamID); d.Receiving || !d.OpenTracking || d.ClickTracking ||
			d.TLS != domains.Opportunistic {
			t.Errorf("saved %+v", d)
		}

		v.shows(at+"?delete", 200, "Delete news.acme.example?", "Keep domain")
		v.says(at+"/delete", url.Values{"confirm": {"news.acme.exampl"}}, 422, "Type news.acme.example exactly",
			`value="news.acme.exampl"`)
		v.says(at+"/delete", url.Values{"confirm": {"news.acme.example"}}, 200, "Domain news.acme.example deleted.")
		v.shows(at, 404)
	})
}

func statusOf(name string) int {
	if name == "acme.example" {
		return 403
	}
	return 422
}

// A member chooses the set-up of a domain on its page.
func TestDomainSetupPage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v, d := b.visitor(teams.Admin), b.domainOf(b.acme.TeamID)
		at := "/app/domains/" + d.ID
		if text := v.shows(at+"?delete", 200, "Delete acme.example?"); strings.Contains(text, "records that this installation publishes") {
			t.Error("the owner publishes the DKIM records, which stay")
		}
		v.shows(at, 200, "Change set-up", `value="records" checked`, "This delegates all of acme.example")
		v.says(at+"/setup", url.Values{"setup": {"mx"}}, 422, "must be records, cname or delegation")
		v.says(at+"/setup", url.Values{"setup": {"cname"}}, 200, "Set-up changed.", `value="cname" checked`,
			"DKIM, first name", "s1._domainkey", ".s1.dns.postrider.test")
		b.eventually("the domain is verified", func() bool { return b.domainOf(b.acme.TeamID).FormerSetup == "" })
		v.shows(at, 200, "Sending works.")
		v.shows(at+"?delete", 200, "Delete acme.example?", "records that this installation publishes. Emails that are under way then fail DKIM.")
		b.found(d.ID, `{"mx":{"status":"verified"},"spf":{"status":"verified"},"dkim":{"status":"verified"},
			"cname-s1":{"status":"pending","since":NOW,"found":"other.example"}}`)
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE domains SET former_setup = 'records' WHERE id = $1`, db.ID(d.ID))
			return err
		}))
		v.shows(at, 200, "the former one (Single records)", "Mail goes on with the former set-up", "Replace other.example")
		viewer := b.visitor(teams.Viewer)
		if text := viewer.shows(at, 200, "Set-up"); strings.Contains(text, "Change set-up") {
			t.Error("a viewer sees the button")
		}
		viewer.says(at+"/setup", url.Values{"setup": {"records"}}, 403)
		b.visitorOf(b.other.TeamID, teams.Owner).says(at+"/setup", url.Values{"setup": {"records"}}, 404)
	})
}

// A member chooses the DMARC and BIMI records of a domain on its page.
func TestChosenRecords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v, at := b.visitor(teams.Admin), "/app/domains/"+b.domainOf(b.acme.TeamID).ID
		records := func(dmarc, bimi string) url.Values { return url.Values{"dmarc": {dmarc}, "bimi": {bimi}} }
		v.shows(at, 200, "DMARC record", "BIMI record", "Save records")
		const strict, logo = "v=DMARC1; p=reject", "v=BIMI1; l=https://acme.example/l.svg"
		v.says(at+"/setup", records(strict, "v=BIMI1; l=http://acme.example/l.svg"), 422, "The records were not saved.",
			`id="bimi-error"`, "must be a URL that begins with https://", `value="`+strict+`"`)
		v.says(at+"/setup", records("v=DMARC1; p=rejekt", logo), 422, `id="dmarc-error"`, "p is needed")
		if d := b.domainOf(b.acme.TeamID); d.DMARCRecord != "" || d.BIMIRecord != "" {
			t.Errorf("stored %+v", d)
		}
		v.says(at+"/setup", records(strict, logo), 200, "Records saved.", `value="`+strict+`"`, `value="`+logo+`"`,
			"default._bimi.acme.example")
		v.says(at+"/setup", records("", ""), 200, "Records saved.")
		if d := b.domainOf(b.acme.TeamID); d.DMARCRecord != "" || d.BIMIRecord != "" {
			t.Errorf("stored %+v", d)
		}
		viewer := b.visitor(teams.Viewer)
		if text := viewer.shows(at, 200, "DMARC record"); strings.Contains(text, "Save records") {
			t.Error("a viewer sees the button")
		}
		viewer.says(at+"/setup", records(strict, logo), 403)
		b.visitorOf(b.other.TeamID, teams.Owner).says(at+"/setup", records(strict, logo), 404)
	})
}

// A member sees the DKIM keys of a domain on its page, and rotates them.
func TestDomainKeys(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		// The records of new keys are not found, so the rotation does not go on.
		b.Domains.Authoritative = func(context.Context, string) ([]domains.ServerAnswer, error) {
			return []domains.ServerAnswer{{}}, nil
		}
		v, d := b.visitor(teams.Admin), b.domainOf(b.acme.TeamID)
		at := "/app/domains/" + d.ID
		rsa := b.Domains.Records(&d)[2]
		v.shows(at, 200, "DKIM keys", "In use", rsa.FQDN, "Rotate keys")
		v.says(at+"/keys/rotate", nil, 200, "New DKIM keys were made.", "Waits for its record",
			"Add this record at your DNS provider.")
		keys, err := b.Domains.DKIMKeys(t.Context(), &d)
		b.must(err)
		next := keys[len(keys)-1]
		v.shows(at, 200, next.Name, `data-copy="`+next.Name, next.Selector)
		v.says(at+"/keys/rotate", nil, 422, "are being rotated already")
		v.says(at+"/keys/rotate", url.Values{"emergency": {"on"}}, 200, "New DKIM keys were made.", "Emergency")
		viewer := b.visitor(teams.Viewer)
		if text := viewer.shows(at, 200, "DKIM keys"); strings.Contains(text, "Rotate keys") {
			t.Error("a viewer sees the button")
		}
		viewer.says(at+"/keys/rotate", nil, 403)
		b.visitorOf(b.other.TeamID, teams.Owner).says(at+"/keys/rotate", nil, 404)
	})
}

// found stores what a look-up has found. NOW stands for the present time.
func (b *board) found(domainID, checks string) {
	b.t.Helper()
	checks = strings.ReplaceAll(checks, "NOW", strconv.FormatInt(db.Now().Add(-time.Minute).UnixMicro(), 10))
	b.must(b.DB.Update(b.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(b.t.Context(), `UPDATE domains SET checks = $2, status = 'partially_verified' WHERE id = $1`,
			db.ID(domainID), checks)
		return err
	}))
}

// A domain of another team can be claimed from the form that adds it.
func TestDomainClaim(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitorOf(b.other.TeamID, teams.Admin)
		form := url.Values{"name": {"acme.example"}, "sending": {"on"}}
		v.says("/app/domains/new", form, 403, "Another team has this domain.", `formaction="/app/domains/claim"`)
		v.says("/app/domains/claim", url.Values{"name": {"nobodys.example"}, "sending": {"on"}}, 404)
		v.says("/app/domains/claim", form, 200, "Domain claimed.", "Proof of control", "postrider-domain-verification=",
			"It becomes yours after the record below is found.")
		d := b.domainOf(b.other.TeamID)
		v.shows("/app/domains", 200, "Claimed")
		v.says("/app/domains/"+d.ID+"/claim", nil, 200, "The record is looked up now.")
		b.eventually("the claim waits for the owner", func() bool {
			_, text := v.get("/app/domains/" + d.ID)
			return strings.Contains(text, "three days to object")
		})
		v.says("/app/domains/"+d.ID+"/delete", url.Values{"confirm": {"acme.example"}}, 200, "deleted")
		b.visitor(teams.Admin).shows("/app/domains", 200, "acme.example")
	})
}

func TestKeyPages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		d := b.domainOf(b.acme.TeamID)
		v.shows("/app/keys", 200, "production", "Full access", "All domains")
		v.shows("/app/keys/new", 200, "Sending only", "acme.example")
		v.says("/app/keys/new", url.Values{"name": {" "}, "permission": {"full_access"}}, 422, "Enter a name, for example",
			"The key was not created.", `value="full_access" checked`)
		v.says("/app/keys/new", url.Values{"name": {strings.Repeat("x", 51)}}, 422, "This must have at most 50 characters")
		v.says("/app/keys/new", url.Values{"name": {"a"}, "permission": {"all"}}, 422,
			"This must be full_access or sending_access.")
		v.says("/app/keys/new", url.Values{"name": {"a"}, "permission": {"full_access"}, "domain_id": {d.ID}}, 422,
			`id="domain_id-error"`)
		v.says("/app/keys/new", url.Values{"name": {"a"}, "permission": {"sending_access"}, "domain_id": {"' OR 1=1"}}, 400,
			"This must be a valid UUID.")
		text := v.says("/app/keys/new", url.Values{"name": {"<b>invoices"}, "permission": {"sending_access"},
			"domain_id": {d.ID}}, 200, "Copy your key now", "&lt;b&gt;invoices", "hello@acme.example")
		_, token, _ := strings.Cut(text, `id="token" class="mono" value="`)
		token, _, _ = strings.Cut(token, `"`)
		if by, err := b.Teams.Authenticate(t.Context(), token); err != nil || by.TeamID != b.acme.TeamID ||
			strings.Count(text, token) < 5 {
			t.Errorf("the token %q does not work, or is not in the examples: %v", token, err)
		}
		keys, _, err := b.Teams.ListKeys(t.Context(), b.acme.TeamID, page.Page{Limit: 1})
		b.must(err)
		at := "/app/keys/" + keys[0].ID
		for _, path := range []string{"/app/keys", at} {
			if page := v.shows(path, 200, "&lt;b&gt;invoices", "Sending only"); strings.Contains(page, token) {
				t.Errorf("%s shows the token again", path)
			}
		}
		v.shows("/app/domains/"+d.ID, 200, "1 API key that may send only from it")
		v.says(at+"/rename", url.Values{"name": {""}}, 422, "Enter a value.")
		v.says(at+"/rename", url.Values{"name": {"receipts"}}, 200, "Key renamed.", "receipts")
		v.says(at+"/delete", url.Values{"confirm": {"Receipts"}}, 422, "Type receipts exactly")
		v.says(at+"/delete", url.Values{"confirm": {"receipts"}}, 200, "Key receipts deleted.")
		v.shows(at, 404)
		if _, err := b.Teams.Authenticate(t.Context(), token); err == nil {
			t.Error("the deleted key works")
		}
		v.shows("/app/settings/smtp", 200, "mail.postrider.test:587", "mail.postrider.test:465", "postrider", "smtplib.SMTP(")
	})
}

// The objects of another team do not exist, and a viewer sees pages without forms.
func TestDomainsAndKeysOfOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		d := b.domainOf(b.acme.TeamID)
		keys, _, err := b.Teams.ListKeys(t.Context(), b.acme.TeamID, page.Page{Limit: 1})
		b.must(err)
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		domain, key := "/app/domains/"+d.ID, "/app/keys/"+keys[0].ID
		for _, path := range []string{domain, domain + "/settings", key} {
			other.shows(path, 404)
		}
		for path, form := range map[string]url.Values{domain + "/verify": nil, domain + "/claim": nil,
			domain + "/delete": {"confirm": {d.Name}}, domain + "/settings": {"sending": {"on"}},
			key + "/rename": {"name": {"stolen"}}, key + "/delete": {"confirm": {keys[0].Name}}} {
			other.says(path, form, 404)
		}
		other.says("/app/keys/new", url.Values{"name": {"a"}, "permission": {"sending_access"}, "domain_id": {d.ID}}, 422,
			"names no domain of this team")
		viewer := b.visitor(teams.Viewer)
		for _, path := range []string{"/app/domains", domain, domain + "/settings", "/app/keys", key} {
			text := viewer.shows(path, 200)
			for _, form := range []string{"/verify", "/delete", "/rename", "/app/keys/new", "/app/domains/new",
				"Save settings"} {
				if strings.Contains(text, form) {
					t.Errorf("%s shows a viewer %s", path, form)
				}
			}
		}
		viewer.says(domain+"/delete", url.Values{"confirm": {d.Name}}, 403)
	})
}
