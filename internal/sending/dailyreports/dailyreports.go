// Package dailyreports contains the parts that the daily reports to other domains share: TLS reports (RFC 8460) and
// DMARC aggregate reports (RFC 9990). [Counts] holds counts in memory until they are stored. [Sender] sends the reports
// that are due.
//
// # Invariants
//
// A domain gets at most one report for a day at each of its targets. A target is marked in the database before a try.
// If the node is killed during the try, no other node tries again, because the target may have the report. No counts
// are added to a day after its first report may have been sent.
//
// # Failures
//
// A try that fails is repeated for up to 24 hours. After that, the report is dropped and a line is logged. If the
// outcome of a try cannot be stored, the target gets no second try.
//
// # Out of scope
//
// The package does not store counts, look up targets, or write reports.
package dailyreports

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	Day = 24 * time.Hour
	// Counts of a day are stored until lateFor after its end, and its reports are sent from settleFor after its end.
	// The difference exceeds the time of a transaction.
	lateFor   = 9 * time.Minute
	settleFor = 15 * time.Minute
	// spread is the time after midnight within which all first tries begin (RFC 8460 section 4.1).
	spread    = 4 * time.Hour
	retryFor  = 24 * time.Hour // RFC 8460 section 5.5
	flushTime = time.Minute    // between two additions to the database
)

// retryAfter are the times between tries; the last one repeats.
var retryAfter = []time.Duration{15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour}

// These are the errors of a try that have a meaning; compare with errors.Is. After any other error, the target gets
// another try.
var (
	// ErrUnknown means that the report may have been sent although sending failed. It is not sent again.
	ErrUnknown = errors.New("the report may have been sent")
	// ErrBounced means that the target can never receive the report: its mail host refused the email permanently, or
	// its domain accepts no mail. The error has a meaning only for senders that count bounces.
	ErrBounced = errors.New("the mail host refused the report")
	// ErrUnwritable means that the report cannot be written, now or later.
	ErrUnwritable = errors.New("the report cannot be written")
)

// DayDomain identifies a report.
type DayDomain struct {
	Day    int64 // when the UTC day begins, in Unix microseconds
	Domain string
}

// DayOf returns the day of a time, as in DayDomain.
func DayOf(t time.Time) int64 { return t.UTC().Truncate(Day).UnixMicro() }

// IsLate reports whether the counts of a day cannot be stored any more, because its report may have been sent.
func IsLate(day int64, now time.Time) bool { return now.After(db.Time(day).Add(Day + lateFor)) }

// FirstTry returns a random time at which the report about a day is sent first, in Unix microseconds.
func FirstTry(day int64) int64 {
	return db.Micros(db.Time(day).Add(Day + settleFor + rand.N(spread-settleFor)))
}

// Report is a report that waits for being sent.
type Report struct {
	DayDomain
	ID    string // is the same for each try, so that a receiver recognizes a second copy
	About string // value of the column Table.About

	sendAt    int64 // time of the next try, and the fence: a node that acts on the report changes it first
	tries     int64
	expiresAt int64 // 0 before the first try
	targets   []target
}

// target is a target with its state.
type target struct {
	To    string `json:"to"`
	State state  `json:"state,omitempty"`
}

// state is the state of a target; "" means that it waits for the next try.
type state string

const (
	trying  state = "trying" // a node has begun a try; if it was killed, the outcome is unknown
	settled state = "settled"
)
