package db

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	clockEvery = 5 * time.Second      // between two readings of the server's clock
	clockLimit = 2 * time.Second      // for one
	clockGood  = 5 * time.Millisecond // a reading that took no longer is as good as any
	clockOld   = time.Minute
	clockTries = 3 // at the start; the first reading also opens the connection
)

// clock is the time that all processes on one database share: that of the server, as it was read last, and how much has
// passed here since, by the monotonic clock. Without a server it is this machine's. Its zero value is this machine's.
type clock struct{ last atomic.Pointer[reading] }

// reading is one reading of the server's clock.
type reading struct {
	at     time.Time // when, here
	server time.Time
	took   time.Duration
}

func (c *clock) now() time.Time {
	r := c.last.Load()
	if r == nil {
		return Now()
	}
	return r.server.Add(time.Since(r.at)).UTC().Truncate(time.Microsecond)
}

// heard takes in what the server said, which was asked and answered at these times. A reading that took longer than one
// that is not old tells less.
func (c *clock) heard(asked, answered, server time.Time) {
	took := answered.Sub(asked)
	if old := c.last.Load(); old != nil && took > max(old.took, clockGood) && answered.Sub(old.at) < clockOld {
		return
	}
	c.last.Store(&reading{at: answered, server: server.Add(took / 2), took: took})
}

// Now is the present in whole microseconds UTC. On PostgreSQL it is by the server's clock, so that what one node writes
// another may compare, whatever their own clocks say; it is off by half a round trip at most.
func (d *DB) Now() time.Time { return d.e.now() }

// readClock asks the server for its time.
func (p *postgresDB) readClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockLimit)
	defer cancel()
	var us int64
	asked := time.Now()
	err := p.apart.QueryRow(ctx, `SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT`).Scan(&us)
	if err == nil {
		p.clock.heard(asked, time.Now(), time.UnixMicro(us))
	}
	return err
}

// keepTime reads the server's clock now and then until ctx ends. Without an answer the last reading stands.
func (p *postgresDB) keepTime(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = p.readClock(ctx)
		}
	}
}

func (p *postgresDB) now() time.Time { return p.clock.now() }

func (s *sqliteDB) now() time.Time { return Now() }

func (s *sqliteDB) keepTime(context.Context) {}
