// Package lograte thins out log lines of which there would be one for each request while one thing is broken.
package lograte

import (
	"sync"
	"time"
)

// Every is the time between lines that a [Limiter] lets through.
const Every = 10 * time.Second

// Limiter lets one line through at a time. Its zero value is ready, and it is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	next time.Time
	left int
}

// Allow reports whether a line may be logged now, and how many were left out since the last one.
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
