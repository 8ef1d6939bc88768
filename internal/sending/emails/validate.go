package emails

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/schedule"
	"github.com/postrider/postrider/internal/sending/content"
)

// draft is a Send that has passed all checks that do not require a look-up.
type draft struct {
	Send
	id         string // id of the email; created in the transaction that inserts the email
	from       message.Address
	recipients []recipient // envelope recipients without duplicate addresses
	at         time.Time   // zero means now
	raw        *Raw        // the message, if the sender composed it
	refused    refusals    // recipients to which the email may not be sent because of its topic
}

type recipient struct {
	kind string
	message.Address
	position int // position in the envelope, from 0; set when the recipient is stored
}

// check checks an email against the rules of the API (API reference section 8); it returns a fault for the first rule
// that is broken.
func (s *Service) check(in Send, now time.Time, batch bool) (*draft, error) {
	if in.Broken != nil {
		return nil, in.Broken
	}
	d := &draft{Send: in}
	if err := d.checkPresent(); err != nil {
		return nil, err
	}
	if err := d.checkAddresses(s.c.TestDomainsRefused); err != nil {
		return nil, err
	}
	if err := d.checkContent(); err != nil {
		return nil, err
	}
	if err := d.checkHeaders(); err != nil {
		return nil, err
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	if batch && len(in.Attachments) > 0 {
		return nil, fault.Invalidf("attachments",
			"The `attachments` field is not supported in a batch. Send the email by itself.")
	}
	if err := d.checkAttachments(); err != nil {
		return nil, err
	}
	if size := d.size(); size > s.c.MaxSize {
		return nil, s.tooLarge(size)
	}
	return d, d.checkSchedule(now)
}

func (s *Service) tooLarge(size int64) error {
	return fault.Invalidf("attachments", "The email would be %d bytes when encoded; the limit is %d bytes in all, "+
		"attachments included. Link to large files instead.", size, s.c.MaxSize)
}

func (d *draft) checkPresent() error {
	switch {
	case d.HasTemplate && (d.HTML != nil || d.Text != nil):
		return fault.Invalidf("template", "The `template` field cannot be used together with `html` or `text`.")
	case d.HasTemplate && d.TemplateID == "":
		return fault.MissingField("template.id")
	case d.HasTemplate && len(d.To) == 0:
		return fault.MissingField("to")
	case d.HasTemplate && d.template == nil:
		return fault.NotFoundf("Template not found")
	case d.From == "":
		return fault.MissingField("from")
	case len(d.To) == 0:
		return fault.MissingField("to")
	case d.Subject == "":
		return fault.MissingField("subject")
	case d.HasTemplate && d.template.empty:
		return fault.New(fault.Missing, "html", "Missing `html` or `text` field: nothing is left of the template's once "+
			"its variables are filled in.")
	case !d.HasTemplate && (d.HTML == nil || *d.HTML == "") && (d.Text == nil || *d.Text == ""):
		return fault.New(fault.Missing, "html", "Missing `html` or `text` field.")
	}
	return nil
}

func (d *draft) checkAddresses(refused []string) (err error) {
	if d.from, err = parseAddress("from", d.From, message.ParseFrom); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range []struct {
		name string
		list []string
	}{{"to", d.To}, {"cc", d.Cc}, {"bcc", d.Bcc}, {"reply_to", d.ReplyTo}} {
		if len(f.list) > MaxRecipients {
			return fault.Invalidf(f.name, "The `%s` field has %d addresses; the limit is %d.", f.name, len(f.list),
				MaxRecipients)
		}
		for _, text := range f.list {
			a, err := parseAddress(f.name, text, message.ParseAddress)
			if err != nil {
				return err
			}
			if f.name == "reply_to" {
				continue
			}
			for _, domain := range refused {
				if a.Domain == domain {
					return testDomain(f.name, domain)
				}
			}
			if key := a.Key(); !seen[key] {
				seen[key] = true
				d.recipients = append(d.recipients, recipient{kind: f.name, Address: a})
			}
		}
	}
	return nil
}

func testDomain(field, domain string) error {
	return fault.Invalidf(field, "The `%s` field has an address at %s, which takes no mail. To test, send to "+
		"delivered@resend.dev, bounced@resend.dev or complained@resend.dev.", field, domain)
}

func parseAddress(field, text string, parse func(string) (message.Address, error)) (message.Address, error) {
	if len(text) > content.MaxMailbox {
		return message.Address{}, fault.Invalidf(field, "Invalid `%s` field. The address is too long.", field)
	}
	a, err := parse(text)
	if err != nil {
		return a, fault.Invalidf(field, "Invalid `%s` field: %s. Use `email@example.com` or `Name <email@example.com>`.",
			field, strings.TrimSuffix(err.Error(), ".")).Because(err)
	}
	return a, nil
}

func (d *draft) checkContent() error {
	if len(d.Subject) > MaxSubject {
		return fault.Invalidf("subject", "The `subject` field has %d bytes; the limit is %d.", len(d.Subject), MaxSubject)
	}
	if strings.ContainsAny(d.Subject, "\r\n\x00") || !utf8.ValidString(d.Subject) {
		return fault.Invalidf("subject", "The `subject` field must be UTF-8 text without line breaks and NUL characters.")
	}
	for name, text := range map[string]*string{"html": d.HTML, "text": d.Text} {
		if text != nil && strings.ContainsRune(*text, 0) {
			return fault.Invalidf(name, "The `%s` field must not contain NUL characters.", name)
		}
	}
	d.TopicID = strings.ToLower(d.TopicID)
	return nil
}

func (d *draft) checkHeaders() error {
	if len(d.Headers) > MaxHeaders {
		return fault.Invalidf("headers", "The `headers` field has %d headers; the limit is %d.", len(d.Headers), MaxHeaders)
	}
	kept := d.Headers[:0:0]
	size := 0
	for _, h := range d.Headers {
		if err := message.CheckField(h.Name, h.Value); err != nil {
			return fault.Invalidf("headers", "Invalid `headers` field: %s", err).Because(err)
		}
		if size += len(h.Name) + len(h.Value) + 4; size > maxHeaderSize {
			return fault.Invalidf("headers", "The `headers` field is larger than %d bytes in all.", maxHeaderSize)
		}
		// A Message-ID from the sender is dropped, because the API returns our Message-ID, and bounces are matched by it.
		if !strings.EqualFold(h.Name, "Message-ID") {
			kept = append(kept, h)
		}
	}
	d.Headers = kept
	return nil
}

func checkTags(tags []Tag) error {
	if len(tags) > MaxTags {
		return fault.Invalidf("tags", "The `tags` field has %d tags; the limit is %d.", len(tags), MaxTags)
	}
	for i, t := range tags {
		for part, text := range map[string]string{"name": t.Name, "value": t.Value} {
			if text == "" || len(text) > MaxTagLength || strings.ContainsFunc(text, notTagRune) {
				return fault.Invalidf(fmt.Sprintf("tags[%d].%s", i, part), "The %s of a tag must have 1 to %d characters, "+
					"each an ASCII letter, a digit, an underscore or a dash (`tags[%d].%s`).", part, MaxTagLength, i, part)
			}
		}
	}
	return nil
}

func notTagRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
}

