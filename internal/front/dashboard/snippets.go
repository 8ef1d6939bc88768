package dashboard

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/page"
)

// snippet is an example that sends an email, in one language.
type snippet struct{ ID, Label, File, Text string }

// snippets returns the examples with the addresses of this installation and of the team. A key is shown only once, when
// it is created, so the examples have a placeholder with the name of the team's newest key.
func (c *call) snippets() ([]snippet, error) {
	key := "re_your_key"
	from, to, err := c.sample("")
	if err != nil {
		return nil, err
	}
	if c.actor.Scopes.Has(teams.KeysRead) {
		all, _, err := c.Teams.ListKeys(c.ctx(), c.team.TeamID, page.Page{Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(all) > 0 {
			key = "re_… (the key " + strings.Map(printable, all[0].Name) + ")"
		}
	}
	return snippetsFor(c.PublicURL, c.submissionAddress(), key, from, to), nil
}

// printable leaves out characters that would end a string in one of the languages.
func printable(r rune) rune {
	if r < ' ' || strings.ContainsRune("'\"`\\$", r) {
		return -1
	}
	return r
}

// snippetsFor returns the examples for the given values, which contain no quotes. The address for SMTP is host:port, or
// "" if the installation takes no emails by SMTP.
func snippetsFor(url, smtp, key, from, to string) []snippet {
	r := strings.NewReplacer("URL", strings.TrimSuffix(url, "/"), "KEY", key, "FROM", from, "RECIPIENT", to)
	all := []snippet{
		{"curl", "curl", "terminal", `curl URL/emails \
  -H 'Authorization: Bearer KEY' \
  -H 'Content-Type: application/json' \
  -d '{"from":"FROM","to":"RECIPIENT","subject":"Hello","html":"<p>It works.</p>"}'`},
		{"node", "Node.js", "send.mjs (npm install resend)", `import {Resend} from 'resend';

const resend = new Resend('KEY', {baseUrl: 'URL'});
const {data, error} = await resend.emails.send({
  from: 'FROM',
  to: 'RECIPIENT',
  subject: 'Hello',
  html: '<p>It works.</p>',
});
console.log(error ?? data.id);`},
		{"go", "Go", "main.go (go get github.com/resend/resend-go/v3)", `client := resend.NewClient("KEY")
client.BaseURL, _ = url.Parse("URL/")
sent, err := client.Emails.Send(&resend.SendEmailRequest{
	From:    "FROM",
	To:      []string{"RECIPIENT"},
	Subject: "Hello",
	Html:    "<p>It works.</p>",
})`},
		{"python", "Python", "send.py (pip install resend)", `import resend

resend.api_url = "URL"
resend.api_key = "KEY"
email = resend.Emails.send({
    "from": "FROM",
    "to": "RECIPIENT",
    "subject": "Hello",
    "html": "<p>It works.</p>",
})
print(email["id"])`},
		{"php", "PHP", "send.php (composer require resend/resend-php)", `putenv('RESEND_BASE_URL=URL');
$resend = Resend::client('KEY');
$email = $resend->emails->send([
  'from' => 'FROM',
  'to' => 'RECIPIENT',
  'subject' => 'Hello',
  'html' => '<p>It works.</p>',
]);
echo $email->id;`},
		{"ruby", "Ruby", "send.rb (gem install resend)", `require "resend"

ENV["RESEND_BASE_URL"] = "URL"
Resend.api_key = "KEY"
email = Resend::Emails.send({
  from: "FROM",
  to: "RECIPIENT",
  subject: "Hello",
  html: "<p>It works.</p>",
})
puts email["id"]`},
	}
	if smtp != "" {
		all = append(all, snippet{"smtp", "SMTP", "settings of any program that sends mail", fmt.Sprintf(`Server    %s
Security  STARTTLS where the server offers it
User      postrider
Password  KEY
From      FROM`, smtp)})
	}
	for i := range all {
		all[i].Text = r.Replace(all[i].Text)
	}
	return all
}
