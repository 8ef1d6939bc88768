package sendgrid_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fixture"
	"github.com/postrider/postrider/internal/node/importfrom/sendgrid"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const docs = "https://www.twilio.com/docs/sendgrid/api-reference/"

var answers = map[string]fixture.Answer{
	"/v3/whitelabel/domains?limit=50&offset=0": {Page: docs + "domain-authentication/list-all-authenticated-domains",
		Body: `[{"id":1,"domain":"example.com","subdomain":"em1234","username":"x","valid":true,"dns":{}}]`},
	"/v3/asm/groups": {
		Page: docs + "suppressions-unsubscribe-groups/retrieve-all-suppression-groups-associated-with-the-user",
		Body: `[{"name":"Product Suggestions","id":100,"description":"Suggestions","is_default":true,"unsubscribes":1}]`},
	"/v3/asm/groups/100/suppressions": {
		Page: docs + "suppressions-suppressions/retrieve-all-suppressions-for-a-suppression-group",
		Body: `["someone@example.net"]`},
	"/v3/suppression/unsubscribes?limit=500&offset=0": {
		Page: docs + "suppressions-global-suppressions/retrieve-all-global-suppressions",
		Body: `[{"created":1443651154,"email":"all@example.net"}]`},
	"/v3/suppression/bounces?limit=500&offset=0": {Page: docs + "bounces-api/retrieve-all-bounces",
		Body: `[{"created":1443651125,"email":"bounce@example.net","reason":"550 5.1.1","status":"5.1.1"}]`},
	"/v3/suppression/invalid_emails?limit=500&offset=0": {Page: docs + "invalid-e-mails-api/retrieve-all-invalid-emails",
		Body: `[{"created":1449953655,"email":"invalid@example.invalid","reason":"Mail domain is unknown"}]`},
	"/v3/suppression/spam_reports?limit=500&offset=0": {Page: docs + "spam-reports-api/retrieve-all-spam-reports",
		Body: `[{"created":1443651141,"email":"spam@example.net","ip":"10.63.202.100"}]`},
	"/v3/templates?generations=legacy%2Cdynamic&page_size=50": {
		Page: docs + "transactional-templates/retrieve-paged-transactional-templates",
		Body: `{"result":[{"id":"d-1","name":"Receipt","generation":"dynamic"},{"id":"2","name":"Old","generation":"legacy"}],
		"_metadata":{"next":"https://api.sendgrid.com/v3/templates?page_size=50&page_token=abc","count":3}}`},
	"/v3/templates?generations=legacy%2Cdynamic&page_size=50&page_token=abc": {
		Page: docs + "transactional-templates/retrieve-paged-transactional-templates",
		Body: `{"result":[{"id":"d-3","name":"Draft","generation":"dynamic"}],"_metadata":{"count":3}}`},
	"/v3/templates/d-1": {Page: docs + "transactional-templates/retrieve-a-single-transactional-template",
		Body: `{"id":"d-1","name":"Receipt","generation":"dynamic","versions":[{"active":0,"html_content":"old"},
		{"active":1,"subject":"{{subject}}","html_content":"{{insert name \"default=you\"}} {{{unsubscribe}}}",
		"plain_content":"{{name}}"}]}`},
	"/v3/templates/d-3": {Page: docs + "transactional-templates/retrieve-a-single-transactional-template",
		Body: `{"id":"d-3","versions":[]}`},
	"/v3/user/webhooks/event/settings/all": {Page: docs + "webhooks/get-all-event-webhooks", Body: `{"max_allowed":5,
		"webhooks":[{"enabled":true,"url":"https://hooks.example.com","delivered":true,"bounce":true,"open":false,
		"friendly_name":"x","id":"77d4a5da"},{"url":"https://none.example","delivered":false}]}`},
}

