package mailgun_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fixture"
	"github.com/postrider/postrider/internal/node/importfrom/mailgun"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const docs = "https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/"

var answers = map[string]fixture.Answer{
	"/v4/domains?limit=100&skip=0": {Page: docs + "domains/get-v4-domains", Body: `{"total_count":2,"items":[
		{"id":"1","name":"example.com","state":"active","type":"custom","web_prefix":"email"},
		{"id":"2","name":"sandbox1.mailgun.org","state":"active","type":"sandbox","web_prefix":"email"}]}`},
	"/v3/lists/pages?limit=100": {Page: docs + "mailing-lists/get-lists-pages", Body: `{"items":[
		{"address":"dev@example.com","name":"Developers","description":"News for developers","members_count":2}],
		"paging":{"next":"https://api.mailgun.net/v3/lists/pages?page=next&address=dev%40example.com&limit=100"}}`},
	"/v3/lists/pages?address=dev%40example.com&limit=100&page=next": {Page: docs + "mailing-lists/get-lists-pages",
		Body: `{"items":[],"paging":{"next":"https://api.mailgun.net/v3/lists/pages?page=next&address=dev%40example.com"}}`},
	"/v3/lists/dev@example.com/members/pages?limit=100": {
		Page: docs + "mailing-lists/get-lists-string:list_address-members-pages", Body: `{"items":[
		{"address":"alice@example.net","name":"Alice Doe","subscribed":true,"vars":{"age":26}},
		{"address":"bob@example.net","name":"","subscribed":false,"vars":{}}],"paging":{"next":""}}`},
	"/v3/example.com/unsubscribes?limit=100": {Page: docs + "unsubscribe/get-v3--domainid--unsubscribes",
		Body: `{"items":[{"address":"cleo@example.net","tags":["*"],"created_at":"Fri, 21 Oct 2011 11:02:55 UTC"},
		{"address":"dan@example.net","tags":["weekly"],"created_at":"Fri, 21 Oct 2011 11:02:55 UTC"}],"paging":{}}`},
	"/v3/example.com/bounces?limit=100": {Page: docs + "bounces/get-v3--domainid--bounces", Body: `{"items":[
		{"address":"gone@example.net","code":"550","error":"No such mailbox","created_at":"Fri, 21 Oct 2011 11:02:55 UTC"}],
		"paging":{"next":"https://api.mailgun.net/v3/example.com/bounces?page=next&limit=100&address=gone%40example.net"}}`},
	"/v3/example.com/bounces?address=gone%40example.net&limit=100&page=next": {
		Page: docs + "bounces/get-v3--domainid--bounces", Body: `{"items":[],"paging":{}}`},
	"/v3/example.com/complaints?limit=100": {Page: docs + "complaints/get-v3--domainid--complaints",
		Body: `{"items":[{"address":"no@example.net","created_at":"Fri, 21 Oct 2011 11:02:55 UTC"}],"paging":{}}`},
	"/v3/example.com/templates?limit=100": {Page: docs + "templates/get-v3-domain-name-templates", Body: `{"items":[
		{"name":"welcome","description":"","createdAt":"Wed, 29 Aug 2018 23:31:13 UTC","id":"46565d87"},
		{"name":"old","id":"2"},{"name":"loop","id":"3"}],"paging":{"next":""}}`},
	"/v3/example.com/templates/welcome?active=yes": {Page: docs + "templates/get-v3-domain-name-templates-template-name",
		Body: `{"template":{"name":"welcome","version":{"tag":"v0","engine":"handlebars","active":true,
		"template":"<p>{{fname}} %recipient.city% %unsubscribe_url%</p>","headers":{"Subject":"Hi {{fname}}",
		"From":"Acme <hi@example.com>"}}}}`},
	"/v3/example.com/templates/old?active=yes": {Page: docs + "templates/get-v3-domain-name-templates-template-name",
		Body: `{"template":{"name":"old"}}`},
	"/v3/example.com/templates/loop?active=yes": {Page: docs + "templates/get-v3-domain-name-templates-template-name",
		Body: `{"template":{"name":"loop","version":{"engine":"handlebars","template":"{{#if a}}x{{/if}}"}}}`},
	"/v3/domains/example.com/webhooks": {Page: docs + "webhooks/get-v3-domains--domain--webhooks", Body: `{"webhooks":{
		"clicked":{"urls":["https://hooks.example.com/a","https://hooks.example.com/b"]},"delivered":null,
		"permanent_fail":{"urls":["https://hooks.example.com/a"]}}}`},
}