func (d *draft) checkAttachments() error {
	if err := checkFiles(len(d.Attachments)); err != nil {
		return err
	}
	for i := range d.Attachments {
		a := &d.Attachments[i]
		field := fmt.Sprintf("attachments[%d]", i)
		switch {
		case a.HasContent == (a.Path != ""):
			return fault.New(fault.BadAttachment, field, "An attachment must have either `content` or `path` (`%s`).", field)
		case len(a.Filename) > maxFilename || strings.ContainsAny(a.Filename, "\r\n\x00") || !utf8.ValidString(a.Filename):
			return fault.New(fault.BadAttachment, field+".filename",
				"The `filename` of an attachment must be text of at most %d "+
					"bytes without line breaks (`%s`).", maxFilename, field)
		case message.RefusedExtension(a.Filename):
			return fault.New(fault.BadAttachment, field+".filename",
				"Files such as `%s` can run as programs and are refused by mail "+
					"hosts. Send an archive or a link (`%s`).", a.Filename, field)
		case len(a.ContentID) > maxContentID || strings.ContainsAny(a.ContentID, "<> ") || notPrintable(a.ContentID):
			return fault.New(fault.BadAttachment, field+".content_id",
				"The `content_id` of an attachment must have fewer than %d "+
					"printable ASCII characters and no angle brackets (`%s`).", maxContentID+1, field)
		case len(a.Path) > maxPath:
			return fault.New(fault.BadAttachment, field+".path", "The `path` of an attachment is too long (`%s`).", field)
		}
		// Compose uses the same check, so it does not reject a content type that is accepted here.
		if err := (&message.Attachment{ContentType: a.ContentType}).Check(); err != nil || notPrintable(a.ContentType) {
			return fault.New(fault.BadAttachment, field+".content_type",
				"The `content_type` of an attachment must be a media type "+
					"such as application/pdf (`%s`).", field).Because(err)
		}
		if a.Filename == "" && a.Path != "" {
			a.Filename = fmt.Sprintf("attachment-%d", i)
		}
		if a.ContentType == "" {
			a.ContentType = message.TypeByFilename(a.Filename)
		}
	}
	return nil
}

