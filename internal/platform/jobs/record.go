package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	recordTime  = 10 * time.Second // time limit for one attempt
	recordPause = 5 * time.Second  // maximum pause between attempts
)

// Record runs fn, which records the outcome of a job, in an update. Record repeats the update until it succeeds, and
// makes one last attempt after ctx has ended. A job without a recorded outcome runs again, and only this process knows
// the outcome. The function fn must end the job, so that an outcome is not recorded twice. Record returns ErrLost if
// another node has the job.
func (q *Queue) Record(ctx context.Context, fn func(*db.Tx) error) error {
	pause := 100 * time.Millisecond
	for made := false; ; { // true once an update that returned an error may have been committed
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
