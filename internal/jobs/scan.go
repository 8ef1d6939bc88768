package jobs

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/db"
)

const (
	scanAlone  = time.Minute      // between scans for lanes when every insert is seen
	scanShared = 10 * time.Second // and when other nodes insert
	scanPage   = 500
	scanRest   = 19 // after each page of a regular scan, times as long as it took
)

const scanLanes = `WITH RECURSIVE l (lane) AS (
	SELECT MIN(lane) FROM jobs WHERE kind = $1 AND lane > $2
	UNION ALL
	SELECT (SELECT MIN(j.lane) FROM jobs j WHERE j.kind = $1 AND j.lane > l.lane) FROM l WHERE l.lane IS NOT NULL)
	SELECT l.lane, (SELECT MIN(j.run_at) FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane)
	FROM l WHERE l.lane IS NOT NULL LIMIT $3`

// scanAll scans now and then, and at once when it is asked to, until ctx ends. It runs beside the loop. A regular scan
// finds what hints missed, and nobody waits for it: it takes a twentieth of the time, so that with 200,000 lanes it needs a
// minute or two, and the nodes do not keep the database busy with it.
func (k *dispatcher) scanAll(ctx context.Context) {
	every := scanShared
	if k.r.d.Alone() {
		every = scanAlone
	}
	took, rest := time.Duration(0), 0
	for ctx.Err() == nil {
		began, wait := time.Now(), every
		switch asked, err := k.scan(ctx, 2*(every+took), rest); {
		case err != nil:
			wait = k.failed(ctx, err)
		case asked:
			rest = 0
			continue
		}
		took, rest = time.Since(began), scanRest
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-k.look:
			rest = 0
		}
	}
}

// scan looks which lanes there are, one step of the index each, however many jobs they hold, and hints at those that
// have something due soon. The next scan finds the others before they are due. After each page it rests so many times as
// long as that took; when it is asked for a scan at once meanwhile, it ends, and says so.
func (k *dispatcher) scan(ctx context.Context, soon time.Duration, rest int) (asked bool, err error) {
	last := ""
	for {
		began, until := time.Now(), k.r.d.Now().Add(soon).UnixMicro()
		rows, err := k.r.d.Query(ctx, scanLanes, k.Name, last, scanPage)
		n := 0
		due := map[string]int64{}
		_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
			var at int64
			if err := r.Scan(&last, &at); err != nil {
				return struct{}{}, err
			}
			if n++; at < until {
				due[last] = at
			}
			return struct{}{}, nil
		})
		if err != nil {
			return false, err
		}
		k.mu.Lock()
		for lane, at := range due {
			k.note(lane, at)
		}
		k.mu.Unlock()
		if len(due) > 0 {
			k.wake()
		}
		if n < scanPage {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(time.Duration(rest) * time.Since(began)):
		case <-k.look:
			return true, nil
		}
	}
}