func TestSource(t *testing.T) {
	t.Parallel()
	header := sendgrid.Header("SG.1")
	url := fixture.API{Name: "SendGrid", Header: header, Answers: answers}.Serve(t)
	file := filepath.Join(t.TempDir(), "contacts.csv")
	text := "\ufeffEMAIL,FIRST_NAME,LAST_NAME,CITY,CREATED_AT,CONTACT_ID\nann@example.net,Ann,,Graz,2020-01-01,1\n" +
		strings.Repeat("bob@example.net,,,,,\n", 600)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := fixture.Read(t, sendgrid.New(fixture.Client(t, url, "SendGrid", header), file))
	people := got[importfrom.Contacts]
	if len(people.Contacts) != 2+601 {
		t.Fatalf("%d contacts", len(people.Contacts))
	}
	people.Contacts = people.Contacts[:4]
	got[importfrom.Contacts] = people
	want := map[importfrom.Kind]importfrom.Page{
		importfrom.Domains: {Domains: []importfrom.Domain{{Name: "example.com", ReturnPath: "em1234", Sending: true}}},
		importfrom.Topics: {Topics: []importfrom.Topic{{ID: "100", Name: "Product Suggestions", Description: "Suggestions",
			Default: contacts.OptIn, Public: true}}},
		importfrom.Templates: {Templates: []importfrom.Template{{Name: "Receipt", Subject: "{{{subject}}}",
			HTML: "{{{escape name}}} {{{POSTRIDER_UNSUBSCRIBE_URL}}}", Text: new("{{{name}}}"),
			Note: "its placeholders were translated: read it, and publish it",
			Variables: []importfrom.Variable{{Key: "subject", Type: scalar.String, Fallback: scalar.OfText("")},
				{Key: "name", Type: scalar.String, Fallback: scalar.OfText("you")}}}},
			Refused: []importfrom.Refused{
				{Name: "Old", Reason: "it is a legacy template, whose substitutions are chosen by each email"},
				{Name: "Draft", Reason: "it has no active version with HTML"}}},
		importfrom.Suppressions: {Suppressions: []importfrom.Suppression{
			{Address: "bounce@example.net", Origin: suppressions.Bounce},
			{Address: "invalid@example.invalid", Origin: suppressions.Bounce},
			{Address: "spam@example.net", Origin: suppressions.Complaint}}},
		importfrom.Contacts: {Contacts: []importfrom.Contact{{Address: "all@example.net", Unsubscribed: true},
			{Address: "someone@example.net", Topics: []importfrom.Choice{{TopicID: "100", Subscription: contacts.OptOut}}},
			{Address: "ann@example.net", FirstName: "Ann", Values: map[string]scalar.Value{"city": scalar.OfText("Graz")}},
			{Address: "bob@example.net"}}},
		importfrom.Webhooks: {Webhooks: []importfrom.Webhook{{URL: "https://hooks.example.com",
			Events: []string{"email.delivered", "email.bounced"},
			Note:   "its receiver must read the events of Postrider, which have another form"}},
			Refused: []importfrom.Refused{{Name: "https://none.example", Reason: "it receives no events"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An import that continues skips the rows of the file that it has read. A file without addresses is refused.
func TestContactFile(t *testing.T) {
	t.Parallel()
	url := fixture.API{Name: "SendGrid", Answers: map[string]fixture.Answer{"/v3/asm/groups": {Page: docs, Body: `[]`}}}.Serve(t)
	file := filepath.Join(t.TempDir(), "contacts.csv")
	var text strings.Builder
	text.WriteString("email\n")
	for i := range 700 {
		fmt.Fprintf(&text, "p%d@example.net\n", i)
	}
	read := func(cursor string) (importfrom.Page, error) {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return sendgrid.New(fixture.Client(t, url, "SendGrid", nil), file).Page(t.Context(), importfrom.Contacts, cursor)
	}
	if p, err := read("1 500"); err != nil || len(p.Contacts) != 200 || p.Contacts[0].Address != "p500@example.net" ||
		p.Next != "" {
		t.Errorf("%d contacts, then %q, %v", len(p.Contacts), p.Next, err)
	}
	if _, err := read("1 900"); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a shorter file: %v", err)
	}
	text.Reset()
	text.WriteString("name\nx\n")
	if _, err := read("1 0"); err == nil || !strings.Contains(err.Error(), "no column EMAIL") {
		t.Errorf("a file without addresses: %v", err)
	}
}

// A file with endless rows or too many columns is refused.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"longer than": "EMAIL,FIRST_NAME\na@example.net,\"" + strings.Repeat("x", 6<<20),
		"columns":     "EMAIL" + strings.Repeat(",x", 501) + "\n",
		"no column":   strings.Repeat("\x00", 1000),
	} {
		name := filepath.Join(t.TempDir(), "contacts.csv")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		url := fixture.API{Name: "SendGrid", Answers: map[string]fixture.Answer{
			"/v3/asm/groups": {Page: docs, Body: `[]`}}}.Serve(t)
		s := sendgrid.New(fixture.Client(t, url, "SendGrid", nil), name)
		if p, err := s.Page(t.Context(), importfrom.Contacts, "1 0"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d contacts, %v", want, len(p.Contacts), err)
		}
	}
}
