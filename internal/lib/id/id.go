// Package id creates and checks the ids of database rows.
//
// # Invariants
//
// Every id is a lower-case UUID of version 7 (RFC 9562 section 5.7). An id begins with the time in milliseconds, so ids
// sort by age and the cursor of a list is just an id. Within one process, ids from [New] are strictly increasing, even
// if the clock stops or steps back. Ids from [At] are strictly increasing unless the clock steps back by a minute or
// more.
//
// Lists that clients poll for new rows need ids from At, created in the transaction that inserts the row. An id created
// earlier, for example before waiting for a lock, would sort before ids that clients have already seen.
//
// # When it fails
//
// New and At panic if the system's random source fails.
package id

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// New returns a new id with the current time of this machine's clock.
func New() string {
	u, err := uuid.NewV7()
	if err != nil {
		// The random source never fails on supported platforms. Without a random source, ids and tokens would be
		// unsafe.
		panic("id: no randomness: " + err.Error())
	}
	return u.String()
}

// last is the time of the latest id of At: milliseconds since 1970 in the upper 52 bits, and 4096ths of a millisecond
// below.
var last atomic.Int64

// apart is one minute. If a time is at least this far behind the latest id, the clock was probably set back, and At
// follows the clock. Otherwise, all later ids of the process would have a time in the future.
const apart = 60_000 << 12

// At returns a new id with the time t, which must be the current time of a clock that all nodes share. If this process
// already created an id with that time or a later one, the new id has the next instant, so that ids sort in the order
// of their creation.
func At(t time.Time) string {
	u, err := uuid.NewRandom()
	if err != nil {
		panic("id: no randomness: " + err.Error())
	}
	us := t.UnixMicro()
	n := us/1000<<12 | us%1000<<12/1000
	for {
		before := last.Load()
		if ahead := before - n; ahead >= 0 && ahead < apart {
			n = before + 1
		}
		if last.CompareAndSwap(before, n) {
			break
		}
	}
	u[0], u[1], u[2], u[3], u[4], u[5] = byte(n>>52), byte(n>>44), byte(n>>36), byte(n>>28), byte(n>>20), byte(n>>12)
	u[6], u[7] = 0x70|byte(n>>8)&0x0f, byte(n)
	return u.String()
}

// First returns the lowest possible id of a millisecond. Ids with earlier times are lower; ids with the same or a later
// time are not.
func First(t time.Time) string {
	ms := max(0, t.UnixMilli())
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16&0xffffffff, ms&0xffff)
}

// Valid reports whether s is a UUID in its canonical 36-character form, in either case.
func Valid(s string) bool {
	return len(s) == 36 && uuid.Validate(s) == nil
}

// Time returns the time in an id of version 7, to the millisecond, and false for ids of other versions.
func Time(s string) (time.Time, bool) {
	u, err := uuid.Parse(s)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
	return time.UnixMilli(ms).UTC(), true
}
