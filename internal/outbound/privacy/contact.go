package privacy

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
)

// ContactPart is the section of the privacy document about the contact that has the address.
type ContactPart struct {
	ID           string          `json:"id"`
	Email        string          `json:"email"`
	FirstName    string          `json:"first_name"`
	LastName     string          `json:"last_name"`
	Unsubscribed bool            `json:"unsubscribed"`
	CreatedAt    string          `json:"created_at"`
	UpdatedAt    string          `json:"updated_at"`
	Properties   map[string]any  `json:"properties" doc:"The contact's values, by property key."`
	Segments     []SegmentPart   `json:"segments" doc:"The segments that the contact was added to."`
	Topics       []TopicPart     `json:"topics" doc:"The topics that the contact opted in to or out of."`
	Engagement   *EngagementPart `json:"engagement" doc:"Null if no broadcast or automation has sent to the contact."`
}

// SegmentPart is a segment that contains the contact.
type SegmentPart struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// TopicPart is the contact's choice for a topic.
type TopicPart struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Subscription string `json:"subscription" enum:"opt_in,opt_out"`
}

// EngagementPart holds counts and times of the contact's opens and clicks.
type EngagementPart struct {
	Mailed    int64   `json:"mailed"`
	Opened    int64   `json:"opened"`
	Clicked   int64   `json:"clicked"`
	MailedAt  *string `json:"mailed_at"`
	OpenedAt  *string `json:"opened_at"`
	ClickedAt *string `json:"clicked_at"`
}

// contactPart returns the contact that has the address, or nil if the address belongs to no contact.
func (s *Service) contactPart(ctx context.Context, of *subject) (*ContactPart, error) {
	c := &of.contact
	if c.ID == "" {
		return nil, nil
	}
	p, e, err := s.p.Contacts.Profile(ctx, *c)
	if err != nil {
		return nil, err
	}
	out := &ContactPart{ID: c.ID, Email: c.Address, FirstName: c.FirstName, LastName: c.LastName,
		Unsubscribed: c.Unsubscribed, CreatedAt: FormatTime(c.CreatedAt), UpdatedAt: FormatTime(c.UpdatedAt),
		Properties: map[string]any{}, Segments: []SegmentPart{}, Topics: []TopicPart{}}
	for name, v := range p.Properties {
		if out.Properties[name] = v.Text; v.Type == scalar.Number {
			out.Properties[name] = v.Number()
		}
	}
	for _, g := range p.Segments {
		out.Segments = append(out.Segments, SegmentPart{g.ID, g.Name})
	}
	for _, t := range p.Topics {
		out.Topics = append(out.Topics, TopicPart{t.TopicID, t.Name, string(t.Subscription)})
	}
	if e != (contacts.Engagement{}) {
		out.Engagement = &EngagementPart{e.Mailed, e.Opened, e.Clicked, orNull(e.MailedAt), orNull(e.OpenedAt),
			orNull(e.ClickedAt)}
	}
	return out, nil
}

// orNull returns nil, which is null in JSON, for the zero time.
func orNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(FormatTime(t))
}
