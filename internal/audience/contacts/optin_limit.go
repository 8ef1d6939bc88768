package contacts

import (
	"maps"
	"sync"
	"time"
)

// Bounds of how often a contact may opt in by links. Each opt-in allows another opt-out, and each change is an event
// that webhooks carry, so whoever has a link could fill the disk with them. Opting out is never refused.
const (
	maxOptIns        = 20 // opt-ins by links, besides one to each topic
	optInWindow      = time.Hour
	maxOptInContacts = 100_000 // contacts that are counted
)

// again counts the opt-ins of contacts by links, on this node. The zero value is ready to use.
type optInLimiter struct {
	mu     sync.Mutex
	counts map[string]optInCount // by contact
}

// optIns are those of one contact since it began to be counted.
type optInCount struct {
	since time.Time
	n     int
}

// allow counts n more opt-ins of a contact unless these are more than most within an hour, and reports whether it did.
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

// countOptIns returns to how many things p opts in that before did not.
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

// dropOptIns takes back what p opts in to that before did not.
func (p *Preferences) dropOptIns(before *Preferences) {
	for i := range p.Topics {
		if p.Topics[i].Subscription == OptIn {
			p.Topics[i].Subscription = before.Topics[i].Subscription
		}
	}
	p.Unsubscribed = p.Unsubscribed || before.Unsubscribed
}
