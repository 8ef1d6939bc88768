// Package id makes and checks the identifiers of rows.
//
// Every id is a lower-case UUID of version 7 (RFC 9562 section 5.7): it begins with the time in milliseconds, so ids
// sort by age and a list's cursor is just an id. Within one process the ids of [New] are strictly increasing, also when
// the clock stands still or steps back, and so are those of [At] unless it steps back by a minute.
//
// A list that somebody asks again and again for what is new has ids of one clock, made in the transaction that enters
// their rows: those of At. An id that was made earlier, while something was waited for, would appear behind ids that
// have been seen already.
package id

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// New returns a fresh id of the present by this machine's clock.
func New() string {
	u, err := uuid.NewV7()
	if err != nil {
		// The system's random source never fails on the platforms we run on; without it nothing here is safe.
		panic("id: no randomness: " + err.Error())
	}
	return u.String()
}

// last is the time of the latest id of At: milliseconds since 1970 in the upper 52 bits, and 4096ths of one in the rest.
var last atomic.Int64

// apart is how far behind the latest id a time must be, a minute, to be of a clock that was set back, whose ids would
// otherwise be of the time before that for as long as the process lives.
const apart = 60_000 << 12

// At returns a fresh id of a time, which is the present by a clock that several machines share. When an id of that time
// or a later one was made here already, the new one is of the instant after it: ids of one time sort as they were made.
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

// First returns the least id that can be made of a time, to the millisecond: ids of that time and later ones are not
// before it, and those of earlier times are.
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
