package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/db"
)

const (
	recordTime  = 10 * time.Second // for one update
	recordPause = 5 * time.Second  // between two, at most
)

// Record is an Update of what came of a job's work. It is made until it succeeds, for as long as the handler's context
// lasts and once more: what a host has answered is known to nobody else, and work whose outcome is lost is done again.
// fn ends the job, so that nothing is recorded twice. The error is ErrLost when another node has the job.
func (q *Queue) Record(ctx context.Context, fn func(*db.Tx) error) error {
	pause := 100 * time.Millisecond
	for made := false; ; { // it may have been, although it seemed to fail
		last := ctx.Err() != nil
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		err := q.d.UpdateTogether(limited, db.Recording, fn)
		cancel()
		switch {
		case errors.Is(err, ErrLost) && made:
			return nil
		case err == nil, errors.Is(err, ErrLost), last:
			return err
		}
		made = made || !errors.Is(err, db.ErrUnavailable)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, recordPause)
	}
}
