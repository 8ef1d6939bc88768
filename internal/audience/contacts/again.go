package contacts

import (
	"maps"
	"sync"
	"time"
)

// Bounds of how often a contact may opt in by links. Each opt-in allows another opt-out, and each change is an event
// that webhooks carry, so whoever has a link could fill the disk with them. Opting out is never refused.
const (
	againMax   = 20 // opt-ins by links, besides one to each topic
	againFor   = time.Hour
	againCount = 100_000 // contacts that are counted
)

// again counts the opt-ins of contacts by links, on this node. The zero value is ready to use.
type again struct {
	mu  sync.Mutex
	all map[string]optIns // by contact
}

// optIns are those of one contact since it began to be counted.
type optIns struct {
	since time.Time
	n     int
}

// take counts n more opt-ins of a contact unless these are more than most within an hour, and reports whether it did.
func (a *again) take(key string, now time.Time, n, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := func(_ string, o optIns) bool { return now.Sub(o.since) >= againFor }
	o, ok := a.all[key]
	if !ok || over(key, o) {
		o = optIns{since: now}
	}
	if o.n+n > most {
		return false
	}
	if !ok && len(a.all) >= againCount {
		if maps.DeleteFunc(a.all, over); len(a.all) >= againCount {
			clear(a.all)
		}
	}
	if a.all == nil {
		a.all = map[string]optIns{}
	}
	o.n += n
	a.all[key] = o
	return true
}

// optIns returns to how many things p opts in that before did not.
func (p *Preferences) optIns(before *Preferences) (n int) {
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

// onlyOut takes back what p opts in to that before did not.
func (p *Preferences) onlyOut(before *Preferences) {
	for i := range p.Topics {
		if p.Topics[i].Subscription == OptIn {
			p.Topics[i].Subscription = before.Topics[i].Subscription
		}
	}
	p.Unsubscribed = p.Unsubscribed || before.Unsubscribed
}
