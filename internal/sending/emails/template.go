package emails

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
)

// templateVersion is the version of a template that an email is sent with. The drafts of a batch wait for each other, so it
// holds what is needed of the content, and not its text.
type templateVersion struct {
	templateID string
	content    content.Ref
	hasHTML    bool
	size       int64 // of the texts, filled, in octets
	empty      bool  // nothing is left of the texts once they are filled
}

// draft applies the rules of an email after what it takes from its template was filled in.
func (s *Service) draft(ctx context.Context, teamID string, in Send, batch bool) (*draft, error) {
	if len(in.To) > 0 { // otherwise check reports that, and no look-up is needed
		if _, err := s.resolveTemplate(ctx, teamID, &in); err != nil {
			return nil, err
		}
	}
	return s.check(in, s.d.Now(), batch)
}

// resolveTemplate finds the template of an email, pins its published version, and sets the sender, the subject and the
// addresses for replies where the caller gives none. It does nothing if the email has no template, or if check will
// report an error for which no look-up is needed. It returns the content of the version, nil without a template.
func (s *Service) resolveTemplate(ctx context.Context, teamID string, in *Send) (*content.Compiled, error) {
	if !in.HasTemplate || in.TemplateID == "" || in.Broken != nil || in.HTML != nil || in.Text != nil {
		return nil, nil
	}
	t, err := s.templates.Published(ctx, teamID, in.TemplateID)
	if err != nil {
		return nil, err
	}
	all, err := t.Values(in.Variables)
	if err != nil {
		return nil, err
	}
	c := t.Content
	in.values = c.UsedValues(all)
	in.template = &templateVersion{t.TemplateID, c.Ref, c.HasHTML(), c.Size(in.values), c.Empty(in.values)}
	// Only what is taken is checked: a subject of the request's own makes the template's harmless.
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

// useTemplates records that emails with the contents of their templates are inserted, once for each content.
func (s *Service) useTemplates(ctx context.Context, tx *db.Tx, drafts []*draft) {
	var used map[string]bool
	for _, d := range drafts {
		if d.template == nil || used[d.template.content.ID] {
			continue
		}
		s.contents.MarkUsed(ctx, tx, d.template.content)
		if len(drafts) > 1 {
			if used == nil {
				used = map[string]bool{}
			}
			used[d.template.content.ID] = true
		}
	}
}

// ByTemplate is an email for one recipient, with the content of a template.
type ByTemplate struct {
	TemplateID string // id or alias
	Variables  map[string]scalar.Value
	To         string // with or without a display name
	TopicID    string // "" for none
	Tags       []Tag

	// Those that are not empty replace the template's.
	From    string
	Subject string
	ReplyTo []string
}

// MailingByTemplate prepares an email that is entered later, by Enqueue, for one recipient. It applies the rules of
// Send, with the same faults. The address may be another one by then, as that of a contact may have changed. The email
// is not delivered after others unless it has a topic.
func (s *Service) MailingByTemplate(ctx context.Context, by teams.Actor, in ByTemplate) (*Mailing, error) {
	send := Send{From: in.From, To: []string{in.To}, ReplyTo: in.ReplyTo, Subject: in.Subject, Tags: in.Tags,
		TopicID: in.TopicID, TemplateID: in.TemplateID, HasTemplate: true, Variables: in.Variables}
	c, err := s.resolveTemplate(ctx, by.TeamID, &send)
	if err != nil {
		return nil, err
	}
	d, err := s.check(send, s.d.Now(), false)
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
