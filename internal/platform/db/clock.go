package db

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	clockEvery = 5 * time.Second      // interval between readings of the server's clock
	clockLimit = 2 * time.Second      // time limit for one reading while a node runs
	clockGood  = 5 * time.Millisecond // a reading that takes at most this long always replaces the stored reading
	clockOld   = time.Minute
	clockTries = 3 // number of readings at the start; the first reading also opens the connection

	// startLimit is the time limit for the connection and for each reading at the start. A busy server must not keep nodes
	// from starting.
	startLimit = 15 * time.Second
)

// clock is the time shared by all processes that use one database. The clock is the server's time at the last reading
// plus the time that has passed since then, as measured by this machine's monotonic clock. The zero value of clock is
// this machine's clock.
type clock struct{ last atomic.Pointer[reading] }

// reading is one reading of the server's clock.
type reading struct {
	at     time.Time // this machine's time when the reading was taken
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

// heard stores a reading of the server's clock; asked and answered are the times of the request and of the response.
// The longer a reading takes, the less accurate it is. The heard method drops a reading that took longer than both
// clockGood and the stored reading, unless the stored reading is older than clockOld.
func (c *clock) heard(asked, answered, server time.Time) {
	took := answered.Sub(asked)
	if old := c.last.Load(); old != nil && took > max(old.took, clockGood) && answered.Sub(old.at) < clockOld {
		return
	}
	c.last.Store(&reading{at: answered, server: server.Add(took / 2), took: took})
}

// Now returns the current time in whole microseconds UTC. On PostgreSQL, Now returns the server's time, so that times
// written by different nodes can be compared. The result differs from the server's clock by at most half a round trip.
// On SQLite, Now returns this machine's time.
func (d *DB) Now() time.Time { return d.e.now() }

// ClockOffset returns the server's clock minus this machine's clock, with an error of at most half a round trip. On
// SQLite, ok is false.
func (d *DB) ClockOffset() (offset time.Duration, ok bool) {
	if d.Alone() {
		return 0, false
	}
	return d.Now().Sub(Now()), true
}

// readClock reads the server's time within a limit.
func (p *postgresDB) readClock(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var us int64
	asked := time.Now()
	err := p.apart.QueryRow(ctx, `SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT`).Scan(&us)
	if err == nil {
		p.clock.heard(asked, time.Now(), time.UnixMicro(us))
	}
	return err
}

// keepTime reads the server's clock at intervals of clockEvery until ctx ends. If the server does not answer, the last
// reading stays valid.
func (p *postgresDB) keepTime(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = p.readClock(ctx, clockLimit)
		}
	}
}

func (p *postgresDB) now() time.Time { return p.clock.now() }

func (s *sqliteDB) now() time.Time { return Now() }

func (s *sqliteDB) keepTime(context.Context) {}
