// Package retention deletes data that is older than its retention period: emails, email bodies, received emails,
// timelines, the request log, and messages to webhooks.
//
// The retention periods are settings of the installation, and each team may have shorter periods of some. The packages
// that own the rows decide what to delete: each provides a [Step], which deletes one batch of a team's rows in a
// transaction of a few milliseconds. Package retention decides when to delete. Run visits the teams in rounds, so that
// no team has to wait for a team with millions of emails. After each batch, Run pauses for as long as the batch took,
// so that deletion takes at most half of the time that SQLite's only writer has.
//
// # Partitions
//
// On PostgreSQL, emails, the request log and webhook messages are in partitions by time. When the longest retention
// period of any team has passed for a whole partition, [Service.Partition] drops it. Run leaves rows to such a drop if
// it is due within a day. A row may therefore be kept up to a day longer than its retention period. All other rows are
// deleted in batches, for example those of teams with a shorter period, and those of a partition that could not be
// dropped for two days.
//
// # Failures
//
// If Run stops or is killed at any point, the next run finds the remaining rows. An error for one team is returned
// after all other teams have been processed. [Service.Run] ends after [runTime] at the latest. The next call to Run
// starts again with the first team.
//
// Nodes share the work of Run: [Service.RunPart] does it for one range of teams.
//
// # Out of scope
//
// Package retention does not erase addresses or teams. Package audit deletes old entries of the audit log.
package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/partitions"
)

const (
	runTime        = 10 * time.Minute // maximum duration of one Run
	batchesPerTurn = 50               // maximum number of batches for one rule and team before another task runs
	teamsPerQuery  = 500              // number of teams that one query reads
)

// Step deletes one batch of a team's rows that are older than the given time. The parameter after is the position at
// which to continue, or "" for the first batch. Step returns the position of the next batch, or "" if no rows remain.
type Step func(ctx context.Context, teamID string, before time.Time, after string) (next string, err error)

// Rule describes a kind of row that is deleted when it exceeds its retention period.
type Rule struct {
	Name   string
	Period func(teams.Retention) time.Duration // retention period; 0 means that rows are kept forever
	Step   Step

	// Dropped is the family of tables of these rows, of which whole partitions are dropped; see Drops. Other rows have
	// none.
	Dropped partitions.Family
}

// Service deletes rows according to the retention rules.
type Service struct {
	most  teams.Retention
	teams *teams.Service
	now   func() time.Time
	rules []Rule
	drops *Drops // nil if no partitions are dropped
}

// New returns the retention service. The parameter most holds the installation's retention periods, and now is the
// clock that measures the age of rows.
func New(most teams.Retention, t *teams.Service, now func() time.Time, rules ...Rule) *Service {
	return &Service{most: most, teams: t, now: now, rules: rules}
}

// task is the work of one rule for one team.
type task struct {
	rule   *Rule
	teamID string
	before time.Time
	after  string
}

// Run deletes all rows that currently exceed their retention period. Run also returns nil if it stops after runTime.
func (s *Service) Run(ctx context.Context) error { return s.RunPart(ctx, jobs.Whole) }

// RunPart does the work of Run for the teams whose short ids are in the range of the part.
func (s *Service) RunPart(ctx context.Context, p jobs.Part) error {
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
	err := s.each(limited, p, apply)
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

// each calls the function do for every combination of a team of the part and a rule whose rows can expire for that
// team.
func (s *Service) each(ctx context.Context, p jobs.Part, do func(*task)) error {
	now := s.now()
	leftToDrop, err := s.leftToDrop(ctx, now)
	if err != nil {
		return err
	}
	for after, last := p.Range(); ; {
		some, err := s.teams.RetentionsOf(ctx, after, last, teamsPerQuery)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, team := range some {
			kept := team.Effective(s.most)
			for i := range s.rules {
				if d := s.rules[i].Period(kept); d > 0 {
					before := now.Add(-d)
					if left, ok := leftToDrop[s.rules[i].Dropped.Name]; ok && d == left.longest && left.since.Before(before) {
						before = left.since
					}
					do(&task{rule: &s.rules[i], teamID: team.TeamID, before: before})
				}
			}
			after = team.Short
		}
	}
}

// apply deletes up to batchesPerTurn batches, and reports whether more rows may remain.
func (t *task) apply(ctx context.Context) (more bool, err error) {
	for range batchesPerTurn {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		began := time.Now()
		if t.after, err = t.rule.Step(ctx, t.teamID, t.before, t.after); err != nil {
			return false, err
		}
		// Pause even after the task's last batch, because a batch of another task follows immediately.
		wait := time.NewTimer(time.Since(began))
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
