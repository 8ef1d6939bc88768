package postmark_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
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
			{ID: "1234", Name: "Account Activation", Alias: "activation", Subject: "Hi there, {{{Name}}}",
				HTML: "Hello {{{escape Name}}} {{{POSTRIDER_UNSUBSCRIBE_URL}}}", Text: new("{{{Name}}} is a {{{Occupation}}}"),
				Note: note, Variables: []importfrom.Variable{variable("Name"), variable("Occupation")}},
			{ID: "5678", Name: "Password Recovery", Subject: "Reset", HTML: "<html><p>{{{link}}}</p></html>", Note: note,
				Variables: []importfrom.Variable{variable("link")}}},
			Refused: []importfrom.Refused{{Name: "List",
				Reason: "it uses {{#each items}}, which templates do not have here"}}},
		importfrom.Suppressions: {Suppressions: []importfrom.Suppression{
			{Address: "spam.complaint.address@wildbit.com", Origin: suppressions.Complaint},
			{Address: "address@wildbit.com", Origin: suppressions.Manual},
			{Address: "bounce.address@wildbit.com", Origin: suppressions.Bounce}}},
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

// source returns a source whose server answers by path and offset. An answer of "" is 404.
func source(t *testing.T, answer func(path string, offset int) string) *postmark.Source {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offset, _ := strconv.Atoi(r.FormValue("offset"))
		if text := answer(r.URL.Path, offset); text != "" {
			io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(api.Close)
	c := fixture.Client(t, api.URL, "Postmark", nil)
	return postmark.New(c, c)
}

// readAll reads all pages of a kind, at most 2,000.
func readAll(t *testing.T, s *postmark.Source, kind importfrom.Kind, cursor string) (all []importfrom.Page, err error) {
	t.Helper()
	for range 2000 {
		p, err := s.Page(t.Context(), kind, cursor)
		if err != nil {
			return all, err
		}
		all = append(all, p)
		if cursor = p.Next; cursor == "" {
			return all, nil
		}
	}
	t.Fatalf("%s: the list does not end", kind)
	return nil, nil
}

// templateList returns a page of a list of templates with ids from a to b.
func templateList(total, a, b int) string {
	var all []string
	for id := a; id <= b; id++ {
		all = append(all, fmt.Sprintf(`{"TemplateId":%d,"Name":"T%d"}`, id, id))
	}
	return fmt.Sprintf(`{"TotalCount":%d,"Templates":[%s]}`, total, strings.Join(all, ","))
}

// A list of templates ends, although the server ignores offsets, and is complete, although the total is wrong or a
// template is deleted meanwhile. A page that is larger than asked for is an error.
func TestHostileLists(t *testing.T) {
	t.Parallel()
	const one = `{"TemplateId":1,"Name":"T","Subject":"x","HtmlBody":"x"}`
	for _, c := range []struct {
		name string
		list func(offset, request int) string
		want int // number of templates, or -1
		err  string
	}{
		{"no offsets", func(int, int) string { return templateList(300, 1, 100) }, -1, "changes faster"},
		{"a total that is too small", func(o, _ int) string { return templateList(1, o+1, min(o+100, 250)) }, 250, ""},
		{"a total that is too large", func(o, _ int) string { return templateList(1<<40, o+1, min(o+100, 250)) }, 250, ""},
		{"a deleted template", func(o, request int) string {
			if request > 0 {
				o++
			}
			return templateList(250, o+1, min(o+100, 250))
		}, 250, ""},
		{"a huge page", func(int, int) string { return templateList(200_000, 1, 200_000) }, -1, "although 100 were asked for"},
		{"no list", func(int, int) string { return `{"TotalCount":3}` }, -1, "has no list"},
		{"null", func(int, int) string { return `null` }, -1, "has no list"},
		{"another type", func(int, int) string { return `{"TotalCount":"3","Templates":[]}` }, -1, "is not the JSON"},
		{"an array", func(int, int) string { return `[]` }, -1, "is not the JSON"},
	} {
		request := -1
		s := source(t, func(path string, offset int) string {
			if path != "/templates" {
				return one
			}
			request++
			return c.list(offset, request)
		})
		pages, err := readAll(t, s, importfrom.Templates, "")
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v", c.name, err)
		}
		ids := map[string]bool{}
		for _, p := range pages {
			for _, x := range p.Templates {
				ids[x.ID] = true
			}
		}
		if c.want >= 0 && len(ids) != c.want {
			t.Errorf("%s: %d templates", c.name, len(ids))
		}
	}
}

