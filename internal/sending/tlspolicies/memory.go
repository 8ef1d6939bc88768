package tlspolicies

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	memoryMax  = 10_000           // domains
	memoryText = 2 << 10          // longest policy that is kept in memory, in bytes; most have 200
	memoryTime = 10 * time.Minute // after which a row is read again
)

// memory keeps the rows of domains, and which domains have no row.
type memory struct {
	mu      sync.Mutex
	known   *simplelru.LRU[string, remembered]
	changes uint64        // number of calls of forget and clear
	news    chan struct{} // closed by the next call of forget or clear
}

type remembered struct {
	e  *Entry // nil if the domain has no row
	at time.Time
}

func newMemory() *memory {
	m := &memory{news: make(chan struct{})}
	m.known, _ = simplelru.NewLRU[string, remembered](memoryMax, nil) // the error is for sizes below 1
	return m
}

// get returns what is known about a domain's row. If it is too old, fresh is false.
func (m *memory) get(domain string, now time.Time) (e *Entry, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.known.Get(domain)
	return r.e, ok && now.Before(r.at.Add(memoryTime))
}

// version returns a value that changes with each call of forget or clear. Read it before a row.
func (m *memory) version() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// put stores a row, unless it may have changed since the version was read.
func (m *memory) put(domain string, e *Entry, now time.Time, version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version == m.changes && (e == nil || len(e.Policy.Text()) <= memoryText) {
		m.known.Add(domain, remembered{e, now})
	}
}

// forget removes a domain's row. It is called when any node has changed the row.
func (m *memory) forget(domain string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known.Remove(domain)
	m.tell()
}

// clear removes all rows. It is called when hints may have been lost.
func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known.Purge()
	m.tell()
}

func (m *memory) tell() {
	m.changes++
	close(m.news)
	m.news = make(chan struct{})
}

// next returns a channel that is closed by the next change of any row.
func (m *memory) next() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}
