package explain

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// Service explains the deliveries of stored emails.
type Service struct{ emails *emails.Service }

// NewService returns a service that reads the facts from the service of emails.
func NewService(e *emails.Service) *Service { return &Service{e} }

// Explain explains the delivery of an email of the actor's team. It returns a NotFound fault if the team has no email
// with this id. The caller must have checked that the actor may read emails.
func (s *Service) Explain(ctx context.Context, actor teams.Actor, emailID string) (Answer, error) {
	teamID := actor.TeamID
	e, err := s.emails.Summary(ctx, teamID, emailID)
	if err != nil {
		return Answer{}, err
	}
	f := Facts{Now: s.emails.DB.Now(), EmailID: e.ID, State: string(e.LastEvent), CreatedAt: e.CreatedAt,
		ScheduledAt: e.ScheduledAt}
	if from, err := message.ParseAddress(e.From); err == nil {
		f.SenderDomain = from.Domain
	}
	for _, r := range e.Recipients {
		f.Recipients = append(f.Recipients, To{r.Address, string(r.State), r.UpdatedAt})
	}
	if f.Events, f.MoreEvents, err = s.emails.Timeline(ctx, teamID, emailID, page.Page{}); err != nil {
		return Answer{}, err
	}
	tried, more, err := s.emails.Attempts(ctx, teamID, emailID, page.Page{})
	if err != nil {
		return Answer{}, err
	}
	f.MoreAttempts = more
	for _, a := range tried {
		t := Try{StoredAttempt: a}
		if t.Evidence, err = evidence.Unpack(a.Evidence); err != nil {
			t.Evidence = nil // an answer without the evidence is better than none
		}
		f.Attempts = append(f.Attempts, t)
	}
	return Explain(f), nil
}
