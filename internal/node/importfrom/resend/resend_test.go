package resend_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fixture"
	"github.com/postrider/postrider/internal/node/importfrom/resend"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const docs = "https://resend.com/docs/api-reference/"

// answers are those of the public documentation, with several pages and with values that the documentation allows.
var answers = map[string]fixture.Answer{
	"/domains?limit=100": {Page: docs + "domains/list-domains", Body: `{"object":"list","has_more":false,"data":[
		{"id":"d91cd9bd","name":"example.com","status":"not_started","region":"us-east-1"},
		{"id":"gone","name":"gone.example","status":"not_started","region":"us-east-1"}]}`},
	"/domains/d91cd9bd": {Page: docs + "domains/get-domain", Body: `{"object":"domain","id":"d91cd9bd",
		"name":"mail.example.com","status":"verified","region":"eu-west-1","open_tracking":true,"click_tracking":false,
		"tracking_subdomain":"links","capabilities":{"sending":"enabled","receiving":"disabled"},"records":[
		{"record":"SPF","name":"bounce.mail","type":"MX","ttl":"Auto","status":"verified",
		"value":"feedback-smtp.eu-west-1.amazonses.com","priority":10},
		{"record":"DKIM","name":"resend._domainkey","value":"p=MIGf","type":"TXT","status":"verified","ttl":"Auto"}]}`},
	"/domains/gone": {Page: docs + "errors", Status: 404, Body: `{"statusCode":404,"name":"not_found","message":"Gone"}`},

	"/contact-properties?limit=100": {Page: docs + "contact-properties/list-contact-properties",
		Body: `{"object":"list","has_more":true,"data":[{"id":"p1","key":"company_name","type":"string",
		"fallback_value":"Acme Corp"}]}`},
	"/contact-properties?after=p1&limit=100": {Page: docs + "contact-properties/list-contact-properties",
		Body: `{"object":"list","has_more":false,"data":[{"id":"p2","key":"age","type":"number","fallback_value":null}]}`},

	"/segments?limit=100": {Page: docs + "segments/list-segments", Body: `{"object":"list","has_more":false,"data":[
		{"id":"78261eea","name":"Registered Users","created_at":"2023-10-06T22:59:55.977Z"},
		{"id":"b6d24b8e","name":"Active","created_at":"2023-10-06T22:59:55.977Z"}]}`},
	"/segments/78261eea": {Page: docs + "segments/get-segment", Body: `{"object":"segment","id":"78261eea",
		"name":"Registered Users","created_at":"2023-10-06T22:59:55.977Z"}`},
	"/segments/b6d24b8e": {Page: docs + "segments/get-segment", Body: `{"object":"segment","id":"b6d24b8e",
		"name":"Active","filter":{"type":"and"},"created_at":"2023-10-06T22:59:55.977Z"}`},

	"/topics?limit=100": {Page: docs + "topics/list-topics", Body: `{"object":"list","has_more":false,"data":[
		{"id":"t1","name":"Newsletter","description":"Weekly","default_subscription":"opt_in","visibility":"public"}]}`},

	"/templates?limit=100": {Page: docs + "templates/list-templates", Body: `{"object":"list","has_more":false,"data":[
		{"id":"e169aa45","name":"reset-password","status":"published"},{"id":"b7f9c2e1","name":"receipt"},
		{"id":"c1","name":"order"}]}`},
	"/templates/e169aa45": {Page: docs + "templates/get-template", Body: `{"object":"template","id":"e169aa45",
		"alias":"reset","name":"reset-password","status":"published","has_unpublished_versions":false,
		"from":"John Doe <john@example.com>","subject":"Hello {{{NAME}}}","reply_to":null,"html":"<h1>{{{NAME}}}</h1>",
		"text":"{{{NAME}}}","variables":[{"id":"v1","key":"NAME","type":"string","fallback_value":"friend"}]}`},
	"/templates/b7f9c2e1": {Page: docs + "templates/get-template", Body: `{"object":"template","id":"b7f9c2e1",
		"name":"receipt","status":"published","has_unpublished_versions":true,"reply_to":["help@example.com"],
		"html":"{{{PAID}}}","variables":[{"key":"PAID","type":"boolean","fallback_value":true},
		{"key":"SUM","type":"number","fallback_value":9.5}]}`},
	"/templates/c1": {Page: docs + "templates/get-template", Body: `{"object":"template","id":"c1","name":"order",
		"html":"x","variables":[{"key":"ITEMS","type":"list","fallback_value":[]}]}`},

	"/suppressions?limit=100": {Page: docs + "suppressions/list-suppressions", Body: `{"object":"list","has_more":false,
		"data":[{"id":"s1","email":"steve@example.com","origin":"complaint","source_id":"479e3145"}]}`},

	"/contacts?limit=100": {Page: docs + "contacts/list-contacts", Body: `{"object":"list","has_more":true,"data":[
		{"id":"c1","email":"steve.wozniak@gmail.com","first_name":"Steve","last_name":"Wozniak","unsubscribed":false},
		{"id":"c2","email":"gone@example.com","first_name":null,"last_name":null,"unsubscribed":false}]}`},
	"/contacts?after=c2&limit=100": {Page: docs + "contacts/list-contacts", Body: `{"object":"list","has_more":false,
		"data":[{"id":"c3","email":"ann@example.com","first_name":"","last_name":null,"unsubscribed":true}]}`},
	"/contacts/c1": {Page: docs + "contacts/get-contact", Body: `{"object":"contact","id":"c1",
		"email":"steve.wozniak@gmail.com","properties":{"company_name":"Apple","age":{"value":"74","type":"number"}}}`},
	"/contacts/c2": {Page: docs + "errors", Status: 404, Body: `{"statusCode":404,"message":"Contact not found"}`},
	"/contacts/c3": {Page: docs + "contacts/get-contact", Body: `{"object":"contact","id":"c3","properties":{}}`},
	"/contacts/c1/topics?limit=100": {Page: docs + "contacts/list-contact-topics", Body: `{"object":"list",
		"has_more":false,"data":[{"id":"t1","name":"Newsletter","subscription":"opt_out"}]}`},
	"/contacts/c3/topics?limit=100": {Page: docs + "contacts/list-contact-topics", Body: `{"object":"list",
		"has_more":false,"data":[{"id":"t1","name":"Newsletter","subscription":"opt_in"}]}`},

	"/contacts?limit=100&segment_id=78261eea": {Page: docs + "contacts/list-contacts", Body: `{"object":"list",
		"has_more":true,"data":[{"id":"c1","email":"steve.wozniak@gmail.com","unsubscribed":false}]}`},
	"/contacts?after=c1&limit=100&segment_id=78261eea": {Page: docs + "contacts/list-contacts", Body: `{"object":"list",
		"has_more":false,"data":[{"id":"c3","email":"ann@example.com","unsubscribed":true}]}`},
	"/contacts?limit=100&segment_id=b6d24b8e": {Page: docs + "contacts/list-contacts", Body: `{"object":"list",
		"has_more":false,"data":[]}`},

	"/webhooks?limit=100": {Page: docs + "webhooks/list-webhooks", Body: `{"object":"list","has_more":false,"data":[
		{"id":"w1","endpoint":"https://webhook.example.com/handler"},{"id":"w2"}]}`},
	"/webhooks/w1": {Page: docs + "webhooks/get-webhook", Body: `{"object":"webhook","id":"w1","status":"enabled",
		"endpoint":"https://webhook.example.com/handler","events":["email.sent"],"signing_secret":"whsec_xxxxxxxxxx"}`},
	"/webhooks/w2": {Page: docs + "webhooks/get-webhook", Body: `{"object":"webhook","id":"w2","status":"disabled",
		"endpoint":"https://all.example.com/","events":null}`},
}

