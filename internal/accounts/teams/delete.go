package teams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// EraseKind is the kind of job that deletes a deleted team's data.
const EraseKind = "teams.erase"

const (
	eraseLease = 15 * time.Minute
	eraseTime  = 10 * time.Minute // time limit for one attempt; the next attempt continues the work
	eraseRows  = 500              // rows deleted per transaction
	// settleTime is how long a deleted team's row is kept. Requests, deliveries and incoming mail that were in progress
	// during the deletion may still write rows. A second pass deletes these rows after settleTime.
	settleTime = time.Hour
)

// Eraser deletes, in short transactions, the data that one package stores for a team. If an Eraser is interrupted, it
// is called again. An Eraser must delete files before the rows that refer to them.
type Eraser func(ctx context.Context, teamID string) error

// Delete deletes a team. After the commit, the team and its keys can no longer be looked up. No more of the team's mail
// is sent, except messages that are already being transmitted. A job deletes the team's data.
func (s *Service) Delete(ctx context.Context, q *jobs.Queue, teamID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := markDeleted(ctx, tx, teamID); err != nil {
			return err
		}
		// The job belongs to no team, so that erasing the team's jobs does not delete this job.
		q.Insert(ctx, tx, jobs.New{Kind: EraseKind, Dedupe: teamID, Payload: teamID})
		s.changed(tx, teamID)
		return nil
	})
}

// EraseJobs returns the kind of job that deletes a deleted team's data. A job calls the erasers one after another.
func (s *Service) EraseJobs(q *jobs.Queue, all ...Eraser) jobs.Kind {
	return jobs.Kind{Name: EraseKind, Workers: 1, Lease: eraseLease,
		Schedule: []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour},
		Handle: func(ctx context.Context, j jobs.Job) error {
			again, err := s.erase(ctx, j.Payload, all)
			if err != nil {
				return fmt.Errorf("erase team %s: %w", j.Payload, err)
			}
			return s.DB.Update(ctx, func(tx *db.Tx) error {
				if again.IsZero() {
					removeTeam(ctx, tx, j.Payload)
					q.Finish(ctx, tx, j)
					return nil
				}
				q.Retry(ctx, tx, j, again, "more to take away")
				return nil
			})
		}}
}

// erase deletes a deleted team's data. The result is the time at which erase must be called again, or the zero time if
// no data remains.
func (s *Service) erase(ctx context.Context, teamID string, all []Eraser) (again time.Time, err error) {
	at, found, err := deletedAt(ctx, s.DB.Reader, teamID)
	if err != nil || !found {
		return time.Time{}, err
	}
	if at.IsZero() {
		return time.Time{}, errors.New("the team is not deleted")
	}
	limited, cancel := context.WithTimeout(ctx, eraseTime)
	defer cancel()
	for _, f := range append([]Eraser{s.eraseKeys}, all...) {
		if err := f(limited, teamID); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				return s.DB.Now(), nil
			}
			return time.Time{}, err
		}
	}
	if settled := at.Add(settleTime); settled.After(s.DB.Now()) {
		return settled, nil
	}
	return time.Time{}, nil
}

func (s *Service) eraseKeys(ctx context.Context, teamID string) error {
	return s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteKeys(ctx, tx, teamID, eraseRows) })
}
