package tlsreports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

const (
	maxPending = 100_000 // combinations in memory that are not stored yet
	maxRows    = 1000    // combinations of a domain and day
	// maxPolicies limits the policies of a domain and day. Sessions of further ones count for a policy of the same
	// type without details.
	maxPolicies = 20
	maxSeen     = 20_000 // domains and days whose combinations a node remembers
	maxSeenRows = 200_000
	maxStrings  = 100  // strings of a policy, and patterns
	maxString   = 1000 // bytes of each
)

// Session is a connection to a mail host for which TLS was tried, or an attempt that a policy prevented.
type Session struct {
	Domain  string        // domain of the recipient
	Policy  tlsrpt.Policy // that applied; without a Domain, it is that of the session
	Host    string        // name of the mail host; "" if the failure concerns none
	Address netip.Addr    // of this node; the zero Addr if there was no connection
	Result  tlsrpt.Result // "" if TLS was established as the policy demands
}

// dayDomain names a report.
type dayDomain struct {
	day    int64 // its beginning in microseconds
	domain string
}

// row names a number of sessions within a report.
type row struct {
	digest, result, host, address string
}

func compareRows(a, b row) int {
	return cmp.Or(cmp.Compare(a.digest, b.digest), cmp.Compare(a.result, b.result), cmp.Compare(a.host, b.host),
		cmp.Compare(a.address, b.address))
}

// entry has the counts for a report that are not stored yet.
type entry struct {
	policies map[string]tlsrpt.Policy // those that this node has not stored yet, by digest
	sessions map[row]int64
}

// known has what a node has counted for a report, so that it can limit it.
type known struct {
	digests map[string]bool
	rows    map[row]bool
}

// counts collects sessions in memory.
type counts struct {
	full chan struct{} // has an element if the counts should be stored soon

	mu      sync.Mutex
	pending map[dayDomain]*entry
	size    int // number of rows in pending
	lost    int // sessions that were not counted
	seen    *simplelru.LRU[dayDomain, *known]
	rows    int // in seen
}

func newCounts() *counts {
	c := &counts{full: make(chan struct{}, 1), pending: map[dayDomain]*entry{}}
	// The error is for sizes below 1.
	c.seen, _ = simplelru.NewLRU(maxSeen, func(_ dayDomain, k *known) { c.rows -= len(k.rows) })
	return c
}

// Count counts a session. It uses no I/O.
func (s *Service) Count(x Session) {
	if s.c.Off {
		return
	}
	domain, err := mtasts.Domain(x.Domain)
	if err != nil {
		return // such as an address literal
	}
	at := dayDomain{s.c.Now().UTC().Truncate(day).UnixMicro(), domain}
	if x.Policy.Domain == "" {
		x.Policy.Domain = domain
	}
	s.counts.add(at, x)
	// DANE policies belong to the mail host, whose owner may ask for reports, too (RFC 8460 section 1.1).
	if x.Policy.Type == tlsrpt.TLSA && x.Policy.Domain != domain {
		if at.domain, err = mtasts.Domain(x.Policy.Domain); err == nil {
			s.counts.add(at, x)
		}
	}
}

func (c *counts) add(at dayDomain, x Session) {
	p := bounded(x.Policy)
	r := row{digest: digest(p), result: string(x.Result)}
	if x.Result != "" {
		r.host = x.Host
		if x.Address.IsValid() {
			r.address = x.Address.Unmap().WithZone("").String()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.seen.Get(at)
	if !ok {
		k = &known{map[string]bool{}, map[row]bool{}}
		c.seen.Add(at, k)
	}
	if !k.digests[r.digest] && len(k.digests) >= maxPolicies {
		p.Strings, p.MX = nil, nil
		r.digest = digest(p)
	}
	if !k.rows[r] && len(k.rows) >= maxRows {
		r.host, r.address = "", ""
	}
	e := c.pending[at]
	if e == nil {
		e = &entry{map[string]tlsrpt.Policy{}, map[row]int64{}}
		c.pending[at] = e
	}
	if e.sessions[r] == 0 {
		if c.size >= maxPending {
			c.lost++
			return
		}
		if c.size++; c.size == maxPending/2 {
			select {
			case c.full <- struct{}{}:
			default:
			}
		}
	}
	if !k.digests[r.digest] {
		k.digests[r.digest] = true
		e.policies[r.digest] = p
	}
	if !k.rows[r] {
		k.rows[r] = true
		c.rows++
	}
	e.sessions[r]++
	for c.rows > maxSeenRows {
		c.seen.RemoveOldest()
	}
}

// take removes and returns the counts, and the number of sessions that were not counted.
func (c *counts) take() (pending map[dayDomain]*entry, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending, lost = c.pending, c.lost
	c.pending, c.size, c.lost = map[dayDomain]*entry{}, 0, 0
	return pending, lost
}

// giveBack adds counts again that were not stored.
func (c *counts) giveBack(pending map[dayDomain]*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, old := range pending {
		e := c.pending[at]
		if e == nil {
			c.pending[at], c.size = old, c.size+len(old.sessions)
			continue
		}
		maps.Copy(e.policies, old.policies)
		for r, n := range old.sessions {
			if e.sessions[r] == 0 {
				c.size++
			}
			e.sessions[r] += n
		}
	}
}

// bounded shortens a policy whose owner made it very long.
func bounded(p tlsrpt.Policy) tlsrpt.Policy {
	p.Strings, p.MX = boundedList(p.Strings), boundedList(p.MX)
	return p
}

func boundedList(list []string) []string {
	list = list[:min(len(list), maxStrings)]
	if slices.ContainsFunc(list, func(s string) bool { return len(s) > maxString }) {
		list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return len(s) > maxString })
	}
	return list
}

// digest returns a value that differs for different policies.
func digest(p tlsrpt.Policy) string {
	h := sha256.New()
	io.WriteString(h, string(p.Type)+"\x00"+p.Domain)
	for _, list := range [][]string{p.Strings, p.MX} {
		io.WriteString(h, "\x00\x00")
		for _, s := range list {
			io.WriteString(h, "\x00"+s)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