func TestSource(t *testing.T) {
	t.Parallel()
	header := resend.Header("re_123")
	url := fixture.API{Name: "Resend", Header: header, Answers: answers}.Serve(t)
	got := fixture.Read(t, resend.New(fixture.Client(t, url, "Resend", header)))
	all := got[importfrom.Webhooks].Webhooks
	if len(all) != 2 || len(all[1].Events) != 19 || all[1].Note == "" {
		t.Errorf("the webhook for all events is %+v", all)
	} else {
		all[1] = importfrom.Webhook{URL: all[1].URL}
	}
	want := map[importfrom.Kind]importfrom.Page{
		importfrom.Domains: {Domains: []importfrom.Domain{{Name: "mail.example.com", Region: "eu-west-1",
			ReturnPath: "bounce", TrackingSubdomain: "links", OpenTracking: true, Sending: true}}},
		importfrom.Properties: {Properties: []importfrom.Property{
			{Key: "company_name", Type: scalar.String, Fallback: scalar.OfText("Acme Corp")},
			{Key: "age", Type: scalar.Number}}},
		importfrom.Segments: {Segments: []importfrom.Segment{{ID: "78261eea", Name: "Registered Users"},
			{ID: "b6d24b8e", Name: "Active",
				Note: "it has a filter there; here, it has the contacts that are in it now, and no filter"}}},
		importfrom.Topics: {Topics: []importfrom.Topic{{ID: "t1", Name: "Newsletter", Description: "Weekly",
			Default: contacts.OptIn, Public: true}}},
		importfrom.Templates: {Templates: []importfrom.Template{
			{ID: "e169aa45", Name: "reset-password", Alias: "reset", From: "John Doe <john@example.com>", Subject: "Hello {{{NAME}}}",
				HTML: "<h1>{{{NAME}}}</h1>", Text: new("{{{NAME}}}"), Published: true,
				Variables: []importfrom.Variable{{Key: "NAME", Type: scalar.String, Fallback: scalar.OfText("friend")}}},
			{ID: "b7f9c2e1", Name: "receipt", HTML: "{{{PAID}}}", ReplyTo: []string{"help@example.com"},
				Note: "it is a draft: only the version that is not published there can be read; booleans are strings here: PAID",
				Variables: []importfrom.Variable{{Key: "PAID", Type: scalar.String, Fallback: scalar.OfText("true")},
					{Key: "SUM", Type: scalar.Number, Fallback: scalar.OfNumber(9.5)}}}},
			Refused: []importfrom.Refused{{Name: "order",
				Reason: "its variable ITEMS is of the type list, which templates do not have here"}}},
		importfrom.Suppressions: {Suppressions: []importfrom.Suppression{{Address: "steve@example.com",
			Origin: suppressions.Complaint}}},
		importfrom.Contacts: {Contacts: []importfrom.Contact{
			{Address: "steve.wozniak@gmail.com", FirstName: "Steve", LastName: "Wozniak",
				Values: map[string]scalar.Value{"company_name": scalar.OfText("Apple"), "age": scalar.OfNumber(74)},
				Topics: []importfrom.Choice{{TopicID: "t1", Subscription: contacts.OptOut}}},
			{Address: "ann@example.com", Unsubscribed: true,
				Topics: []importfrom.Choice{{TopicID: "t1", Subscription: contacts.OptIn, Effective: true}}}},
			Notes: []string{"Contacts that were deleted there during the import are left out, unless they were unsubscribed."}},
		importfrom.Members: {Contacts: []importfrom.Contact{
			{Address: "steve.wozniak@gmail.com", Segments: []string{"78261eea"}},
			{Address: "ann@example.com", Unsubscribed: true, Segments: []string{"78261eea"}}}},
		importfrom.Webhooks: {Webhooks: []importfrom.Webhook{
			{URL: "https://webhook.example.com/handler", Events: []string{"email.sent"}}, {URL: "https://all.example.com/"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An account without access to suppressions is imported without them, and the report says so.
func TestNoSuppressions(t *testing.T) {
	t.Parallel()
	url := fixture.API{Name: "Resend", Answers: map[string]fixture.Answer{"/suppressions?limit=100": {
		Page: docs + "errors", Status: 403, Body: `{"statusCode":403,"message":"Not enabled"}`}}}.Serve(t)
	s := resend.New(fixture.Client(t, url, "Resend", resend.Header("re_123")))
	p, err := s.Page(t.Context(), importfrom.Suppressions, "")
	if err != nil || len(p.Notes) != 1 || p.Next != "" {
		t.Errorf("%+v, %v", p, err)
	}
}

// page serves some answers, and reads the first page of a kind.
func page(t *testing.T, kind importfrom.Kind, answers map[string]string) (importfrom.Page, error) {
	t.Helper()
	api := fixture.API{Name: "Resend", Answers: map[string]fixture.Answer{}}
	for address, body := range answers {
		a := fixture.Answer{Page: docs + "introduction", Body: body}
		if body == "" {
			a.Body, a.Status = `{"message":"Not found"}`, 404
		}
		api.Answers[address] = a
	}
	return resend.New(fixture.Client(t, api.Serve(t), "Resend", nil)).Page(t.Context(), kind, "")
}

const none = `{"data":[],"has_more":false}`

// A list that repeats a page, or that breaks off although there is more, is an error.
func TestBrokenLists(t *testing.T) {
	t.Parallel()
	const again = `{"data":[{"id":"x","key":"a","name":"a"}],"has_more":true}`
	for name, c := range map[string]struct {
		kind    importfrom.Kind
		answers map[string]string
	}{
		"properties": {importfrom.Contacts, map[string]string{"/contact-properties?limit=100": again,
			"/contact-properties?after=x&limit=100": again}},
		"topics": {importfrom.Contacts, map[string]string{"/contact-properties?limit=100": none,
			"/topics?limit=100": again, "/topics?after=x&limit=100": again}},
		"segments": {importfrom.Members, map[string]string{"/segments?limit=100": again,
			"/segments?after=x&limit=100": again}},
		"subscriptions": {importfrom.Contacts, map[string]string{"/contact-properties?limit=100": none,
			"/topics?limit=100": `{"data":[{"id":"t"}]}`, "/contacts?limit=100": `{"data":[{"id":"c"}]}`,
			"/contacts/c/topics?limit=100": again, "/contacts/c/topics?after=x&limit=100": again}},
		"no items": {importfrom.Suppressions, map[string]string{"/suppressions?limit=100": `{"data":[],"has_more":true}`}},
		"no id": {importfrom.Suppressions, map[string]string{
			"/suppressions?limit=100": `{"data":[{"email":"a@example.net"}],"has_more":true}`}},
	} {
		if p, err := page(t, c.kind, c.answers); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Data that the documentation does not describe never makes a recipient mailable: an address with an unknown origin is
// suppressed, an unknown subscription is an opt-out, and an unsubscribed contact stays if its details are missing.
func TestUnknownValues(t *testing.T) {
	t.Parallel()
	p, err := page(t, importfrom.Suppressions, map[string]string{
		"/suppressions?limit=100": `{"data":[{"id":"s","email":"a@example.net","origin":"unsubscribe"}]}`})
	if err != nil || len(p.Suppressions) != 1 || p.Suppressions[0].Origin != suppressions.Manual {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = page(t, importfrom.Contacts, map[string]string{"/contact-properties?limit=100": none,
		"/topics?limit=100": `{"data":[{"id":"t","default_subscription":"opt_in"}]}`,
		"/contacts?limit=100": `{"data":[{"id":"1","email":"a@example.net"},
			{"id":"2","email":"b@example.net","unsubscribed":true},{"id":"3","email":"c@example.net"}]}`,
		"/contacts/1/topics?limit=100": `{"data":[{"id":"t","subscription":"sometimes"}]}`,
		"/contacts/2/topics?limit=100": "", "/contacts/3/topics?limit=100": ""})
	want := importfrom.Page{Contacts: []importfrom.Contact{
		{Address: "a@example.net", Topics: []importfrom.Choice{{TopicID: "t", Subscription: contacts.OptOut}}},
		{Address: "b@example.net", Unsubscribed: true}},
		Notes: []string{"Contacts that were deleted there during the import are left out, unless they were unsubscribed."}}
	if diff := cmp.Diff(want, p); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}
