package samples

import (
	"flag"
	"go/format"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the printed examples into the files of testdata")

// difficult is an email with the characters that one of the languages treats specially.
const difficult = `{"from":"Acme <hello@acme.example>","to":["ada@example.net"],"subject":"It's \"now\" $x #{y} \\",
	"html":"<p>a</p>\n<p>b</p>","reply_to":"help@acme.example","headers":{"X-Entity-Ref-ID":"1"},
	"tags":[{"name":"kind","value":"test"},{"name":"shop","value":"eu"}],
	"template":{"id":"welcome","variables":{"first_name":"Ada","age":36}},"open":true,"none":null,"empty":[]}`

var requests = map[string]Request{
	"client": {Method: "POST", Path: "/emails", Body: []byte(difficult), Calls: map[string]string{
		"node": "resend.emails.send($body)", "go": "client.Emails.Send(&resend.SendEmailRequest$body)",
		"python": "resend.Emails.send($body)", "ruby": "Resend::Emails.send($body)", "php": "$resend->emails->send($body)",
		"cli": "resend emails send --from $.from --to $.to --subject $.subject --html $.html"}},
	"http": {Method: "PATCH", Path: "/emails/{email_id}", Params: map[string]string{"email_id": "1"}, Query: "a=b%20c",
		Header: "x-batch-validation: permissive", Body: []byte(difficult)},
	"get": {Method: "GET", Path: "/contacts/{contact}", Params: map[string]string{"contact": "ada+x@example.net"},
		Query: "limit=2"},
	"arguments": {Method: "PATCH", Path: "/domains/{domain_id}", Params: map[string]string{"domain_id": "1"},
		Body: []byte(`{"tls":"enforced","open_tracking":true}`), Calls: map[string]string{
			"node":   "resend.domains.update($body(id=domain_id))",
			"go":     "client.Domains.Update($domain_id, &resend.UpdateDomainRequest$body)",
			"python": "resend.Domains.update($body(id=domain_id))", "ruby": "Resend::Domains.update($body(id=domain_id))",
			"php": "$resend->domains->update($domain_id, $body)", "cli": "resend domains update $domain_id --tls $.tls"}},
	"create": {Method: "POST", Path: "/automations", GoClient: "Automations.Create",
		Body: []byte(`{"name":"Welcome","steps":[{"key":"start","type":"trigger","config":{"event_name":"user.created"}},
			{"key":"split","type":"split","config":{"branches":[{"name":"a","percent":50.5},{"name":"b","percent":49.5}]}}],
			"connections":[{"from":"start","to":"split"}]}`)},
	"change": {Method: "PATCH", Path: "/contacts/{contact}", Params: map[string]string{"contact": "ada@example.net"},
		GoClient: "Contacts.Update", Body: []byte(`{"first_name":"Augusta \"Ada\"","last_name":null,"unsubscribed":false,
			"properties":{"plan":"team","seats":5,"vip":true}}`)},
	"export": {Method: "GET", Path: "/emails/export", Query: "format=ndjson&subject=4711", GoClient: "Emails.Export"},
	"download": {Method: "GET", Path: "/contacts/imports/{import_id}/failures",
		Params: map[string]string{"import_id": "1"}, GoClient: "Contacts.ImportFailures"},
}

// The printed examples are those in testdata, and Go code is formatted as gofmt formats it.
func TestPrint(t *testing.T) {
	t.Parallel()
	for name, r := range requests {
		all, err := Print(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var b strings.Builder
		for _, s := range all {
			b.WriteString("-- " + s.Language + " --\n" + s.Code + "\n")
			if s.Language != "go" {
				continue
			}
			formatted, err := format.Source([]byte(s.Code + "\n"))
			if diff := gocmp.Diff(string(formatted), s.Code+"\n"); err != nil || diff != "" {
				t.Errorf("%s: the Go code is not formatted: %v\n%s", name, err, diff)
			}
		}
		file := "testdata/" + name + ".txt"
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s, - and what was printed, +; run with -update to accept it:\n%s", file, diff)
		}
	}
}

// An example with an unknown placeholder, a body that is not JSON, or a value that the Go client cannot send is refused.
func TestPrintRefuses(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"parameter": {Method: "GET", Path: "/emails", Calls: map[string]string{"node": "resend.emails.get($email_id)"}},
		"field":     {Method: "GET", Path: "/emails", Calls: map[string]string{"cli": "resend emails get $.id"}},
		"body":      {Method: "POST", Path: "/emails", Body: []byte(`{"a":1} x`)},
		"query":     {Method: "GET", Path: "/emails", Query: "a=%zz"},
		"service":   {Method: "GET", Path: "/emails", GoClient: "Letters.List"},
		"method":    {Method: "GET", Path: "/emails", GoClient: "Emails.Burn"},
		"no query":  {Method: "GET", Path: "/usage", GoClient: "Usage.Get", Query: "limit=1"},
		"no body":   {Method: "GET", Path: "/usage", GoClient: "Usage.Get", Body: []byte(`{}`)},
		"no path":   {Method: "GET", Path: "/emails", GoClient: "Emails.Get"},
		"filter":    {Method: "GET", Path: "/emails", GoClient: "Emails.List", Query: "colour=red"},
		"type": {Method: "POST", Path: "/emails", GoClient: "Emails.Send",
			Body: []byte(`{"from":"a@acme.example","to":"ada@example.net"}`)},
	} {
		if all, err := Print(r); err == nil {
			t.Errorf("%s: printed %v", name, all)
		}
	}
}
