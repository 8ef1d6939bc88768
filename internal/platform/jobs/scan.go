package jobs

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	scanAlone  = time.Minute      // time between scans if this node is notified of every insert
	scanShared = 10 * time.Second // time between scans if other nodes also insert jobs
	scanPage   = 500
	scanRest   = 19 // pause after each page of a regular scan, as a multiple of the time that the page took
)

// scanAll scans all lanes regularly, and immediately when a value arrives on the look channel, until ctx ends. The
// dispatcher runs scanAll in a separate goroutine. Regular scans find jobs whose hints were lost, and jobs that became
// due before the time from which claims read their lane. Regular scans are active for a twentieth of the time, to limit
// the load on the database. A regular scan of 200,000 lanes takes one or two minutes.
func (k *dispatcher) scanAll(ctx context.Context) {
	every := k.r.scans
	took, rest := time.Duration(0), 0
	for ctx.Err() == nil {
		began, wait := time.Now(), every
		switch asked, err := k.scan(ctx, 2*(every+took), rest); {
		case err != nil:
			wait = max(k.failed(ctx, err), min(scanRest*time.Since(began), scanAlone))
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

// scan reads all lanes, with one index look-up per lane, and records the lanes with jobs due soon. Jobs that are due
// later are found by the next scan before they are due. After each page, scan pauses for the time that the page took,
// multiplied by rest. If a value arrives on the look channel during a pause, scan continues without pauses and returns
// true, so that another scan follows.
func (k *dispatcher) scan(ctx context.Context, soon time.Duration, rest int) (asked bool, err error) {
	text, last := scanLanesOnce, ""
	if k.r.d.Alone() {
		text = scanLanes
	}
	for {
		began, until := time.Now(), k.r.d.Now().Add(soon).UnixMicro()
		rows, err := k.r.d.Query(ctx, text, k.Name, last, scanPage)
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
			return asked, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(time.Duration(rest) * time.Since(began)):
		case <-k.look:
			asked, rest = true, 0
		}
	}
}
