// Package lograte rate-limits the log lines that a persistent failure would otherwise write for each request or job.
// The package counts the suppressed lines. [Handler] limits all lines of a logger by their cause; [Limiter] limits one
// kind of line.
package lograte

import (
	"sync"
	"time"
)

// Every is the minimum time between two lines that a [Limiter] allows.
const Every = 10 * time.Second

// Limiter allows one log line in each period of length Every. A Limiter's zero value is ready to use, and a Limiter is
// safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	next time.Time
	left int
}

// Allow reports whether a line may be logged now, and how many lines were suppressed since the last logged line.
func (l *Limiter) Allow() (ok bool, leftOut int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.left++
		return false, 0
	}
	leftOut = l.left
	l.next, l.left = now.Add(Every), 0
	return true, leftOut
}
