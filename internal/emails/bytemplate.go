package emails

import (
	"context"

	"github.com/postrider/postrider/internal/content"
	"github.com/postrider/postrider/internal/db"
)

// pinned is the version of a template that an email is sent with. The drafts of a batch wait for each other, so it
// holds what is needed of the content, and not its text.
type pinned struct {
	templateID string
	content    content.Ref
	hasHTML    bool
	size       int64 // of the texts, filled, in octets
	empty      bool  // nothing is left of the texts once they are filled
}

// draft applies the rules of an email after what it takes from its template was filled in.
func (s *Service) draft(ctx context.Context, teamID string, in Send, batch bool) (*draft, error) {
	if len(in.To) > 0 { // otherwise check reports that, and no look-up is needed
		if _, err := s.byTemplate(ctx, teamID, &in); err != nil {
			return nil, err
		}
	}
	return s.check(in, s.d.Now(), batch)
}

// byTemplate finds the template of an email, pins its published version, and sets the sender, the subject and the
// addresses for replies where the caller gives none. It does nothing if the email has no template, or if check will
// report an error for which no look-up is needed. It returns the content of the version, nil without a template.
func (s *Service) byTemplate(ctx context.Context, teamID string, in *Send) (*content.Compiled, error) {
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
	in.values = c.Used(all)
	in.template = &pinned{t.TemplateID, c.Ref, c.HasHTML(), c.Size(in.values), c.Empty(in.values)}
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
		s.contents.Use(ctx, tx, d.template.content)
		if len(drafts) > 1 {
			if used == nil {
				used = map[string]bool{}
			}
			used[d.template.content.ID] = true
		}
	}
}
