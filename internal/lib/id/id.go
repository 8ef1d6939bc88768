// Package id creates and checks the ids of database rows.
//
// # Invariants
//
// Every id is a lower-case UUIDv7 (RFC 9562 section 5.7). An id begins with its creation time in milliseconds, so ids
// sort by age and a list's cursor is simply an id. Within one process, ids from [New] are strictly increasing, even if
// the clock stops or is set back. Ids from [At] are strictly increasing unless the clock is set back by a minute or
// more.
//
// Rows in lists that clients poll for changes need ids from At, created in the transaction that inserts the row. An id
// created earlier, for example before waiting for a lock, could sort before ids that clients have already read.
//
// # Failures
//
// New and At panic if the operating system's random source fails.
package id

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// New returns a new id with the current time of this machine.
func New() string {
	u, err := uuid.NewV7()
	if err != nil {
		// The random source never fails on supported platforms. If the random source failed, ids and tokens would be
		// predictable, so New panics.
		panic("id: no randomness: " + err.Error())
	}
	return u.String()
}

// last is the time of the newest id from At. The upper 52 bits are milliseconds since 1970, and the lower 12 bits are
// units of 1/4096 of a millisecond.
var last atomic.Int64

// apart is one minute, in the same unit as last. If a time is at least a minute before the newest id, the clock was
// probably set back, and At follows the clock. If At did not follow the clock back, all later ids from the process
// would have future times.
const apart = 60_000 << 12

// At returns a new id with the time t, which must be the current time from a clock that all nodes share. If this
// process already created an id with the same or a later time, At uses the next instant. Ids therefore sort in creation
// order.
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

// First returns the lowest possible id for the millisecond of a given time. Ids with earlier times sort before First's
// id; ids with the same or a later time do not.
func First(t time.Time) string {
	ms := max(0, t.UnixMilli())
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16&0xffffffff, ms&0xffff)
}

// Compact returns an id without its hyphens.
func Compact(id string) string { return strings.ReplaceAll(id, "-", "") }

// Expand returns the id whose [Compact] form is given, or "" if text is not the compact form of an id.
func Expand(text string) string {
	if len(text) != 32 || strings.Trim(text, "0123456789abcdef") != "" {
		return ""
	}
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// Valid reports whether s is a UUID in its canonical 36-character form, in upper or lower case.
func Valid(s string) bool {
	return len(s) == 36 && uuid.Validate(s) == nil
}

// OnlyValid returns those of the texts that Valid accepts.
func OnlyValid(texts []string) []string {
	valid := make([]string, 0, len(texts))
	for _, s := range texts {
		if Valid(s) {
			valid = append(valid, s)
		}
	}
	return valid
}

// Time returns the time of a UUIDv7 id to the millisecond, or false for other UUID versions.
func Time(s string) (time.Time, bool) {
	u, err := uuid.Parse(s)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
	return time.UnixMilli(ms).UTC(), true
}
