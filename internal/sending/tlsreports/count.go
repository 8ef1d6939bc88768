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
	"github.com/postrider/postrider/internal/sending/dailyreports"
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

// row names a number of sessions within a report.
type row struct {
	digest, result, host, address string
}

func compareRows(a, b row) int {
	return cmp.Or(cmp.Compare(a.digest, b.digest), cmp.Compare(a.result, b.result), cmp.Compare(a.host, b.host),
		cmp.Compare(a.address, b.address))
}

// policies are the policies in a report that this node has not stored yet, by digest.
type policies = map[string]tlsrpt.Policy

// known has what a node has counted for a report, so that it can limit it.
type known struct {
	digests map[string]bool
	rows    map[row]bool
}

// counts collects sessions in memory.
type counts struct {
	*dailyreports.Counts[row, policies]

	mu   sync.Mutex
	seen *simplelru.LRU[dailyreports.DayDomain, *known]
	rows int // in seen
}

func newCounts() *counts {
	c := &counts{Counts: dailyreports.NewCounts[row](maxPending, func(newer, older policies) policies {
		maps.Copy(older, newer)
		return older
	})}
	// The error is for sizes below 1.
	c.seen, _ = simplelru.NewLRU(maxSeen, func(_ dailyreports.DayDomain, k *known) { c.rows -= len(k.rows) })
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
	at := dailyreports.DayDomain{Day: dailyreports.DayOf(s.c.Now()), Domain: domain}
	if x.Policy.Domain == "" {
		x.Policy.Domain = domain
	}
	s.counts.add(at, x)
	// DANE policies belong to the mail host, whose owner may ask for reports, too (RFC 8460 section 1.1).
	if x.Policy.Type == tlsrpt.TLSA && x.Policy.Domain != domain {
		if at.Domain, err = mtasts.Domain(x.Policy.Domain); err == nil {
			s.counts.add(at, x)
		}
	}
}

func (c *counts) add(at dailyreports.DayDomain, x Session) {
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
	c.Add(at, r, func(all *policies) {
		if *all == nil {
			*all = policies{}
		}
		if !k.digests[r.digest] {
			k.digests[r.digest] = true
			(*all)[r.digest] = p
		}
		if !k.rows[r] {
			k.rows[r] = true
			c.rows++
		}
	})
	for c.rows > maxSeenRows {
		c.seen.RemoveOldest()
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
