// Package notices emails teams about their account: that a webhook endpoint fails or was disabled, that another team
// claims their domain.
//
// # Invariants
//
// A notice is a job, inserted in the transaction that causes it, so it is neither lost nor sent without cause. The
// job sends an ordinary email in the name of the operator's team. It sends it once, however often the job runs,
// because the job's id is the idempotency key. A node sends a team at most [perDay] notices in 24 hours, counted in
// memory; it logs the others.
//
// # When it fails
//
// A notice is logged and not sent if no sender is configured, if the team has no address, or if the email is refused,
// for example because the sender's domain is not verified: that is not retried. A notice to a team that was deleted
// is dropped. Other errors are retried by the schedule of the job, which is then parked.
//
// # What it does not do
//
// It does not decide what a team is notified of.
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
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Kind is the kind of the jobs that send notices. Their lane is the team that is notified.
const Kind = "notice"

// Config is the settings of notices.
type Config struct {
	From         string // sender, at a domain of the operator's team; if empty, no notice is sent
	OperatorTeam string // id of the team in whose name notices are sent; empty is the oldest team
}

// perDay is how many notices a node sends a team within 24 hours.
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
	sent map[string][]time.Time // by team, within the last day
}

// New returns the service.
func New(c Config, d *db.DB, q *jobs.Queue, e *emails.Service, t *teams.Service, log *slog.Logger) *Service {
	return &Service{c: c, d: d, q: q, emails: e, teams: t, log: log, sent: map[string][]time.Time{}}
}

// notice is the payload of a job.
type notice struct {
	To      string `json:"to,omitzero"` // one person; empty is the team's address
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Tell queues a notice to a team, in the transaction that causes it.
func (s *Service) Tell(ctx context.Context, tx *db.Tx, teamID, subject, text string) error {
	return s.queue(ctx, tx, teamID, notice{Subject: subject, Text: text})
}

// Mail queues an email to one person, such as an invitation, in the transaction that causes it. The caller bounds how
// many there are. The text is deleted with the job when it is sent. The email is one of the operator's team, which
// cannot read its text: links in it are for the recipient alone.
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

// Kind describes the jobs that send notices.
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

// send sends the notice, or logs it when it cannot be sent. It returns only errors that are worth another try.
func (s *Service) send(ctx context.Context, j jobs.Job, n notice) error {
	if n.To != "" {
		return s.mail(ctx, j, n, true, s.log.With("subject", n.Subject)) // the text may have a link that is a secret
	}
	log := s.log.With("team", j.TeamID, "subject", n.Subject, "text", n.Text)
	team, err := s.teams.Get(ctx, j.TeamID)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	case s.c.From == "":
		log.Warn("a notice is not sent: set notice_from to have such sent to the team")
		return nil
	case team.Email == "":
		log.Warn("a notice is not sent: the team has no address")
		return nil
	}
	if !s.may(team.ID, time.Now()) {
		log.Warn("a notice is not sent: the team has had enough of them today")
		return nil
	}
	n.To = team.Email
	return s.mail(ctx, j, n, false, log)
}

// mail sends a notice to its address, or logs that it cannot be sent. The text of a private one cannot be read by the
// operator's team.
func (s *Service) mail(ctx context.Context, j jobs.Job, n notice, private bool, log *slog.Logger) error {
	if s.c.From == "" {
		log.Warn("an email to a person is not sent: set notice_from to have such sent")
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
		log.Warn("a notice is not sent: its email was refused", "error", err)
		return nil
	}
	return err
}

// may reports whether a team may have one more notice, and counts it.
func (s *Service) may(teamID string, now time.Time) bool {
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
