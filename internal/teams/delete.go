package teams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/jobs"
)

// EraseKind is the kind of the jobs that take away what deleted teams leave.
const EraseKind = "teams.erase"

const (
	eraseLease = 15 * time.Minute
	eraseTime  = 10 * time.Minute // that one attempt takes; what is left then is another attempt's
	eraseRows  = 500              // in one transaction
	// settleTime is how long after its deletion a team's row stays: requests, deliveries and received mail that had
	// begun before may leave rows until they end. They are taken away by a second pass.
	settleTime = time.Hour
)

// Eraser takes away what a resource has of a team, in bounded transactions. It may be interrupted and is called again;
// files go before the rows that name them.
type Eraser func(ctx context.Context, teamID string) error

// Delete deletes a team. From its commit on nobody is it: keys, names and ids find nothing, and mail that it handed in
// is not sent any more, but for what a host is being told at that moment. What belongs to it is taken away by a job.
func (s *Service) Delete(ctx context.Context, q *jobs.Queue, teamID string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		if err := markDeleted(ctx, tx, teamID); err != nil {
			return err
		}
		// The job is nobody's, so that it does not take itself away with the team's.
		q.Insert(ctx, tx, jobs.New{Kind: EraseKind, Dedupe: teamID, Payload: teamID})
		s.changed(tx, teamID)
		return nil
	})
}

// EraseJobs is how what deleted teams leave is taken away, by each eraser in turn.
func (s *Service) EraseJobs(q *jobs.Queue, all ...Eraser) jobs.Kind {
	return jobs.Kind{Name: EraseKind, Workers: 1, Lease: eraseLease,
		Schedule: []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour},
		Handle: func(ctx context.Context, j jobs.Job) error {
			again, err := s.erase(ctx, j.Payload, all)
			if err != nil {
				return fmt.Errorf("erase team %s: %w", j.Payload, err)
			}
			return s.d.Update(ctx, func(tx *db.Tx) error {
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

// erase takes away what a deleted team has, and returns when to do so again; the zero time is never.
func (s *Service) erase(ctx context.Context, teamID string, all []Eraser) (again time.Time, err error) {
	at, found, err := deletedAt(ctx, s.d.Reader, teamID)
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
				return s.d.Now(), nil
			}
			return time.Time{}, err
		}
	}
	if settled := at.Add(settleTime); settled.After(s.d.Now()) {
		return settled, nil
	}
	return time.Time{}, nil
}

func (s *Service) eraseKeys(ctx context.Context, teamID string) error {
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteKeys(ctx, tx, teamID, eraseRows) })
}
