// Package lograte limits log lines that would otherwise be written for each request while something is broken. It
// counts the lines that it leaves out; it does not log them.
package lograte

import (
	"sync"
	"time"
)

// Every is the least time between lines that a [Limiter] allows.
const Every = 10 * time.Second

// Limiter allows one line in each period of Every. Its zero value is ready to use, and it is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	next time.Time
	left int
}

// Allow reports whether a line may be logged now, and if so, how many were left out since the last one.
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
