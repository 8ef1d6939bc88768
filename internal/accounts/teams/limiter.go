package teams

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/platform/nodelimits"
)

// requestShares identifies request limits in package nodelimits, which divides limits among nodes.
const requestShares = "requests"

// Limiter counts requests by key in fixed windows of one second (API reference section 5.1). A node's API and its
// submission server share one Limiter, so that requests to either count toward the same limit. The zero value is ready
// to use and limits only the requests that its own node receives.
//
// If Shares is set, each limit applies to all nodes together. If one node is assigned the whole limit, it counts
// requests in one-second windows. A node that is assigned only part of a limit counts in fractions of requests, and may
// use what is left of its share one second later. Clients whose requests are unevenly distributed over the nodes are
// therefore not refused.
type Limiter struct {
	Shares *nodelimits.Shares // if nil, this node may use each limit in full
	Now    func() time.Time   // nil means time.Now

	limit atomic.Pointer[int] // default limit; nil means the caller's

	mu     sync.Mutex
	second int64
	counts map[string]window
	shares map[string]*nodeShare
	swept  int64 // Unix time at which unused shares were last removed
}

// window counts the requests in the current second.
type window struct{ asked, admitted int }

// nodeShare counts how many more requests this node may admit under its share of a limit.
type nodeShare struct {
	left   float64 // requests
	share  float64 // the node's share of the limit, in requests per second
	second int64
}

const sharesKept = 60 // seconds

// SetDefault sets the limit of teams that have none of their own; 0 means no limit.
func (l *Limiter) SetDefault(limit int) { l.limit.Store(&limit) }

// Default returns the limit of teams that have none of their own: what SetDefault has set, or else the parameter.
func (l *Limiter) Default(configured int) int {
	if l == nil {
		return configured
	}
	if limit := l.limit.Load(); limit != nil {
		return *limit
	}
	return configured
}

// Count counts a request. Count returns the number of requests in the current second, and whether the new request is
// within the limit. If nodes share the limit, limit-n is the number of requests that this node may still admit.
func (l *Limiter) Count(key string, limit int) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startWindow()
	w := l.counts[key]
	w.asked++
	share := l.Shares.Rate(nodelimits.Key{Kind: requestShares, Name: key}, float64(limit), float64(w.asked))
	if share >= float64(limit) {
		delete(l.shares, key)
		n, ok = w.asked, w.admitted < limit
	} else {
		p := l.nodeShare(key, share, w.admitted)
		if ok = p.left >= 1-1e-9; ok {
			p.left--
		}
		n = limit - max(int(p.left), 0)
	}
	if ok {
		w.admitted++
	}
	l.counts[key] = w
	return n, ok
}

// nodeShare returns the share for a key and updates it to the current second. The parameter admitted is the number of
// requests that this node has admitted in the current second.
func (l *Limiter) nodeShare(key string, share float64, admitted int) *nodeShare {
	p := l.shares[key]
	switch {
	case p == nil:
		p = &nodeShare{left: max(share, 1) - float64(admitted), share: share, second: l.second}
		if l.shares == nil {
			l.shares = map[string]*nodeShare{}
		}
		l.shares[key] = p
	case p.second != l.second:
		passed := max(l.second-p.second, 0) // the clock may have gone backward
		p.left = min(p.left+share*float64(passed), max(2*share, 1))
		p.share, p.second = share, l.second
	case share > p.share:
		p.left += share - p.share
		p.share = share
	}
	return p
}

// Over reports whether the limit is used up, without counting a request. Over ignores Shares.
func (l *Limiter) Over(key string, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startWindow()
	return l.counts[key].admitted >= limit
}

// startWindow begins a new window if the second has changed, in either direction.
func (l *Limiter) startWindow() {
	now := l.Now
	if now == nil {
		now = time.Now
	}
	second := now().Unix()
	if second == l.second && l.counts != nil {
		return
	}
	l.second = second
	l.counts = map[string]window{}
	if len(l.shares) == 0 || second-l.swept < sharesKept {
		return
	}
	l.swept = second
	for key, p := range l.shares {
		if second-p.second > sharesKept {
			delete(l.shares, key)
		}
	}
}
