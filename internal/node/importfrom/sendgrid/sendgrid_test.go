package sendgrid_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
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
		importfrom.Templates: {Templates: []importfrom.Template{{ID: "d-1", Name: "Receipt", Subject: "{{{subject}}}",
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

// serve starts a server that answers requests by path; it returns a source. The file may be "".
func serve(t *testing.T, file string, answer func(path string, offset int) string) *sendgrid.Source {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offset, _ := strconv.Atoi(r.FormValue("offset"))
		io.WriteString(w, answer(r.URL.Path, offset))
	}))
	t.Cleanup(api.Close)
	return sendgrid.New(fixture.Client(t, api.URL, "SendGrid", nil), file)
}

// contactPage reads a page of contacts and returns their addresses.
func contactPage(t *testing.T, s *sendgrid.Source, cursor string) (addresses []string, p importfrom.Page) {
	t.Helper()
	p, err := s.Page(t.Context(), importfrom.Contacts, cursor)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Contacts {
		addresses = append(addresses, c.Address)
	}
	return addresses, p
}

// addresses returns the addresses of a list as JSON.
func addresses(from, to int) string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf(`{"email":"p%d@example.net"}`, i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// An import that continues in the file of contacts skips the rows that it has read, and begins again if the file has
// changed.
func TestContactFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "contacts.csv")
	write := func(from, to int) {
		t.Helper()
		var text strings.Builder
		text.WriteString("email\n")
		for i := from; i < to; i++ {
			fmt.Fprintf(&text, "p%03d@example.net\n", i)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(cursor string) ([]string, importfrom.Page) {
		t.Helper()
		return contactPage(t, serve(t, file, func(string, int) string { return "[]" }), cursor)
	}
	write(0, 700)
	_, p := read("")
	got, p := read(p.Next)
	if len(got) != 500 || p.Next == "" || p.Notes != nil {
		t.Fatalf("%d rows, %v", len(got), p.Notes)
	}
	next := p.Next
	if got, p := read(next); len(got) != 200 || got[0] != "p500@example.net" || p.Next != "" || p.Notes != nil {
		t.Errorf("%d rows from %v on, then %q, %v", len(got), got[:1], p.Next, p.Notes)
	}
	for name, change := range map[string]func(){"another file of the same size": func() { write(1, 701) },
		"a shorter one": func() { write(1, 400) }, "a longer one": func() { write(1, 900) }} {
		change()
		if got, p := read(next); got[0] != "p001@example.net" || len(p.Notes) != 1 {
			t.Errorf("%s: %v, %v", name, got[:1], p.Notes)
		}
	}
}

// An import that stopped in the file of contacts does not continue without the file.
func TestContinuesWithoutContactFile(t *testing.T) {
	t.Parallel()
	s := serve(t, "", func(string, int) string { return "[]" })
	cursor := fetch.Place{List: "contacts", At: 500, Last: "sum"}.Cursor()
	if _, err := s.Page(t.Context(), importfrom.Contacts, cursor); err == nil ||
		!strings.Contains(err.Error(), "continue with --contacts FILE") {
		t.Errorf("continuing without the file: %v", err)
	}
	if _, p := contactPage(t, s, fetch.Place{List: "contacts"}.Cursor()); len(p.Notes) != 1 {
		t.Errorf("an import without a file has the notes %v", p.Notes)
	}
}

// Columns of the same name keep their values apart.
func TestRepeatedColumns(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "contacts.csv")
	if err := os.WriteFile(file, []byte("EMAIL,City,CITY,City\na@example.net,Graz,Linz,Wels\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, file, func(string, int) string { return "[]" })
	_, p := contactPage(t, s, "")
	_, p = contactPage(t, s, p.Next)
	want := map[string]scalar.Value{"city": scalar.OfText("Graz"), "city 2": scalar.OfText("Linz"),
		"city 3": scalar.OfText("Wels")}
	if diff := cmp.Diff(want, p.Contacts[0].Values); diff != "" || len(p.Notes) != 2 {
		t.Error(diff, p.Notes)
	}
}

// An import that continues misses no unsubscribe if groups or addresses were deleted at SendGrid.
func TestContinuesWithOtherLists(t *testing.T) {
	t.Parallel()
	lists := func(groups string, from int) func(string, int) string {
		return func(path string, offset int) string {
			switch path {
			case "/v3/asm/groups":
				return groups
			case "/v3/suppression/unsubscribes":
				return addresses(min(from+offset, 620), min(from+offset+500, 620))
			}
			return `["left@` + strings.Split(path, "/")[4] + `.example"]`
		}
	}
	const one, two, three = `{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`, `{"id":3,"name":"c"}`
	first := serve(t, "", lists("["+one+","+two+","+three+"]", 0))
	got, p := contactPage(t, first, "")
	if len(got) != 500 {
		t.Fatalf("%d addresses", len(got))
	}
	all, middle := got, p.Next
	for s := serve(t, "", lists("["+one+"]", 90)); p.Next != ""; all = append(all, got...) {
		got, p = contactPage(t, s, p.Next)
	}
	for i := range 620 {
		if !slices.Contains(all, fmt.Sprintf("p%d@example.net", i)) {
			t.Fatalf("address %d is missing", i)
		}
	}
	p.Next = middle
	for !slices.Contains(got, "left@2.example") {
		got, p = contactPage(t, first, p.Next)
	}
	all = nil // the next list is that of group 3
	for s := serve(t, "", lists("["+three+","+two+"]", 0)); p.Next != ""; all = append(all, got...) {
		got, p = contactPage(t, s, p.Next)
	}
	if !slices.Contains(all, "left@3.example") {
		t.Errorf("a group is missing in %v", all)
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
		cursor := fetch.Place{List: "contacts"}.Cursor()
		if p, err := s.Page(t.Context(), importfrom.Contacts, cursor); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d contacts, %v", want, len(p.Contacts), err)
		}
	}
}
