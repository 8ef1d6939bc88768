package postmark_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fixture"
	"github.com/postrider/postrider/internal/node/importfrom/postmark"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const docs = "https://postmarkapp.com/developer/api/"

var server = map[string]fixture.Answer{
	"/templates?TemplateType=Standard&count=100&offset=0": {Page: docs + "templates-api#list-templates",
		Body: `{"TotalCount":3,"Templates":[{"Active":true,"TemplateId":1234,"Name":"Account Activation","Alias":null,
		"TemplateType":"Standard","LayoutTemplate":null},{"Active":true,"TemplateId":5678,"Name":"Password Recovery",
		"Alias":"password.recovery","TemplateType":"Standard","LayoutTemplate":"my-layout"},
		{"Active":true,"TemplateId":9,"Name":"List","TemplateType":"Standard"}]}`},
	"/templates/1234": {Page: docs + "templates-api#get-template", Body: `{"Name":"Account Activation","TemplateId":1234,
		"Subject":"Hi there, {{Name}}","HtmlBody":"Hello {{Name}} {{{pm:unsubscribe}}}","TextBody":"{{Name}} is a {{Occupation}}",
		"AssociatedServerId":1,"Active":false,"Alias":"activation","TemplateType":"Standard","LayoutTemplate":null}`},
	"/templates/5678": {Page: docs + "templates-api#get-template", Body: `{"Name":"Password Recovery","TemplateId":5678,
		"Subject":"Reset","HtmlBody":"<p>{{{link}}}</p>","TextBody":null,"Alias":"password.recovery",
		"TemplateType":"Standard","LayoutTemplate":"my-layout"}`},
	"/templates/my-layout": {Page: docs + "templates-api#get-template", Body: `{"Name":"Layout","TemplateId":1,
		"HtmlBody":"<html>{{{ @content }}}</html>","TextBody":"{{{ @content }}}","TemplateType":"Layout"}`},
	"/templates/9": {Page: docs + "templates-api#get-template", Body: `{"Name":"List","TemplateId":9,"Subject":"x",
		"HtmlBody":"{{#each items}}x{{/each}}","TemplateType":"Standard"}`},
	"/message-streams?IncludeArchivedStreams=true&MessageStreamType=All": {
		Page: docs + "message-streams-api#list-message-streams", Body: `{"MessageStreams":[
		{"ID":"outbound","ServerID":1,"Name":"Transactional Stream","MessageStreamType":"Transactional"},
		{"ID":"inbound","ServerID":1,"Name":"Inbound Stream","MessageStreamType":"Inbound"},
		{"ID":"news","ServerID":1,"Name":"News","MessageStreamType":"Broadcasts"}],"TotalCount":3}`},
	"/message-streams/outbound/suppressions/dump": {Page: docs + "suppressions-api#suppression-dump",
		Body: `{"Suppressions":[{"EmailAddress":"address@wildbit.com","SuppressionReason":"ManualSuppression",
		"Origin":"Recipient","CreatedAt":"2019-12-10T08:58:33-05:00"},{"EmailAddress":"bounce.address@wildbit.com",
		"SuppressionReason":"HardBounce","Origin":"Recipient","CreatedAt":"2019-12-11T08:58:33-05:00"}]}`},
	"/message-streams/news/suppressions/dump": {Page: docs + "suppressions-api#suppression-dump",
		Body: `{"Suppressions":[{"EmailAddress":"left@wildbit.com","SuppressionReason":"ManualSuppression",
		"Origin":"Recipient"},{"EmailAddress":"spam.complaint.address@wildbit.com","SuppressionReason":"SpamComplaint",
		"Origin":"Recipient"}]}`},
	"/webhooks": {Page: docs + "webhooks-api#list-webhooks", Body: `{"Webhooks":[{"ID":1234567,
		"Url":"https://www.example.com/webhook-test-tracking","MessageStream":"outbound","HttpAuth":null,"HttpHeaders":[],
		"Triggers":{"Open":{"Enabled":true,"PostFirstOpenOnly":false},"Click":{"Enabled":false},"Delivery":{"Enabled":true},
		"Bounce":{"Enabled":false,"IncludeContent":false},"SpamComplaint":{"Enabled":false,"IncludeContent":false},
		"SubscriptionChange":{"Enabled":true}}},{"ID":2,"Url":"https://none.example","Triggers":{}}]}`},
}

