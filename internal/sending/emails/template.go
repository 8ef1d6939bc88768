package emails

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/templates"
)

// templateVersion is the published version of a template that an email uses. A templateVersion does not contain the
// content itself, because all drafts in a batch are in memory at the same time.
type templateVersion struct {
	templateID string
	content    content.Ref
	hasHTML    bool
	size       int64 // size of the rendered text and HTML in bytes
	empty      bool  // whether the rendered text and HTML are empty
}

// draft resolves the email's template and then checks the email.
func (s *Service) draft(ctx context.Context, teamID string, in Send, batch bool) (*draft, error) {
	if len(in.To) > 0 { // if there are no recipients, check returns a fault, so no look-up is needed
		if _, err := s.resolveTemplate(ctx, teamID, &in); err != nil {
			return nil, err
		}
	}
	return s.check(in, s.DB.Now(), batch)
}

// resolveTemplate finds the template of an email, pins its published version, and sets the sender, the subject and the
// reply-to addresses if the request leaves them out. resolveTemplate fills the placeholders in those that the request
// gives. The returned content is that of the published version. If the
// email has no template, or the request has an error that check will return, resolveTemplate returns nil.
func (s *Service) resolveTemplate(ctx context.Context, teamID string, in *Send) (*content.Compiled, error) {
	if !in.HasTemplate || in.TemplateID == "" || in.Broken != nil || in.HTML != nil || in.Text != nil {
		return nil, nil
	}
	t, err := s.Templates.Published(ctx, teamID, in.TemplateID)
	if err != nil {
		return nil, err
	}
	all, err := t.Values(in.Variables)
	if err != nil {
		return nil, err
	}
	c := t.Content
	maps.Copy(all, in.contact)
	in.values = c.UsedValues(all)
	if err := fillOverrides(t, in, all); err != nil {
		return nil, err
	}
	in.template = &templateVersion{t.TemplateID, c.Ref, c.HasHTML(), c.Size(in.values), c.Empty(in.values)}
	// Only the fields that are taken from the template are checked here. For example, the template's subject is not used
	// if the request has a subject.
	if in.From == "" {
		if err := c.CheckFrom(in.values); err != nil {
			return nil, err
		}
		in.From = c.From(in.values)
	}
	if in.Subject == "" {
		if err := c.CheckSubject(in.values); err != nil {
			return nil, err
		}
		in.Subject = c.Subject(in.values)
	}
	if len(in.ReplyTo) == 0 {
		if err := c.CheckReplyTo(in.values); err != nil {
			return nil, err
		}
		in.ReplyTo = c.ReplyTo(in.values)
	}
	return c, nil
}

// fillOverrides fills the placeholders in the sender, the subject and the reply-to addresses that the request gives
// itself.
func fillOverrides(t *templates.PublishedTemplate, in *Send, all render.Values) error {
	if !slices.ContainsFunc(append([]string{in.From, in.Subject}, in.ReplyTo...), hasBraces) {
		return nil
	}
	if err := t.CheckOverrides("", templates.Overrides{From: in.From, Subject: in.Subject, ReplyTo: in.ReplyTo},
		all); err != nil {
		return err
	}
	c := content.Compile(&content.Content{From: in.From, Subject: in.Subject, ReplyTo: in.ReplyTo})
	if err := c.CheckLines(all); err != nil {
		return err
	}
	in.From, in.Subject, in.ReplyTo = c.From(all), c.Subject(all), c.ReplyTo(all)
	return nil
}

func hasBraces(text string) bool { return strings.Contains(text, "{{") }

// useTemplates records that the emails use the content of their templates, with one statement per content.
func (s *Service) useTemplates(ctx context.Context, tx *db.Tx, drafts []*draft) {
	var used map[string]bool
	for _, d := range drafts {
		if d.template == nil || used[d.template.content.ID] {
			continue
		}
		s.Contents.MarkUsed(ctx, tx, d.template.content)
		if len(drafts) > 1 {
			if used == nil {
				used = map[string]bool{}
			}
			used[d.template.content.ID] = true
		}
	}
}

// ByTemplate is an email to one recipient with content from a template.
type ByTemplate struct {
	TemplateID string // id or alias
	Variables  templates.Given
	Contact    render.Values // values of the contact's fields; see ContactValues
	To         string        // address with or without a display name
	TopicID    string        // "" for none
	Tags       []Tag

	// Non-empty values of these fields replace the template's values. Their placeholders are filled too.
	From    string
	Subject string
	ReplyTo []string
}

// MailingByTemplate prepares an email to one recipient, which Enqueue writes later. MailingByTemplate makes the same
// checks as Send and returns the same faults. The recipient passed to Enqueue may have a different address, for example
// because the contact's address has changed. The email is bulk mail only if it has a topic.
func (s *Service) MailingByTemplate(ctx context.Context, by teams.Actor, in ByTemplate) (*Mailing, error) {
	send := Send{From: in.From, To: []string{in.To}, ReplyTo: in.ReplyTo, Subject: in.Subject, Tags: in.Tags,
		TopicID: in.TopicID, TemplateID: in.TemplateID, HasTemplate: true, Variables: in.Variables,
		contact: in.Contact}
	c, err := s.resolveTemplate(ctx, by.TeamID, &send)
	if err != nil {
		return nil, err
	}
	d, err := s.check(send, s.DB.Now(), false)
	if err != nil {
		return nil, err
	}
	from, err := s.sender(ctx, by, d)
	if err != nil {
		return nil, err
	}
	if err := (topics{}).check(ctx, s, by.TeamID, d.TopicID); err != nil {
		return nil, err
	}
	return &Mailing{TemplateID: d.template.templateID, TopicID: d.TopicID, Tags: d.Tags, by: by, content: c, from: from,
		sender: d.from, single: d}, nil
}
