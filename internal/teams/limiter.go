package teams

import (
	"sync"
	"time"
)

// Limiter counts per key in fixed windows of a second (API reference section 5.1). Each node counts for itself; the faces of
// one node share one, so that a team has one rate. The zero value is ready.
type Limiter struct {
	mu     sync.Mutex
	second int64
	counts map[string]int
}

// Count adds one and returns how many there were in this second, and whether that is within the limit.
func (l *Limiter) Count(key string, limit int) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	l.counts[key]++
	return l.counts[key], l.counts[key] <= limit
}

// Over reports whether the limit is used up, without counting.
func (l *Limiter) Over(key string, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	return l.counts[key] >= limit
}

// turn begins a new window when the second is another, in either direction.
func (l *Limiter) turn() {
	if now := time.Now().Unix(); now != l.second || l.counts == nil {
		l.second = now
		l.counts = map[string]int{}
	}
}
