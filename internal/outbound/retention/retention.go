// Package retention deletes data that is older than its retention period: emails, their bodies, received emails, and
// timelines.
//
// The periods are settings of the installation, and each team may have shorter ones. The packages that own the rows
// decide what to delete: each provides a [Step], which deletes one batch of one team in a transaction of a few
// milliseconds. This package decides when. It visits the teams in rounds, so that no team waits for another one that
// has millions of emails. After each batch it pauses as long as the batch took, so that it uses at most half of the
// time of SQLite's only writer.
//
// # When it fails
//
// It may stop or be killed at any point; the next run finds the remaining rows. An error for one team is returned after
// all other teams had their turn. [Service.Run] ends after [runTime] at the latest. The next call starts with the first
// team again.
//
// # What it does not do
//
// The package does not erase addresses or teams. Webhook messages and the request log have retention of their own.
package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

const (
	runTime        = 10 * time.Minute // the maximum duration of one Run
	batchesPerTurn = 50               // batches of one rule and team before the next has its turn
	teamsPerQuery  = 500              // teams read by one query
)

// Step deletes one batch of a team's rows that are older than before. after is the position at which to continue, "" at
// first. next is the position of the next batch, or "" when no rows are left.
type Step func(ctx context.Context, teamID string, before time.Time, after string) (next string, err error)

// Rule describes a kind of rows that are deleted when they are old.
type Rule struct {
	Name   string
	Period func(teams.Retention) time.Duration // how long rows are kept; 0 means forever
	Step   Step
}

// Service applies the rules.
type Service struct {
	most  teams.Retention
	teams *teams.Service
	now   func() time.Time
	rules []Rule
}

// New returns the service. most has the retention periods of the installation, and now is the clock that measures ages.
func New(most teams.Retention, t *teams.Service, now func() time.Time, rules ...Rule) *Service {
	return &Service{most, t, now, rules}
}

// task is one rule for one team.
type task struct {
	rule   *Rule
	teamID string
	before time.Time
	after  string
}

// Run deletes all rows that are too old now. It returns nil if it reaches runTime.
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

// each calls do for every team and every rule whose rows can expire for the team.
func (s *Service) each(ctx context.Context, do func(*task)) error {
	now := s.now()
	for after := ""; ; {
		some, err := s.teams.Retentions(ctx, after, teamsPerQuery)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, team := range some {
			kept := team.Effective(s.most)
			for i := range s.rules {
				if d := s.rules[i].Period(kept); d > 0 {
					do(&task{rule: &s.rules[i], teamID: team.TeamID, before: now.Add(-d)})
				}
			}
			after = team.TeamID
		}
	}
}

// apply deletes up to batchesPerTurn batches, and reports whether there may be more.
func (t *task) apply(ctx context.Context) (more bool, err error) {
	for range batchesPerTurn {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		began := time.Now()
		if t.after, err = t.rule.Step(ctx, t.teamID, t.before, t.after); err != nil {
			return false, err
		}
		wait := time.NewTimer(time.Since(began)) // also after the last batch: another batch follows at once
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		if t.after == "" {
			return false, nil
		}
	}
	return true, nil
}
