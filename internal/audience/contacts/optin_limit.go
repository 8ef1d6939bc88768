package contacts

import (
	"maps"
	"sync"
	"time"
)

// These constants limit how often a contact can opt in through links. A contact can opt in and out repeatedly, and each
// change records an event. Without a limit, the holder of a link could fill the disk. Opting out is never refused.
const (
	maxOptIns        = 20 // opt-ins per contact per window, not counting the one extra opt-in for each topic
	optInWindow      = time.Hour
	maxOptInContacts = 100_000 // maximum number of contacts whose opt-ins are counted
)

// optInLimiter counts, on this node, how often each contact opts in through links. The zero value is ready to use.
type optInLimiter struct {
	mu     sync.Mutex
	counts map[string]optInCount // by contact
}

// optInCount is the number of times that one contact has opted in during its current window.
type optInCount struct {
	since time.Time
	n     int
}

// allow counts n more opt-ins for a key and returns true if they are within the limit. If the count in the current
// window would exceed the limit, allow counts nothing and returns false.
func (a *optInLimiter) allow(key string, now time.Time, n, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := func(_ string, o optInCount) bool { return now.Sub(o.since) >= optInWindow }
	o, ok := a.counts[key]
	if !ok || over(key, o) {
		o = optInCount{since: now}
	}
	if o.n+n > most {
		return false
	}
	if !ok && len(a.counts) >= maxOptInContacts {
		if maps.DeleteFunc(a.counts, over); len(a.counts) >= maxOptInContacts {
			clear(a.counts)
		}
	}
	if a.counts == nil {
		a.counts = map[string]optInCount{}
	}
	o.n += n
	a.counts[key] = o
	return true
}

// countOptIns returns the number of opt-ins in p that the earlier preferences do not contain.
func (p *Preferences) countOptIns(before *Preferences) (n int) {
	for i, t := range p.Topics {
		if t.Subscription == OptIn && before.Topics[i].Subscription != OptIn {
			n++
		}
	}
	if before.Unsubscribed && !p.Unsubscribed {
		n++
	}
	return n
}

// dropOptIns removes from p the opt-ins that the earlier preferences do not contain.
func (p *Preferences) dropOptIns(before *Preferences) {
	for i := range p.Topics {
		if p.Topics[i].Subscription == OptIn {
			p.Topics[i].Subscription = before.Topics[i].Subscription
		}
	}
	p.Unsubscribed = p.Unsubscribed || before.Unsubscribed
}
