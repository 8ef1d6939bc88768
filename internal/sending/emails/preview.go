package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/message"
)

// Preview holds the data about an email that preflight checks need. Links in a preview are not tracked, and a preview
// does not include the content of attachments.
type Preview struct {
	From       message.Address
	ReplyTo    []string
	Subject    string
	HTML       string // "" if the message has no HTML part
	Text       string // derived from the HTML if the sender provided no text; "" if the message has no text part
	Headers    []message.Field
	Bulk       bool     // whether a header field marks the email as bulk mail, or the email belongs to a broadcast
	ContentIDs []string // content ids of the attachments to which the HTML may refer
}

// PreviewDraft returns the preview of an email that has not been sent. PreviewDraft applies the same rules as Send,
// with three exceptions: recipients and the subject may be missing, attachments specified by path are not fetched, and
// the sender's domain is not looked up. PreviewDraft does not store the email.
func (s *Service) PreviewDraft(ctx context.Context, teamID string, in Send) (Preview, error) {
	c, err := s.resolveTemplate(ctx, teamID, &in)
	if err != nil {
		return Preview{}, err
	}
	d := &draft{Send: in}
	if err := d.checkDraft(s); err != nil {
		return Preview{}, err
	}
	if err := (topics{}).check(ctx, s, teamID, d.TopicID); err != nil {
		return Preview{}, err
	}
	p := Preview{From: d.from, ReplyTo: d.ReplyTo, Subject: d.Subject, Headers: d.Headers, Bulk: isBulk(d.Headers)}
	l := s.exampleUnsubscribeInfo(&Email{From: d.From, TopicID: d.TopicID, MessageID: d.messageID(noID)})
	if c != nil {
		p.HTML, p.Text = c.Bodies(l.values(d.values))
	} else {
		p.setBodies(d.HTML, d.Text, l, true)
	}
	p.addTopic(l)
	for _, a := range d.Attachments {
		if a.ContentID != "" {
			p.ContentIDs = append(p.ContentIDs, a.ContentID)
		}
	}
	return p, nil
}

// checkDraft checks a draft against the rules for a preview.
func (d *draft) checkDraft(s *Service) error {
	if d.Broken != nil {
		return d.Broken
	}
	given := *d
	if len(d.To) == 0 {
		given.To = []string{d.From}
	}
	if d.Subject == "" {
		given.Subject = "-"
	}
	if err := given.checkPresent(); err != nil {
		return err
	}
	for _, check := range []func() error{
		func() error { return d.checkAddresses(s.c.TestDomainsRefused) }, d.checkContent, d.checkHeaders,
		func() error { return checkTags(d.Tags) }, d.checkAttachments,
		func() error { return d.checkSchedule(s.DB.Now()) }} {
		if err := check(); err != nil {
			return err
		}
	}
	if size := d.size(); size > s.c.MaxSize {
		return s.tooLarge(size)
	}
	return nil
}

// PreviewSent returns the preview of one of the team's sent or scheduled emails. If the email does not exist or its
// content was deleted, PreviewSent returns a NotFound fault.
func (s *Service) PreviewSent(ctx context.Context, teamID, emailID string) (Preview, error) {
	e, err := s.Get(ctx, teamID, emailID)
	if err != nil {
		return Preview{}, err
	}
	files, err := attachmentsOf(ctx, s.DB.Reader, teamID, emailID)
	if err != nil {
		return Preview{}, fmt.Errorf("load attachments of email %s: %w", emailID, err)
	}
	return s.preview(ctx, &e, files)
}

// preview returns the preview of a stored email, whose bodies the caller has read.
func (s *Service) preview(ctx context.Context, e *Email, files []Attachment) (p Preview, err error) {
	if e.HTML == nil && e.Text == nil && !e.isRaw {
		return p, fault.NotFoundf("The content of this email is not kept any more, so it cannot be checked.")
	}
	p = Preview{ReplyTo: e.ReplyTo, Subject: e.Subject}
	if p.From, err = message.ParseAddress(e.From); err != nil {
		return p, fmt.Errorf("read stored sender of email %s: %w", e.ID, err)
	}
	if p.Headers, err = headersOf(ctx, s.DB.Reader, e.TeamID, e.ID); err != nil {
		return p, err
	}
	for i := range files {
		if files[i].Inline() {
			p.ContentIDs = append(p.ContentIDs, files[i].ContentID)
		}
	}
	p.Bulk = e.bulk || e.BroadcastID != "" || isBulk(p.Headers)
	p.Headers = appendFields(p.Headers, s.storedFeedback(e, p.Bulk || e.TopicID != ""))
	l := s.exampleUnsubscribeInfo(e)
	shared, err := s.content(ctx, e.TeamID, &e.shared)
	switch {
	case err != nil:
		return p, err
	case shared != nil:
		p.HTML, p.Text = shared.Bodies(l.values(e.shared.values))
	default:
		p.setBodies(e.HTML, e.Text, l, !e.isRaw)
	}
	p.addTopic(l)
	return p, nil
}

// ExampleUnsubscribeURL returns a URL that stands in for the unsubscribe URLs, which are different for each recipient.
// The example URL does not work. If the server has no public URL, ExampleUnsubscribeURL returns "".
func (s *Service) ExampleUnsubscribeURL() string {
	if s.c.PublicURL == "" {
		return ""
	}
	return s.c.PublicURL + "/unsubscribe/example"
}

// exampleUnsubscribeInfo returns unsubscribe information for an email, with the example URL.
func (s *Service) exampleUnsubscribeInfo(e *Email) unsubscribeInfo {
	if !e.canUnsubscribe() || s.c.PublicURL == "" {
		return unsubscribeInfo{}
	}
	return unsubscribeInfo{s.ExampleUnsubscribeURL(), e.listID()}
}

// addTopic adds the header fields for unsubscribing to a preview's header.
func (p *Preview) addTopic(l unsubscribeInfo) {
	if l.url != "" {
		p.Headers, p.Bulk = l.add(p.Headers), true
	}
}

// setBodies sets the HTML and the text of a preview. If composed is true, setBodies fills in unsubscribe links. If
// composed is true and the sender provided no text, setBodies derives the text from the HTML.
func (p *Preview) setBodies(html, text *string, l unsubscribeInfo, composed bool) {
	if !composed {
		l = unsubscribeInfo{}
	}
	if html != nil {
		p.HTML = l.fill(*html)
	}
	switch {
	case text != nil:
		p.Text = l.fill(*text)
	case composed:
		p.Text = htmltext.FromHTML(p.HTML)
	}
}
