package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// guessesPerSecond is how many requests with unknown keys one address may make.
const guessesPerSecond = 30

// limiter counts per key in fixed windows of a second (API reference section 5.1). Each node counts for itself.
type limiter struct {
	mu     sync.Mutex
	second int64
	counts map[string]int
}

// count adds one and returns how many there were in this second, and whether that is within the limit.
func (l *limiter) count(key string, limit int) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	l.counts[key]++
	return l.counts[key], l.counts[key] <= limit
}

// over reports whether the limit is used up, without counting.
func (l *limiter) over(key string, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	return l.counts[key] >= limit
}

// turn begins a new window when the second is another, in either direction.
func (l *limiter) turn() {
	if now := time.Now().Unix(); now != l.second || l.counts == nil {
		l.second = now
		l.counts = map[string]int{}
	}
}

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
