// Package notifications emails teams about their account, for example when a webhook endpoint fails or is disabled, or
// another team claims their domain. Package notifications also emails individual people, for example with invitations.
//
// # Invariants
//
// A notice is a job that is inserted in the same transaction as the change that causes the notice. The shared
// transaction guarantees that a notice is neither lost nor sent without cause. The notice's job sends an ordinary email
// from the operator's team. The job's id is the email's idempotency key, so the email is sent once even if the job runs
// repeatedly. A node sends a team at most [perDay] notices within 24 hours, counted in memory. Notices beyond the daily
// limit are only logged.
//
// # Failures
//
// A notice is only logged, not sent, if no sender is configured or the team has no address. If a notice's email is
// refused, for example because the sender's domain is not verified, the notice is only logged. Notices that were only
// logged are not retried. A notice to a deleted team is discarded. After other errors, the job is retried according to
// its schedule; after the last retry it waits for an operator.
//
// # Out of scope
//
// Package notifications does not decide when to notify a team.
package notifications

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Kind is the job kind for notices. A notice job's lane is the id of the notified team.
const Kind = "notice"

// Config holds the settings for notices.
type Config struct {
	From         string // sender address, at a domain of the operator's team; if empty, no notices are sent
	OperatorTeam string // id of the team that sends notices; empty means the oldest team
}

// perDay is the maximum number of notices that a node sends to a team within 24 hours.
const perDay = 20

// Service sends notices.
type Service struct {
	c      Config
	d      *db.DB
	q      *jobs.Queue
	emails *emails.Service
	teams  *teams.Service
	log    *slog.Logger

	mu   sync.Mutex
	sent map[string][]time.Time // times of the notices to each team within the last 24 hours
}

// New returns the notification service.
func New(c Config, d *db.DB, q *jobs.Queue, e *emails.Service, t *teams.Service, log *slog.Logger) *Service {
	return &Service{c: c, d: d, q: q, emails: e, teams: t, log: log, sent: map[string][]time.Time{}}
}

// notice is the payload of a notice job.
type notice struct {
	To      string `json:"to,omitzero"` // address of one person; empty means the team's address
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Notify enqueues a notice to a team in the transaction that causes the notice.
func (s *Service) Notify(ctx context.Context, tx *db.Tx, teamID, subject, text string) error {
	return s.queue(ctx, tx, teamID, notice{Subject: subject, Text: text})
}

// Mail enqueues an email to one person, such as an invitation, in the transaction that causes the email. Callers of
// Mail must limit the number of emails. The email's text is deleted together with its job after sending. The operator's
// team sends the email but cannot read its text, because links in the text are only for the recipient.
func (s *Service) Mail(ctx context.Context, tx *db.Tx, to, subject, text string) error {
	return s.queue(ctx, tx, "", notice{to, subject, text})
}

func (s *Service) queue(ctx context.Context, tx *db.Tx, teamID string, n notice) error {
	payload, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode a notice: %w", err)
	}
	s.q.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: teamID, TeamID: teamID, Payload: string(payload)})
	return nil
}

// Kind returns the settings of the job kind that sends notices.
func (s *Service) Kind() jobs.Kind {
	return jobs.Kind{Name: Kind, Handle: s.handle, Workers: 4, PerLane: 1, Lease: time.Minute,
		Schedule: []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour}}
}

func (s *Service) handle(ctx context.Context, j jobs.Job) error {
	var n notice
	if err := json.Unmarshal([]byte(j.Payload), &n); err != nil {
		return fmt.Errorf("read the payload of a notice: %w", err)
	}
	if err := s.send(ctx, j, n); err != nil {
		return err
	}
	return s.q.End(ctx, j)
}

// send sends a notice, or logs it if it cannot be sent. If a retry may succeed, send returns an error.
func (s *Service) send(ctx context.Context, j jobs.Job, n notice) error {
	if n.To != "" {
		// The text is not logged, because it may contain a secret. Therefore the lines are no copy of it and may be limited.
		return s.mail(ctx, j, n, true, func(why string, args ...any) {
			s.log.With("subject", n.Subject).WarnContext(ctx, why, args...)
		})
	}
	warn := func(why string, args ...any) { // without the log's limit, because the line is the only copy of the notice
		s.log.With("team", j.TeamID, "subject", n.Subject, "text", n.Text).WarnContext(lograte.Unlimited(ctx), why, args...)
	}
	team, err := s.teams.Get(ctx, j.TeamID)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	case s.c.From == "":
		warn("notice not sent: set notice_from to send notices to teams")
		return nil
	case team.Email == "":
		warn("notice not sent: the team has no address")
		return nil
	}
	if !s.allow(team.ID, time.Now()) {
		warn("notice not sent: the team has reached its daily limit of notices")
		return nil
	}
	n.To = team.Email
	return s.mail(ctx, j, n, false, warn)
}

// mail sends a notice to its address, or calls warn with the reason why it cannot be sent. If private is true, the
// operator's team cannot read the notice's text.
func (s *Service) mail(ctx context.Context, j jobs.Job, n notice, private bool,
	warn func(why string, args ...any)) error {
	if s.c.From == "" {
		warn("email to a person not sent: set notice_from to send such emails")
		return nil
	}
	operator, err := s.teams.Operator(ctx, s.c.OperatorTeam)
	if err != nil {
		return fmt.Errorf("find the operator's team: %w", err)
	}
	e := emails.Send{From: s.c.From, To: []string{n.To}, Subject: n.Subject, Text: &n.Text}
	if private {
		e.Tags = []emails.Tag{emails.Private}
	}
	_, err = s.emails.Send(ctx, teams.System(operator.ID), e, emails.Idempotency{Key: "notice/" + j.ID, Scope: Kind})
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind != fault.Unavailable {
		warn("notice not sent: its email was refused", "error", err)
		return nil
	}
	return err
}

// allow counts a notice to a team, and reports whether the number of notices is within the daily limit.
func (s *Service) allow(teamID string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for team, all := range s.sent {
		all = slices.DeleteFunc(all, func(at time.Time) bool { return now.Sub(at) >= 24*time.Hour })
		if s.sent[team] = all; len(all) == 0 {
			delete(s.sent, team)
		}
	}
	if len(s.sent[teamID]) >= perDay {
		return false
	}
	s.sent[teamID] = append(s.sent[teamID], now)
	return true
}
