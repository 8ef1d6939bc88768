// Package retention deletes what is older than it is to be kept: emails, their bodies, received emails, timelines.
//
// For how long is a setting of the installation, and each team may have shorter times. What is deleted, and how, is
// known to the packages that have it; each gives a [Step], which deletes one batch of one team in a transaction of
// some milliseconds. This package decides when: it goes through the teams in rounds, so that none waits for the end
// of another that has millions of emails, and after each batch it waits for as long as the batch took, so that at
// most half of the time of SQLite's only writer is its own.
//
// # When it fails
//
// It may stop or be killed anywhere: what is left is found again. What fails for one team is returned when all others
// have had their turn. [Service.Run] ends after [runTime] at the latest, and goes on when it is called next.
//
// It does not delete what erasing an address or a team deletes, nor webhooks' messages and the request log, which have
// retentions of their own.
package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/teams"
)

const (
	runTime = 10 * time.Minute // of one Run
	stretch = 50               // batches of one rule and team before the others have their turn
	page    = 500              // teams that are read at once
)

// Step deletes a batch of what a team has from before a time, from where after says, which is "" at first. It returns
// where to go on, or "" when nothing is left.
type Step func(ctx context.Context, teamID string, before time.Time, after string) (next string, err error)

// Rule is something that is deleted when it is old.
type Rule struct {
	Name string
	Kept func(teams.Retention) time.Duration // for how long; 0 is without end
	Step Step
}

// Service runs the rules.
type Service struct {
	most  teams.Retention
	teams *teams.Service
	now   func() time.Time
	rules []Rule
}

// New returns the service. most is the retention of the installation, and now the clock by which things have their age.
func New(most teams.Retention, t *teams.Service, now func() time.Time, rules ...Rule) *Service {
	return &Service{most, t, now, rules}
}

// task is a rule that is applied to a team.
type task struct {
	rule   *Rule
	teamID string
	before time.Time
	after  string
}

// Run deletes all that is too old at present. It returns nil when its time is over.
func (s *Service) Run(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	var left []*task
	var failed error
	apply := func(t *task) {
		more, err := t.apply(limited)
		if more && err == nil {
			left = append(left, t)
		}
		if err != nil && limited.Err() == nil {
			failed = errors.Join(failed, fmt.Errorf("delete old %s of team %s: %w", t.rule.Name, t.teamID, err))
		}
	}
	err := s.each(limited, apply)
	for len(left) > 0 && limited.Err() == nil {
		round := left
		left = nil
		for _, t := range round {
			apply(t)
		}
	}
	if limited.Err() != nil {
		return errors.Join(failed, ctx.Err())
	}
	return errors.Join(failed, err)
}

// each gives every rule that holds for a team, and for which something may be too old.
func (s *Service) each(ctx context.Context, do func(*task)) error {
	now := s.now()
	for after := ""; ; {
		some, err := s.teams.Retentions(ctx, after, page)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, team := range some {
			kept := team.Within(s.most)
			for i := range s.rules {
				if d := s.rules[i].Kept(kept); d > 0 {
					do(&task{rule: &s.rules[i], teamID: team.TeamID, before: now.Add(-d)})
				}
			}
			after = team.TeamID
		}
	}
}

// apply deletes for a stretch, and reports whether there may be more.
func (t *task) apply(ctx context.Context) (more bool, err error) {
	for range stretch {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		began := time.Now()
		if t.after, err = t.rule.Step(ctx, t.teamID, t.before, t.after); err != nil || t.after == "" {
			return false, err
		}
		wait := time.NewTimer(time.Since(began))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
	return true, nil
}
