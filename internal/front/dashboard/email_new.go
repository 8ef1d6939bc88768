package dashboard

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

var newEmailPage = pageOf("email_new.html")

// newEmail is the content of the page that sends a single email.
type newEmail struct {
	base
	Form *web.Form
	Once string // see [call.once]
}

const testHTML = "<h1>It works</h1>\n<p>This email was sent from the dashboard.</p>"

// senderDomain returns the newest of the team's domains that may send, or "" if none may.
func (c *call) senderDomain() (string, error) {
	all, _, err := c.Domains.List(c.ctx(), c.team.TeamID, page.Page{Limit: choicesShown})
	for i := range all {
		if all[i].MaySend() {
			return all[i].Name, err
		}
	}
	return "", err
}

// mailbox returns an address with a display name. The name is quoted if it has characters that would end it. It is not
// encoded, because people read it in a form.
func mailbox(name, address string) string {
	if strings.ContainsAny(name, `()<>[]:;@\,."`) || strings.Contains(name, "=?") {
		name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
	}
	return name + " <" + address + ">"
}

// newEmailForm returns the form.
func (c *call) newEmailForm() (*web.Form, error) {
	from := ""
	domain, err := c.senderDomain()
	if err != nil {
		return nil, err
	}
	if domain != "" {
		from = mailbox(c.team.TeamName, "hello@"+domain)
	}
	return web.NewForm(
		&web.Field{Name: "from", Label: "From", Value: from, Hint: "An address at a verified domain of the team."},
		&web.Field{Name: "to", Label: "To", Value: c.v.User.Email, Max: 2000,
			Hint: "Up to 50 addresses, separated by commas."},
		&web.Field{Name: "subject", Label: "Subject", Value: "Test from " + c.team.TeamName, Max: 998},
		&web.Field{Name: "html", Label: "HTML", Type: "textarea", Value: testHTML, Max: 50000, Optional: true},
		&web.Field{Name: "text", Label: "Text", Type: "textarea", Max: 50000, Optional: true,
			Hint: "If it is empty, the text is made from the HTML."},
		&web.Field{Name: "scheduled_at", Label: "Send at", Optional: true, Max: 100,
			Hint: "Such as “in 2 hours” or 2027-01-31T09:00:00Z. Empty: now."}), nil
}

// showNewEmail shows the form, with the values of an earlier email if the address names one.
func (c *call) showNewEmail() error {
	form, err := c.newEmailForm()
	if err != nil {
		return err
	}
	if again := c.r.URL.Query().Get("again"); again != "" {
		if err := c.fillAgain(form, validID(again)); err != nil {
			return err
		}
	}
	return c.newEmailPage(http.StatusOK, form)
}

// againMost is the maximum size, in bytes, of the text and HTML of an earlier email that the form repeats.
const againMost = 48 << 10

// fillAgain fills the form with the values of an earlier email, and says above the form what it leaves out.
func (c *call) fillAgain(form *web.Form, emailID string) error {
	e, size, err := c.Emails.GetWithin(c.ctx(), c.team.TeamID, emailID, againMost)
	if err != nil {
		return err
	}
	files, _, err := c.Emails.Attachments(c.ctx(), c.team.TeamID, e.ID, page.Page{Limit: 1})
	if err != nil {
		return err
	}
	values := map[string]string{"from": e.From, "to": strings.Join(e.To, ", "), "subject": e.Subject, "html": "",
		"text": ""}
	if e.HTML != nil {
		values["html"] = *e.HTML
	}
	if e.Text != nil {
		values["text"] = *e.Text
	}
	for _, f := range form.Fields {
		if v, ok := values[f.Name]; ok {
			f.Value = v
		}
	}
	var without []string
	for _, x := range []struct {
		what string
		has  bool
	}{{"the recipients of copies", len(e.Cc)+len(e.Bcc) > 0}, {"the address for replies", len(e.ReplyTo) > 0},
		{"the attachments", len(files) > 0},
		{"the text and the HTML, which are too large for this form", size > againMost}} {
		if x.has {
			without = append(without, x.what)
		}
	}
	if len(without) > 0 {
		form.Problem = "This form leaves out " + and(without) + " of the earlier email."
	}
	return nil
}

func (c *call) newEmailPage(status int, form *web.Form) error {
	return c.show(status, newEmailPage, newEmail{c.base(), form, c.once()},
		web.Crumbs("Emails", "/app/emails", "New email"), web.Class("form"))
}

func (c *call) sendNewEmail() error {
	form, err := c.newEmailForm()
	if err != nil {
		return err
	}
	form.Fill(c.form)
	in := emails.Send{From: c.form.Get("from"), Subject: c.form.Get("subject"), ScheduledAt: c.form.Get("scheduled_at")}
	in.To = splitAddresses(c.form.Get("to"))
	if html := c.form.Get("html"); html != "" {
		in.HTML = &html
	}
	if text := c.form.Get("text"); text != "" {
		in.Text = &text
	}
	id, err := c.Emails.Send(c.ctx(), c.actor, in, c.idempotency())
	if err != nil {
		status, ours := form.SetError(err)
		if ours != nil || fault.KindOf(err) == fault.Unavailable {
			return err
		}
		return c.newEmailPage(status, form)
	}
	return c.redirect(emailPath(id), "The email is accepted.")
}

// splitAddresses splits a list of mailboxes at commas that are not within quotes.
func splitAddresses(text string) (all []string) {
	quoted, begin := false, 0
	cut := func(end int) {
		if one := strings.TrimSpace(text[begin:end]); one != "" {
			all = append(all, one)
		}
		begin = end + 1
	}
	for i := range len(text) {
		switch text[i] {
		case '"':
			quoted = !quoted
		case ',', '\n', ';':
			if !quoted {
				cut(i)
			}
		}
	}
	cut(len(text))
	return all
}
