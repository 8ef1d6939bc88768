// Package id makes and checks the identifiers of rows.
//
// # Invariants
//
// Every id is a lower-case UUID of version 7 (RFC 9562 section 5.7). It begins with the time in milliseconds, so ids
// sort by age and the cursor of a list is just an id. Within one process the ids of [New] are strictly increasing,
// even when the clock stands still or steps back, and so are those of [At] unless the clock steps back by a minute or
// more.
//
// Lists that clients poll for new rows need ids from one clock, made in the transaction that inserts the row: those
// of At. An id that was made earlier, before waiting for something, would sort before ids that clients have already
// seen.
//
// # When it fails
//
// New and At panic when the system has no randomness.
package id

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// New returns a new id of the present by this machine's clock.
func New() string {
	u, err := uuid.NewV7()
	if err != nil {
		// The system's random source never fails on the platforms we run on; without it nothing here is safe.
		panic("id: no randomness: " + err.Error())
	}
	return u.String()
}

// last is the time of the latest id of At: milliseconds since 1970 in the upper 52 bits, and 4096ths of a millisecond
// below.
var last atomic.Int64

// apart is a minute. A time that is at least so far behind the latest id is taken to be from a clock that was set
// back; otherwise all later ids would have the time before that for as long as the process lives.
const apart = 60_000 << 12

// At returns a new id of the time t, which must be the present by a clock that several machines share. When this
// process has already made an id of that time or a later one, the new id has the next instant, so that ids of one
// time sort in the order in which they were made.
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

// First returns the least id of a time, to the millisecond: ids of that time and later ones are not less than it, and
// ids of earlier times are.
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
