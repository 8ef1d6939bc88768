package dashboard

import (
	"html"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

var answerPage = pageOf("received_answer.html")

// answerView is the content of the pages that reply to a received email and forward it.
type answerView struct {
	base
	Once    string // see [call.once]
	Email   receiving.Email
	Form    *web.Form
	Forward bool
	Files   bool // whether the attachments are forwarded too
}

// Limits of an answer. A form has at most 64 KB, and each character of a form may take three bytes.
const (
	quotedMost     = 12 << 10 // bytes of the text that is quoted
	answerMost     = 18_000   // characters of the text of an answer
	forwardedMost  = 20 << 20 // bytes of all forwarded attachments
	referencesMost = 20       // Message-IDs in the References field
)

var errForwardLarge = fault.Invalidf("files",
	"The attachments have more than 20 MB together. Forward the email without them.")

// readReceived reads the email that is answered, and checks that the visitor may read it.
func (c *call) readReceived() (receiving.Email, receiving.Content, error) {
	if err := c.actor.Require(teams.ReceivingRead); err != nil {
		return receiving.Email{}, receiving.Content{}, errRole.Because(err)
	}
	return c.receivedContent(receiving.CID)
}

func (c *call) showReply() error   { return c.showAnswer(false) }
func (c *call) showForward() error { return c.showAnswer(true) }
func (c *call) sendReply() error   { return c.sendAnswer(false) }
func (c *call) sendForward() error { return c.sendAnswer(true) }

func (c *call) showAnswer(forward bool) error {
	e, content, err := c.readReceived()
	if err != nil {
		return err
	}
	defer content.Close()
	form, err := c.answerForm(&e, &content, forward)
	if err != nil {
		return err
	}
	return c.answerPage(http.StatusOK, answerView{Email: e, Form: form, Forward: forward, Files: true})
}

func (c *call) answerPage(status int, data answerView) error {
	data.base, data.Once = c.base(), c.once()
	title := "Reply"
	if data.Forward {
		title = "Forward"
	}
	return c.show(status, answerPage, data, web.Crumbs("Receiving", "/app/receiving", cutSubject(data.Email.Subject),
		receivedPath(data.Email.ID), title), web.Class("form"))
}

func cutSubject(subject string) string {
	if subject == "" {
		return "No subject"
	}
	return subject
}

// answerForm returns the form with the values that an email program would fill in.
func (c *call) answerForm(e *receiving.Email, content *receiving.Content, forward bool) (*web.Form, error) {
	from, err := c.answerFrom(e)
	if err != nil {
		return nil, err
	}
	to, cc, subject, text := "", "", e.Subject, ""
	if content.Text != nil {
		text = *content.Text
	}
	if forward {
		subject, text = prefixed("Fwd: ", subject), "\n\n"+forwardedText(e, content, text)
	} else {
		if to = strings.Join(e.ReplyTo, ", "); to == "" {
			to = e.From
		}
		if c.r.URL.Query().Get("all") == "1" {
			cc = strings.Join(others(e, from), ", ")
		}
		subject, text = prefixed("Re: ", subject), "\n\n"+quoted(e, text)
	}
	return web.NewForm(
		&web.Field{Name: "from", Label: "From", Value: from, Hint: "An address at a verified domain of the team."},
		&web.Field{Name: "to", Label: "To", Value: to, Max: 2000, Hint: "Up to 50 addresses, separated by commas."},
		&web.Field{Name: "cc", Label: "Copy", Value: cc, Max: 2000, Optional: true},
		&web.Field{Name: "subject", Label: "Subject", Value: subject, Max: 998},
		&web.Field{Name: "text", Label: "Text", Type: "textarea", Value: text, Max: answerMost}), nil
}

// answerFrom returns the address that received the email if the team may send from its domain, or else an address at
// the team's newest domain.
func (c *call) answerFrom(e *receiving.Email) (string, error) {
	all, _, err := c.Domains.List(c.ctx(), c.team.TeamID, page.Page{Limit: choicesShown})
	if err != nil {
		return "", err
	}
	newest := ""
	for i := range all {
		if !all[i].MaySend() {
			continue
		}
		for _, to := range slices.Concat(e.ReceivedFor, e.To) {
			if _, host, ok := strings.Cut(to, "@"); ok && strings.EqualFold(host, all[i].Name) {
				return to, nil
			}
		}
		if newest == "" {
			newest = "hello@" + all[i].Name
		}
	}
	return newest, nil
}

// others returns the recipients of an email besides the one who answers it.
func others(e *receiving.Email, from string) (all []string) {
	for _, to := range slices.Concat(e.To, e.Cc) {
		if !strings.EqualFold(to, from) && !slices.Contains(e.ReceivedFor, to) && !slices.Contains(all, to) {
			all = append(all, to)
		}
	}
	return all
}

// prefixed adds a prefix to a subject unless the subject has it.
func prefixed(prefix, subject string) string {
	if len(subject) >= len(prefix) && strings.EqualFold(subject[:len(prefix)], prefix) {
		return subject
	}
	return prefix + subject
}

// quoted returns the quotation of an email's text.
func quoted(e *receiving.Email, text string) string {
	var b strings.Builder
	b.WriteString("On " + e.CreatedAt.UTC().Format("2 January 2006 at 15:04 UTC") + ", " + e.From + " wrote:\n")
	for line := range strings.Lines(shortText(text)) {
		b.WriteString("> " + strings.TrimRight(line, "\r\n") + "\n")
	}
	return b.String()
}

// forwardedText returns an email's text below its most important header fields.
func forwardedText(e *receiving.Email, content *receiving.Content, text string) string {
	return "---------- Forwarded message ----------\nFrom: " + or(headerOf(content.Header, "From"), e.From) + "\nDate: " +
		e.CreatedAt.UTC().Format("2 January 2006, 15:04 UTC") + "\nSubject: " + e.Subject + "\nTo: " +
		strings.Join(e.To, ", ") + "\n\n" + strings.ReplaceAll(shortText(text), "\r\n", "\n")
}

func shortText(text string) string {
	if len(text) > quotedMost {
		return strings.ToValidUTF8(text[:quotedMost], "") + "\n…"
	}
	return text
}

func or(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

// references returns the header fields with which a reply belongs to the conversation of an email (RFC 5322 section
// 3.6.4). A message without a Message-ID cannot be referred to.
func references(e *receiving.Email, header []message.Field) []message.Field {
	if e.MessageID == "" || strings.ContainsAny(e.MessageID, " \t\r\n") {
		return nil
	}
	earlier := headerOf(header, "References")
	if earlier == "" {
		earlier = headerOf(header, "In-Reply-To")
	}
	var all []string
	for _, ref := range strings.Fields(earlier) {
		if strings.HasPrefix(ref, "<") && strings.HasSuffix(ref, ">") && ref != e.MessageID && len(ref) < 500 {
			all = append(all, ref)
		}
	}
	if len(all) > referencesMost { // the first message and the newest ones
		all = append(all[:1], all[len(all)-referencesMost+1:]...)
	}
	return []message.Field{{Name: "In-Reply-To", Value: e.MessageID},
		{Name: "References", Value: strings.Join(append(all, e.MessageID), " ")}}
}

func (c *call) sendAnswer(forward bool) error {
	e, content, err := c.readReceived()
	if err != nil {
		return err
	}
	defer content.Close()
	form, err := c.answerForm(&e, &content, forward)
	if err != nil {
		return err
	}
	form.Fill(c.form)
	text := strings.ReplaceAll(c.form.Get("text"), "\r\n", "\n")
	in := emails.Send{From: c.form.Get("from"), To: splitAddresses(c.form.Get("to")), Cc: splitAddresses(c.form.Get("cc")),
		Subject: c.form.Get("subject"), Text: &text}
	data := answerView{Email: e, Form: form, Forward: forward, Files: c.form.Get("files") != ""}
	if forward {
		if content.HTML != nil && c.form.Get("html") != "" {
			in.HTML = new("<div style=\"white-space:pre-wrap\">" + html.EscapeString(text) + "</div><hr>" + *content.HTML)
		}
		if data.Files {
			in.Attachments, err = forwardedFiles(&e, &content)
		}
	} else {
		in.Headers = references(&e, content.Header)
	}
	id := ""
	if err == nil {
		id, err = c.Emails.Send(c.ctx(), c.actor, in, c.idempotency())
	}
	if err != nil {
		status, ours := form.SetError(err)
		if ours != nil || fault.KindOf(err) == fault.Unavailable {
			return err
		}
		return c.answerPage(status, data)
	}
	return c.redirect(emailPath(id), "The email is accepted.")
}

// forwardedFiles returns the attachments of an email. They belong to the content, which has reserved memory for them:
// a request that waited for more memory while it holds some could wait for itself.
func forwardedFiles(e *receiving.Email, content *receiving.Content) (all []emails.Upload, err error) {
	size := int64(0)
	for _, f := range e.Files {
		if size += f.Size; size > forwardedMost {
			return nil, errForwardLarge
		}
	}
	for i, f := range e.Files {
		file, err := content.File(i)
		if err != nil {
			return nil, err
		}
		all = append(all, emails.Upload{Filename: or(f.Filename, "file"), ContentType: f.ContentType,
			ContentID: strings.Trim(f.ContentID, "<>"), Content: file, HasContent: true})
	}
	return all, nil
}
