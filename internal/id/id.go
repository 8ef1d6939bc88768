// Package id makes and checks the identifiers of rows.
//
// Every id is a lower-case UUID of version 7 (RFC 9562 section 5.7): it begins with the time in milliseconds, so ids
// sort by age and a list's cursor is just an id. Within one process ids are strictly increasing, also when the clock
// stands still or steps back.
package id

import (
	"time"

	"github.com/google/uuid"
)

// New returns a fresh id.
func New() string {
	u, err := uuid.NewV7()
	if err != nil {
		// The system's random source never fails on the platforms we run on; without it nothing here is safe.
		panic("id: no randomness: " + err.Error())
	}
	return u.String()
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