// A template or domain that cannot be read is refused, and the others are imported. A layout that repeats its place
// cannot fill the memory.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/templates": templateList(6, 1, 6),
		// Template 1 and the layout "gone" are answered with 404.
		"/templates/2":    `{"Name":5,"HtmlBody":"x"}`,
		"/templates/3":    `{"Name":"T3","HtmlBody":"x","LayoutTemplate":"bomb"}`,
		"/templates/4":    `{"Name":"T4","HtmlBody":"x","LayoutTemplate":"gone"}`,
		"/templates/5":    `{"Name":"T5","HtmlBody":"` + strings.Repeat("x", 1<<20) + `","LayoutTemplate":"bomb"}`,
		"/templates/6":    `{"Name":"T6","HtmlBody":"` + strings.Repeat("x", 5<<20) + `"}`,
		"/templates/bomb": `{"HtmlBody":"` + strings.Repeat("{{{@content}}}", 100_000) + `"}`,
		"/domains":        `{"TotalCount":2,"Domains":[{"ID":1,"Name":"a.example"},{"ID":2,"Name":"b.example"}]}`,
		"/domains/2":      `{"ReturnPathDomain":"pm.b.example"}`,
	}
	s := source(t, func(path string, _ int) string { return answers[path] })
	pages, err := readAll(t, s, importfrom.Templates, "")
	if err != nil || len(pages) != 1 || len(pages[0].Templates) != 1 || pages[0].Templates[0].Name != "T3" {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for i, want := range []string{"with 404", "is not the JSON", "layout cannot be read", "MB of text", "MB of text"} {
		if i >= len(pages[0].Refused) || !strings.Contains(pages[0].Refused[i].Reason, want) {
			t.Errorf("refused: %+v, not %s", pages[0].Refused, want)
		}
	}
	pages, err = readAll(t, s, importfrom.Domains, "")
	if err != nil || len(pages[0].Domains) != 1 || pages[0].Domains[0].ReturnPath != "pm" || len(pages[0].Refused) != 1 {
		t.Errorf("domains: %+v, %v", pages, err)
	}
}

// A response without webhooks is an error, and one with strange webhooks is not.
func TestHostileWebhooks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{`{}`: -1, `null`: -1, `{"Webhooks":{}}`: -1, `{"Webhooks":[]}`: 0,
		`{"Webhooks":[{},{"Url":"","Triggers":null},{"Url":"https://a.example","Triggers":{"Open":{}}}]}`: 3} {
		p, err := source(t, func(string, int) string { return text }).Page(t.Context(), importfrom.Webhooks, "")
		if want < 0 && err == nil || want >= 0 && (err != nil || len(p.Refused) != want) {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
}

// Entries of another form are counted, and do not end the import. A response without the list is an error.
func TestHostileDumps(t *testing.T) {
	t.Parallel()
	const streams = `{"MessageStreams":[{"ID":"news","MessageStreamType":"Broadcasts"},
		{"ID":"news","MessageStreamType":"Broadcasts"}]}`
	for _, c := range []struct {
		streams, dump string
		suppressions  int
		refused, err  string
	}{
		{streams, `{"Suppressions":[` + strings.Repeat(`{},`, 1_000_000) + `5,[],null,{"EmailAddress":7},
			{"EmailAddress":"a@example.net","SuppressionReason":"HardBounce"},{"EmailAddress":"b@example.net",
			"SuppressionReason":9}]}`, 2, "1000004 suppressions", ""},
		{streams, `{"Suppressions":[]}`, 0, "", ""},
		{streams, `{}`, 0, "", "no list Suppressions"},
		{streams, `null`, 0, "", "no list Suppressions"},
		{streams, `{"Suppressions":null}`, 0, "", "no list Suppressions"},
		{streams, `{"Suppressions":{"EmailAddress":"a@example.net"}}`, 0, "", "no list Suppressions"},
		{`{}`, ``, 0, "", "no list MessageStreams"},
		{`{"MessageStreams":[]}`, ``, 0, "", ""},
		{`{"MessageStreams":[` + strings.Repeat(`{},`, 1_000_000) + `{}]}`, ``, 0, "", "1000001 message streams"},
	} {
		s := source(t, func(path string, _ int) string {
			if path == "/message-streams" {
				return c.streams
			}
			return c.dump
		})
		pages, err := readAll(t, s, importfrom.Suppressions, "")
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.40s: %v", c.dump, err)
			}
			continue
		}
		if err != nil || len(pages) != 1 || len(pages[0].Suppressions) != c.suppressions {
			t.Errorf("%.40s: %d pages, %v", c.dump, len(pages), err)
			continue
		}
		if c.refused != "" && (len(pages[0].Refused) != 1 || !strings.HasPrefix(pages[0].Refused[0].Reason, c.refused)) {
			t.Errorf("%.40s: %+v", c.dump, pages[0].Refused)
		}
	}
}

// An import that continues after a stream was added or deleted at Postmark misses no suppression.
func TestContinuesWithOtherStreams(t *testing.T) {
	t.Parallel()
	of := func(ids ...string) *postmark.Source {
		var all []string
		for _, id := range ids {
			all = append(all, `{"ID":"`+id+`","MessageStreamType":"Broadcasts"}`)
		}
		return source(t, func(path string, _ int) string {
			if path == "/message-streams" {
				return `{"MessageStreams":[` + strings.Join(all, ",") + `]}`
			}
			return `{"Suppressions":[{"EmailAddress":"left@` + strings.Split(path, "/")[2] + `.example",
				"SuppressionReason":"ManualSuppression"}]}`
		})
	}
	for name, after := range map[string][]string{"one is deleted": {"b", "c"}, "one is added": {"b", "a", "_", "c"},
		"the next is deleted": {"a", "c"}} {
		first, err := of("b", "c", "a").Page(t.Context(), importfrom.Contacts, "")
		if err != nil {
			t.Fatal(err)
		}
		pages, err := readAll(t, of(after...), importfrom.Contacts, first.Next)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range after {
			has := func(p importfrom.Page) bool {
				return len(p.Contacts) == 1 && p.Contacts[0].Address == "left@"+id+".example"
			}
			if id != "_" && !slices.ContainsFunc(append(pages, first), has) {
				t.Errorf("%s: the unsubscribe of %s is missing", name, id)
			}
		}
	}
}