var account = map[string]fixture.Answer{
	"/domains?count=100&offset=0": {Page: docs + "domains-api#list-domains", Body: `{"TotalCount":1,"Domains":[
		{"Name":"wildbit.com","SPFVerified":true,"DKIMVerified":true,"WeakDKIM":false,"ReturnPathDomainVerified":true,
		"ID":36735}]}`},
	"/domains/36735": {Page: docs + "domains-api#domain-details", Body: `{"Name":"wildbit.com",
		"ReturnPathDomain":"pm-bounces.wildbit.com","ReturnPathDomainVerified":true,"ID":36735}`},
}

func TestSource(t *testing.T) {
	t.Parallel()
	serverURL := fixture.API{Name: "Postmark", Header: postmark.Header("s"), Answers: server}.Serve(t)
	accountURL := fixture.API{Name: "Postmark", Header: postmark.AccountHeader("a"), Answers: account}.Serve(t)
	got := fixture.Read(t, postmark.New(fixture.Client(t, serverURL, "Postmark", postmark.Header("s")),
		fixture.Client(t, accountURL, "Postmark", postmark.AccountHeader("a"))))
	variable := func(key string) importfrom.Variable {
		return importfrom.Variable{Key: key, Type: scalar.String, Fallback: scalar.OfText("")}
	}
	const note = "its placeholders were translated: read it, and publish it"
	want := map[importfrom.Kind]importfrom.Page{
		importfrom.Domains: {Domains: []importfrom.Domain{{Name: "wildbit.com", ReturnPath: "pm-bounces", Sending: true}}},
		importfrom.Templates: {Templates: []importfrom.Template{
			{Name: "Account Activation", Alias: "activation", Subject: "Hi there, {{{Name}}}",
				HTML: "Hello {{{escape Name}}} {{{POSTRIDER_UNSUBSCRIBE_URL}}}", Text: new("{{{Name}}} is a {{{Occupation}}}"),
				Note: note, Variables: []importfrom.Variable{variable("Name"), variable("Occupation")}},
			{Name: "Password Recovery", Subject: "Reset", HTML: "<html><p>{{{link}}}</p></html>", Note: note,
				Variables: []importfrom.Variable{variable("link")}}},
			Refused: []importfrom.Refused{{Name: "List",
				Reason: "it uses {{#each items}}, which templates do not have here"}}},
		importfrom.Suppressions: {Suppressions: []importfrom.Suppression{
			{Address: "address@wildbit.com", Origin: suppressions.Manual},
			{Address: "bounce.address@wildbit.com", Origin: suppressions.Bounce},
			{Address: "spam.complaint.address@wildbit.com", Origin: suppressions.Complaint}}},
		importfrom.Contacts: {Contacts: []importfrom.Contact{{Address: "left@wildbit.com", Unsubscribed: true}}},
		importfrom.Webhooks: {Webhooks: []importfrom.Webhook{{URL: "https://www.example.com/webhook-test-tracking",
			Events: []string{"email.delivered", "email.opened", "suppression.added", "suppression.removed"},
			Note:   "its receiver must read the events of Postrider, which have another form"}},
			Refused: []importfrom.Refused{{Name: "https://none.example", Reason: "it receives no events"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, kind := range postmark.New(nil, nil).Kinds() {
		if kind == importfrom.Domains {
			t.Error("domains are read without a token of the account")
		}
	}
}
