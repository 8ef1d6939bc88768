package explain

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
)

const (
	// attemptsMax is the maximum number of attempts that are read for one answer: those of 50 recipients with 20 attempts
	// each. The newest ones are read, because they say what happens next.
	attemptsMax = 1000
	// eventsMax is the maximum number of events that are read for one answer.
	eventsMax = 3000
)

// Deps are the dependencies of a Service.
type Deps struct {
	Emails *emails.Service
	// Decision returns the decision about the emails of a broadcast that have the given content; it may be a few seconds
	// old.
	Decision func(ctx context.Context, teamID, broadcastID, contentID string) (emails.Decision, error)
	// Held returns why mail to a domain waits, if the operator has paused it, and since when it is known to be paused.
	Held func(domain string) (reason string, since time.Time, held bool) `deps:"optional"`
}

// Service explains the deliveries of stored emails.
type Service struct{ p Deps }

// New returns a service. New fails if a dependency is missing.
func New(p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	return &Service{p}, nil
}

// Explain explains the delivery of an email of the actor's team. It returns a NotFound fault if the team has no email
// with this id. The caller must have checked that the actor may read emails. The number of statements does not depend
// on the number of recipients or attempts.
func (s *Service) Explain(ctx context.Context, actor teams.Actor, emailID string) (Answer, error) {
	teamID := actor.TeamID
	e, err := s.p.Emails.Summary(ctx, teamID, emailID)
	if err != nil {
		return Answer{}, err
	}
	f := Facts{Now: s.p.Emails.DB.Now(), EmailID: e.ID, State: string(e.LastEvent), CreatedAt: e.CreatedAt,
		ScheduledAt: e.ScheduledAt, Broadcast: e.BroadcastID != "", Forwarded: e.IsForwarded()}
	if from, err := message.ParseAddress(e.From); err == nil {
		f.SenderDomain = from.Domain
	}
	for _, r := range e.Recipients {
		f.Recipients = append(f.Recipients, To{r.Address, string(r.State), r.UpdatedAt})
		if domain := domainOf(r.Address); s.p.Held != nil && domain != "" {
			if reason, since, held := s.p.Held(domain); held {
				if f.Held == nil {
					f.Held = map[string]Hold{}
				}
				f.Held[domain] = Hold{reason, since}
			}
		}
	}
	if f.Broadcast && slices.ContainsFunc(f.Recipients, func(to To) bool { return !settled(to.State) }) {
		decision, err := s.p.Decision(ctx, teamID, e.BroadcastID, "")
		if err != nil {
			return Answer{}, err
		}
		f.Paused = decision == emails.Withhold
	}
	if f.Events, f.MoreEvents, err = s.p.Emails.Timeline(ctx, teamID, emailID, page.Page{Limit: eventsMax}); err != nil {
		return Answer{}, err
	}
	latest := page.Page{Before: lastID, Limit: attemptsMax}
	tried, more, err := s.p.Emails.Attempts(ctx, teamID, emailID, latest)
	if err != nil {
		return Answer{}, err
	}
	f.MoreAttempts = more
	for _, a := range tried {
		t := Try{StoredAttempt: a}
		t.Evidence, t.unreadable = evidence.Unpack(a.Evidence)
		f.Attempts = append(f.Attempts, t)
	}
	return Explain(f), nil
}

// lastID is a cursor behind all ids.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