func TestSource(t *testing.T) {
	t.Parallel()
	header := mailgun.Header("key")
	url := fixture.API{Name: "Mailgun", Header: header, Answers: answers}.Serve(t)
	got := fixture.Read(t, mailgun.New(fixture.Client(t, url, "Mailgun", header)))
	const list = "dev@example.com"
	const note = "its receiver must read the events of Postrider, which have another form"
	want := map[importfrom.Kind]importfrom.Page{
		importfrom.Domains:  {Domains: []importfrom.Domain{{Name: "example.com", TrackingSubdomain: "email", Sending: true}}},
		importfrom.Segments: {Segments: []importfrom.Segment{{ID: list, Name: "Developers"}}},
		importfrom.Topics: {Topics: []importfrom.Topic{{ID: list, Name: "Developers", Description: "News for developers",
			Default: contacts.OptOut}}},
		importfrom.Templates: {Templates: []importfrom.Template{{ID: "/v3/example.com/templates/welcome", Name: "welcome", Subject: "Hi {{{fname}}}",
			From: "Acme <hi@example.com>", HTML: "<p>{{{escape fname}}} {{{city}}} {{{POSTRIDER_UNSUBSCRIBE_URL}}}</p>",
			Note: "its placeholders were translated: read it, and publish it",
			Variables: []importfrom.Variable{{Key: "fname", Type: scalar.String, Fallback: scalar.OfText("")},
				{Key: "city", Type: scalar.String, Fallback: scalar.OfText("")}}}},
			Refused: []importfrom.Refused{{Name: "old", Reason: "it has no active version"},
				{Name: "loop", Reason: "it uses {{#if a}}, which templates do not have here"}}},
		importfrom.Suppressions: {Suppressions: []importfrom.Suppression{
			{Address: "gone@example.net", Origin: suppressions.Bounce},
			{Address: "no@example.net", Origin: suppressions.Complaint}}},
		importfrom.Contacts: {Contacts: []importfrom.Contact{
			{Address: "cleo@example.net", Unsubscribed: true}, {Address: "dan@example.net", Unsubscribed: true},
			{Address: "alice@example.net", FirstName: "Alice", LastName: "Doe", Segments: []string{list},
				Values: map[string]scalar.Value{"age": scalar.OfNumber(26)},
				Topics: []importfrom.Choice{{TopicID: list, Subscription: contacts.OptIn}}},
			{Address: "bob@example.net", Topics: []importfrom.Choice{{TopicID: list, Subscription: contacts.OptOut}}}},
			Notes: []string{"Recipients who unsubscribed from some tags only are unsubscribed from everything here."}},
		importfrom.Webhooks: {Webhooks: []importfrom.Webhook{
			{URL: "https://hooks.example.com/a", Events: []string{"email.bounced", "email.clicked"}, Note: note},
			{URL: "https://hooks.example.com/b", Events: []string{"email.clicked"}, Note: note}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An import that continues after domains were added or deleted at Mailgun misses no unsubscribe.
func TestContinuesWithOtherDomains(t *testing.T) {
	t.Parallel()
	source := func(domains ...string) *mailgun.Source {
		var items []string
		answers := map[string]fixture.Answer{"/v3/lists/pages?limit=100": {Page: docs + "mailing-lists/get-lists-pages",
			Body: `{"items":[],"paging":{}}`}}
		for _, d := range domains {
			items = append(items, `{"name":"`+d+`","type":"custom"}`)
			answers["/v3/"+d+"/unsubscribes?limit=100"] = fixture.Answer{
				Page: docs + "unsubscribe/get-v3--domainid--unsubscribes",
				Body: `{"items":[{"address":"left@` + d + `","tags":["*"]}],"paging":{}}`}
		}
		answers["/v4/domains?limit=100&skip=0"] = fixture.Answer{Page: docs + "domains/get-v4-domains",
			Body: fmt.Sprintf(`{"total_count":%d,"items":[%s]}`, len(domains), strings.Join(items, ","))}
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, answers[r.URL.RequestURI()].Body)
		}))
		t.Cleanup(api.Close)
		return mailgun.New(fixture.Client(t, api.URL, "Mailgun", nil))
	}
	read := func(s *mailgun.Source, cursor string) (addresses []string, next string) {
		t.Helper()
		p, err := s.Page(t.Context(), importfrom.Contacts, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Contacts {
			addresses = append(addresses, c.Address)
		}
		return addresses, p.Next
	}
	for name, after := range map[string][]string{"one is deleted": {"b.example", "c.example"},
		"one is added": {"b.example", "a.example", "_.example", "c.example"}, "the next is deleted": {"a.example", "c.example"}} {
		got, next := read(source("b.example", "c.example", "a.example"), "")
		for s := source(after...); next != ""; {
			var some []string
			some, next = read(s, next)
			got = append(got, some...)
		}
		for _, d := range after {
			if d != "_.example" && !slices.Contains(got, "left@"+d) {
				t.Errorf("%s: %s is missing in %v", name, d, got)
			}
		}
	}
}

// The address of the next page, which the server names, cannot change the host that gets the key.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"@127.0.0.1/v3/lists", "0/v3/lists", ".example.net/"} {
		url := fixture.API{Name: "Mailgun", Answers: map[string]fixture.Answer{
			"/v4/domains?limit=100&skip=0": {Page: docs + "domains/get-v4-domains", Body: `{"total_count":0,"items":[]}`},
			"/v3/lists/pages?limit=100": {Page: docs + "mailing-lists/get-lists-pages",
				Body: `{"items":[{"address":"dev@example.com"}],"paging":{"next":"` + next + `"}}`},
		}}.Serve(t)
		s := mailgun.New(fixture.Client(t, url, "Mailgun", mailgun.Header("key")))
		if _, err := s.Page(t.Context(), importfrom.Segments, ""); err == nil || !strings.Contains(err.Error(), next) {
			t.Errorf("%s: %v", next, err)
		}
	}
}
