package dashboard

import (
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
			key = placeholderFor(all[0].Name)
		}
	}
	return snippetsFor(c.PublicURL, c.submissionAddress(), key, from, to), nil
}

// placeholderFor returns the text in place of a key with this name. The text is ASCII, because clients send the key in
// a header: with other characters, they report an encoding error instead of the server's answer that the key is
// invalid. Quotes are left out, because they would end a string in one of the languages.
func placeholderFor(name string) string {
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("'\"`\\$", r) {
			return -1
		}
		return r
	}, name))
	if name == "" {
		return "re_your_key"
	}
	return "re_... (the key " + name + ")"
}

// snippetsFor returns the examples for the given values, which contain no quotes. Each example is a whole program. The
// address for SMTP is host:port, or "" if the installation takes no emails by SMTP.
func snippetsFor(url, smtp, key, from, to string) []snippet {
	r := strings.NewReplacer("<url>", strings.TrimSuffix(url, "/"), "<key>", key, "<from>", from, "<to>", to,
		"<smtp>", smtp)
	all := []snippet{
		{"curl", "curl", "terminal", `curl <url>/emails \
  -H 'Authorization: Bearer <key>' \
  -H 'Content-Type: application/json' \
  -d '{
    "from": "<from>",
    "to": "<to>",
    "subject": "Hello",
    "html": "<p>It works.</p>"
  }'`},
		{"node", "Node.js", "send.mjs (npm install resend)", `import {Resend} from 'resend';

const resend = new Resend('<key>', {baseUrl: '<url>'});
const {data, error} = await resend.emails.send({
  from: '<from>',
  to: '<to>',
  subject: 'Hello',
  html: '<p>It works.</p>',
});
console.log(error ?? data.id);`},
		{"go", "Go", "main.go (go get github.com/resend/resend-go/v3)", `package main

import (
	"fmt"
	"log"
	"net/url"

	"github.com/resend/resend-go/v3"
)

func main() {
	client := resend.NewClient("<key>")
	client.BaseURL, _ = url.Parse("<url>/")
	sent, err := client.Emails.Send(&resend.SendEmailRequest{
		From:    "<from>",
		To:      []string{"<to>"},
		Subject: "Hello",
		Html:    "<p>It works.</p>",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sent.Id)
}`},
		{"python", "Python", "send.py (pip install resend)", `import resend

resend.api_url = "<url>"
resend.api_key = "<key>"
email = resend.Emails.send({
    "from": "<from>",
    "to": "<to>",
    "subject": "Hello",
    "html": "<p>It works.</p>",
})
print(email["id"])`},
		{"php", "PHP", "send.php (composer require resend/resend-php)", `<?php

require 'vendor/autoload.php';

putenv('RESEND_BASE_URL=<url>');
$resend = Resend::client('<key>');
$email = $resend->emails->send([
  'from' => '<from>',
  'to' => '<to>',
  'subject' => 'Hello',
  'html' => '<p>It works.</p>',
]);
echo $email->id, PHP_EOL;`},
		{"ruby", "Ruby", "send.rb (gem install resend)", `# The gem reads this when it is loaded. The URL must end in a slash.
ENV["RESEND_BASE_URL"] = "<url>/"
require "resend"

Resend.api_key = "<key>"
email = Resend::Emails.send({
  from: "<from>",
  to: "<to>",
  subject: "Hello",
  html: "<p>It works.</p>",
})
puts email[:id]`},
	}
	if smtp != "" {
		all = append(all, snippet{"smtp", "SMTP", "settings of any program that sends mail", `Server    <smtp>
Security  STARTTLS if the server offers it
User      postrider
Password  <key>
From      <from>`})
	}
	for i := range all {
		all[i].Text = r.Replace(all[i].Text)
	}
	return all
}
