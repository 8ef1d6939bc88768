package emails

import (
	"context"
	"maps"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/sending/render"
)

// Snapshot makes the same checks as Send but does not send the email. Snapshot returns the number of recipients and the
// email in a form that can be sent unchanged later. In the returned email, the template is rendered and the scheduled
// time is absolute. The placeholder for the unsubscribe link is not replaced, because each recipient gets a different
// link.
func (s *Service) Snapshot(ctx context.Context, by teams.Actor, in Send) (fixed Send, recipients int, err error) {
	d, err := s.draft(ctx, by.TeamID, in, false)
	if err == nil {
		_, err = s.sender(ctx, by, d)
	}
	if err == nil {
		err = (topics{}).check(ctx, s, by.TeamID, d.TopicID)
	}
	if err != nil {
		return Send{}, 0, err
	}
	fixed = d.Send
	if fixed.ScheduledAt = ""; !d.at.IsZero() {
		fixed.ScheduledAt = d.at.Format(time.RFC3339)
	}
	if d.template == nil {
		return fixed, len(d.recipients), nil
	}
	c, err := s.Contents.Get(ctx, by.TeamID, d.template.content.ID)
	if err != nil {
		return Send{}, 0, err
	}
	values := d.values
	if d.TopicID != "" {
		values = maps.Clone(values)
		if values == nil {
			values = render.Values{}
		}
		values[render.UnsubscribeURL] = "{{{" + render.UnsubscribeURL + "}}}"
	}
	fixed.HTML, fixed.Text = c.HTML(values), c.Text(values)
	fixed.HasTemplate, fixed.TemplateID, fixed.Variables, fixed.template, fixed.values = false, "", nil, nil, nil
	return fixed, len(d.recipients), nil
}
