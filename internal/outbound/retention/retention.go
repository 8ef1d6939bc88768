// Package retention deletes what is older than its retention time: emails, their bodies, received emails, timelines.
//
// The times are settings of the installation, and each team may have shorter ones. The packages that own the rows
// know what is deleted and how: each provides a [Step], which deletes one batch of one team in a transaction of some
// milliseconds. This package decides when: it goes through the teams in rounds, so that no team waits for another
// that has millions of emails, and after each batch it waits as long as the batch took, so that it uses at most half
// of the time of SQLite's only writer.
//
// # When it fails
//
// It may stop or be killed at any point: what is left is found again. An error for one team is returned after all
// other teams have had their turn. [Service.Run] ends after [runTime] at the latest; the next call begins at
// the first team again.
//
// # What it does not do
//
// It does not delete what erasing an address or a team deletes, nor messages of webhooks and the request log, which
// have their own retention.
package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

const (
	runTime = 10 * time.Minute // the longest time of one Run
	stretch = 50               // batches of one rule and team in a row
	page    = 500              // teams read in one query
)

// Step deletes a batch of what a team has from before a time. after is where to continue, "" at first. It returns
// where to continue, or "" when nothing is left.
type Step func(ctx context.Context, teamID string, before time.Time, after string) (next string, err error)

// Rule is a kind of rows that are deleted when they are old.
type Rule struct {
	Name string
	Kept func(teams.Retention) time.Duration // how long rows are kept; 0 means forever
	Step Step
}

// Service applies the rules.
type Service struct {
	most  teams.Retention
	teams *teams.Service
	now   func() time.Time
	rules []Rule
}

// New returns the service. most is the retention of the installation, and now the clock by which ages are measured.
func New(most teams.Retention, t *teams.Service, now func() time.Time, rules ...Rule) *Service {
	return &Service{most, t, now, rules}
}

// task is a rule to apply to a team.
type task struct {
	rule   *Rule
	teamID string
	before time.Time
	after  string
}

// Run deletes everything that is too old now. It returns nil when its time is over.
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

// each calls do for every team and every rule by which its rows expire.
func (s *Service) each(ctx context.Context, do func(*task)) error {
	now := s.now()
	for after := ""; ; {
		some, err := s.teams.Retentions(ctx, after, page)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, team := range some {
			kept := team.Effective(s.most)
			for i := range s.rules {
				if d := s.rules[i].Kept(kept); d > 0 {
					do(&task{rule: &s.rules[i], teamID: team.TeamID, before: now.Add(-d)})
				}
			}
			after = team.TeamID
		}
	}
}

// apply deletes up to stretch batches, and reports whether there may be more.
func (t *task) apply(ctx context.Context) (more bool, err error) {
	for range stretch {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		began := time.Now()
		if t.after, err = t.rule.Step(ctx, t.teamID, t.before, t.after); err != nil {
			return false, err
		}
		wait := time.NewTimer(time.Since(began)) // after the last batch too: the next team's follows at once
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
