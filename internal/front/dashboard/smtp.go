package dashboard

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/front/web"
)

var smtpPage = pageOf("smtp.html")

// SubmissionPort is a port at which apps submit emails by SMTP.
type SubmissionPort struct {
	Host, Port string
	Implicit   bool // TLS from the first byte, and not STARTTLS
	Clear      bool // passwords are accepted without TLS, in development
}

// Security says how a program must connect.
func (p SubmissionPort) Security() string {
	switch {
	case p.Implicit:
		return "TLS (implicit)"
	case p.Clear:
		return "STARTTLS, or none on this machine"
	}
	return "STARTTLS"
}

// submissionAddress returns the address of the port that most programs support, or "" if the installation takes no
// emails by SMTP.
func (c *call) submissionAddress() string {
	for _, p := range c.Submission() {
		return p.Host + ":" + p.Port
	}
	return ""
}

// smtpView is the content of the page with the settings for SMTP.
type smtpView struct {
	base
	Ports    []SubmissionPort
	Snippets []snippet
}

func (c *call) smtp() error {
	data := smtpView{base: c.base(), Ports: c.Submission()}
	if len(data.Ports) > 0 {
		from, to, err := c.sample("")
		if err != nil {
			return err
		}
		data.Snippets = smtpSnippets(data.Ports[0], from, to)
	}
	return c.show(http.StatusOK, smtpPage, data, web.Crumbs("API keys", "/app/keys", "SMTP"), web.Class("form"))
}

// smtpSnippets returns examples that send an email by SMTP. The password is read from the environment.
func smtpSnippets(p SubmissionPort, from, to string) []snippet {
	scheme, start, kind := "smtp", "true", "SMTP"
	if p.Implicit {
		scheme, start, kind = "smtps", "false", "SMTP_SSL"
	}
	ssl := "--ssl-reqd "
	if p.Implicit || p.Clear {
		ssl = ""
	}
	r := strings.NewReplacer("HOST", p.Host, "PORT", p.Port, "FROM", from, "RECIPIENT", to, "SCHEME", scheme,
		"STARTTLS", start, "SECURE", fmt.Sprint(p.Implicit), "SMTP_KIND", kind, "SSL", ssl)
	all := []snippet{
		{"curl", "curl", "terminal", `curl SCHEME://HOST:PORT SSL--user "postrider:$POSTRIDER_API_KEY" \
  --mail-from FROM --mail-rcpt RECIPIENT \
  -H 'From: FROM' -H 'To: RECIPIENT' -H 'Subject: Hello' -F '=It works.;type=text/plain'`},
		{"node", "Node.js", "send.mjs (npm install nodemailer)", `import nodemailer from 'nodemailer';

const transport = nodemailer.createTransport({
  host: 'HOST', port: PORT, secure: SECURE,
  auth: {user: 'postrider', pass: process.env.POSTRIDER_API_KEY},
});
await transport.sendMail({
  from: 'FROM', to: 'RECIPIENT', subject: 'Hello', text: 'It works.',
});`},
		{"python", "Python", "send.py", pythonSMTP(p)},
		{"go", "Go", "main.go", `auth := smtp.PlainAuth("", "postrider", os.Getenv("POSTRIDER_API_KEY"), "HOST")
err := smtp.SendMail("HOST:PORT", auth, "FROM", []string{"RECIPIENT"},
	[]byte("From: FROM\r\nTo: RECIPIENT\r\nSubject: Hello\r\n\r\nIt works.\r\n"))`},
		{"php", "PHP", ".env of Laravel or Symfony", `MAILER_DSN=SCHEME://postrider:${POSTRIDER_API_KEY}@HOST:PORT`},
		{"ruby", "Ruby", "config/environments/production.rb", `config.action_mailer.smtp_settings = {
  address: "HOST", port: PORT, user_name: "postrider",
  password: ENV["POSTRIDER_API_KEY"], authentication: :plain,
  enable_starttls: STARTTLS, tls: SECURE,
}`},
	}
	for i := range all {
		all[i].ID = "smtp-" + all[i].ID
		all[i].Text = r.Replace(all[i].Text)
	}
	return all
}

func pythonSMTP(p SubmissionPort) string {
	start := "\n    s.starttls()"
	if p.Implicit {
		start = ""
	}
	return `import os, smtplib
from email.message import EmailMessage

m = EmailMessage()
m["From"], m["To"], m["Subject"] = "FROM", "RECIPIENT", "Hello"
m.set_content("It works.")
with smtplib.SMTP_KIND("HOST", PORT) as s:` + start + `
    s.login("postrider", os.environ["POSTRIDER_API_KEY"])
    s.send_message(m)`
}