// checkFiles limits the number of attachments, because each may require a stored file or a download.
func checkFiles(n int) error {
	if n > MaxAttachments {
		return fault.Invalidf("attachments",
			"The `attachments` field has %d files; the limit is %d. Send an archive of them instead.",
			n, MaxAttachments)
	}
	return nil
}

func notPrintable(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// hasHTML reports whether the email has an HTML part.
func (d *draft) hasHTML() bool {
	if d.template != nil {
		return d.template.hasHTML
	}
	return d.HTML != nil && *d.HTML != ""
}

// texts returns the total size of the HTML and the text, in bytes.
func (d *draft) texts() (n int64) {
	if d.template != nil {
		return d.template.size
	}
	for _, t := range []*string{d.HTML, d.Text} {
		if t != nil {
			n += int64(len(*t))
		}
	}
	return n
}

// size estimates the size of the composed message, in bytes. In base64 with line breaks, every 57 bytes become 78
// bytes.
func (d *draft) size() int64 {
	n := 2048 + d.texts()
	for _, a := range d.Attachments {
		n += int64(len(a.Content))/57*78 + 600
	}
	return n
}

func (d *draft) checkSchedule(now time.Time) (err error) {
	if d.ScheduledAt == "" {
		return nil
	}
	d.at, err = scheduledAt(d.ScheduledAt, now)
	return err
}

// scheduledAt parses an email's scheduled time. If the time is in the past, but by no more than maxPast, scheduledAt
// returns the zero time, which means now.
func scheduledAt(text string, now time.Time) (time.Time, error) {
	at, err := schedule.Parse(text, now)
	if err != nil {
		return time.Time{}, fault.Invalidf("scheduled_at", "Invalid `scheduled_at` field: %s", err).Because(err)
	}
	switch {
	case at.After(now.Add(MaxAhead)):
		return time.Time{}, fault.Invalidf("scheduled_at", "The `scheduled_at` field is more than 30 days ahead.")
	case at.Before(now.Add(-maxPast)):
		return time.Time{}, fault.Invalidf("scheduled_at", "The `scheduled_at` field is in the past.")
	case !at.After(now):
		return time.Time{}, nil
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

// ScheduledAt parses a time according to the rules for the field scheduled_at. If ScheduledAt returns the zero time,
// the time is now.
func ScheduledAt(text string, now time.Time) (time.Time, error) { return scheduledAt(text, now) }
