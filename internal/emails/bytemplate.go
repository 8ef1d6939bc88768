package emails

import (
	"context"

	"github.com/postrider/postrider/internal/db"
)

// draft applies the rules of an email after what it takes from its template was filled in.
func (s *Service) draft(ctx context.Context, teamID string, in Send, batch bool) (*draft, error) {
	if len(in.To) > 0 { // otherwise check reports that, and no look-up is needed
		if err := s.byTemplate(ctx, teamID, &in); err != nil {
			return nil, err
		}
	}
	return s.check(in, s.d.Now(), batch)
}

// byTemplate finds the template of an email, pins its published version, and sets the sender, the subject and the
// addresses for replies where the caller gives none. It does nothing if the email has no template, or if check will
// report an error for which no look-up is needed.
func (s *Service) byTemplate(ctx context.Context, teamID string, in *Send) error {
	if !in.HasTemplate || in.TemplateID == "" || in.Broken != nil || in.HTML != nil || in.Text != nil {
		return nil
	}
	t, err := s.templates.Published(ctx, teamID, in.TemplateID)
	if err != nil {
		return err
	}
	all, err := t.Values(in.Variables)
	if err != nil {
		return err
	}
	in.template, in.values = t, t.Content.Used(all)
	if err := t.Content.CheckLines(in.values); err != nil {
		return err
	}
	if in.From == "" {
		in.From = t.Content.From(in.values)
	}
	if in.Subject == "" {
		in.Subject = t.Content.Subject(in.values)
	}
	if len(in.ReplyTo) == 0 {
		in.ReplyTo = t.Content.ReplyTo(in.values)
	}
	return nil
}

// useTemplates records that emails with the contents of their templates are inserted, once for each content.
func (s *Service) useTemplates(ctx context.Context, tx *db.Tx, drafts []*draft) {
	var used map[string]bool
	for _, d := range drafts {
		if d.template == nil || used[d.template.Content.ID] {
			continue
		}
		s.contents.Use(ctx, tx, d.template.Content)
		if len(drafts) > 1 {
			if used == nil {
				used = map[string]bool{}
			}
			used[d.template.Content.ID] = true
		}
	}
}
