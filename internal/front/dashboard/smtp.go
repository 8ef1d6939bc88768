package dashboard

import (
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
		return "TLS from the first byte (often called SSL/TLS)"
	case p.Clear:
		return "Optional, because this node is for development; with STARTTLS if your program asks for it"
	}
	return "STARTTLS, required before the password is sent"
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
	return c.show(http.StatusOK, smtpPage, data, web.Crumbs("Settings", "/app/settings", "SMTP"), web.Class("form"))
}

// smtpSnippets returns examples that send an email by SMTP. The password is read from the environment. In development,
// the server has a self-signed certificate, which clients refuse by default; these examples do not verify it.
func smtpSnippets(p SubmissionPort, from, to string) []snippet {
	curl, node, dsn, rails := "curl smtp://HOST:PORT --ssl-reqd ", "requireTLS: true", "smtp://", "enable_starttls: true"
	suffix := ""
	switch {
	case p.Implicit:
		curl, node, dsn, rails = "curl smtps://HOST:PORT ", "secure: true", "smtps://", "tls: true"
	case p.Clear:
		curl, node, suffix = "curl smtp://HOST:PORT ", "ignoreTLS: true", "?verify_peer=0"
		rails += `, openssl_verify_mode: "none"`
	}
	r := strings.NewReplacer("HOST", p.Host, "PORT", p.Port, "FROM", from, "RECIPIENT", to)
	all := []snippet{
		{"curl", "curl", "terminal", curl + `--user "postrider:$POSTRIDER_API_KEY" \
  --mail-from FROM --mail-rcpt RECIPIENT \
  -H 'From: FROM' -H 'To: RECIPIENT' -H 'Subject: Hello' -F '=It works.;type=text/plain'`},
		{"node", "Node.js", "send.mjs (npm install nodemailer)", `import nodemailer from 'nodemailer';

const transport = nodemailer.createTransport({
  host: 'HOST', port: PORT, ` + node + `,
  auth: {user: 'postrider', pass: process.env.POSTRIDER_API_KEY},
});
await transport.sendMail({
  from: 'FROM', to: 'RECIPIENT', subject: 'Hello', text: 'It works.',
});`},
		{"python", "Python", "send.py", pythonSMTP(p)},
		{"go", "Go", "main.go", goSMTP(p)},
		{"php", "PHP", ".env of Symfony (composer require symfony/mailer)",
			"MAILER_DSN=" + dsn + "postrider:${POSTRIDER_API_KEY}@HOST:PORT" + suffix},
		{"ruby", "Ruby", "config/environments/production.rb", `config.action_mailer.smtp_settings = {
  address: "HOST", port: PORT, user_name: "postrider",
  password: ENV["POSTRIDER_API_KEY"], authentication: :plain,
  ` + rails + `,
}`},
	}
	for i := range all {
		all[i].ID = "smtp-" + all[i].ID
		all[i].Text = r.Replace(all[i].Text)
	}
	return all
}

func pythonSMTP(p SubmissionPort) string {
	kind, start := "SMTP", "\n    s.starttls(context=ssl.create_default_context())"
	imports := "import os, smtplib, ssl"
	switch {
	case p.Implicit:
		kind, start, imports = "SMTP_SSL", "", "import os, smtplib"
	case p.Clear:
		start, imports = "", "import os, smtplib"
	}
	return imports + `
from email.message import EmailMessage

m = EmailMessage()
m["From"], m["To"], m["Subject"] = "FROM", "RECIPIENT", "Hello"
m.set_content("It works.")
with smtplib.` + kind + `("HOST", PORT) as s:` + start + `
    s.login("postrider", os.environ["POSTRIDER_API_KEY"])
    s.send_message(m)`
}

// goSMTP returns a whole program. smtp.SendMail fits only ports with STARTTLS and a valid certificate.
func goSMTP(p SubmissionPort) string {
	const auth = `	auth := smtp.PlainAuth("", "postrider", os.Getenv("POSTRIDER_API_KEY"), "HOST")
`
	const message = `"From: FROM\r\nTo: RECIPIENT\r\nSubject: Hello\r\n\r\nIt works.\r\n"`
	if !p.Implicit && !p.Clear {
		return `package main

import (
	"log"
	"net/smtp"
	"os"
)

func main() {
` + auth + `	err := smtp.SendMail("HOST:PORT", auth, "FROM", []string{"RECIPIENT"},
		[]byte(` + message + `))
	if err != nil {
		log.Fatal(err)
	}
}`
	}
	imports, dial := "", `	c, err := smtp.Dial("HOST:PORT")
	if err != nil {
		log.Fatal(err)
	}
`
	if p.Implicit {
		imports, dial = "\t\"crypto/tls\"\n", `	conn, err := tls.Dial("tcp", "HOST:PORT", nil)
	if err != nil {
		log.Fatal(err)
	}
	c, err := smtp.NewClient(conn, "HOST")
	if err != nil {
		log.Fatal(err)
	}
`
	}
	return `package main

import (
` + imports + `	"errors"
	"io"
	"log"
	"net/smtp"
	"os"
)

func main() {
` + auth + dial + `	if err := errors.Join(c.Auth(auth), c.Mail("FROM"), c.Rcpt("RECIPIENT")); err != nil {
		log.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		log.Fatal(err)
	}
	_, err = io.WriteString(w, ` + message + `)
	if err := errors.Join(err, w.Close(), c.Quit()); err != nil {
		log.Fatal(err)
	}
}`
}
