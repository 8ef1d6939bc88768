package tlspolicies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/time/rate"
)

// Limits limits what recipient domains can make nodes store and fetch. A site is a domain that somebody can register,
// with all its subdomains: a wildcard record can give each of them a policy.
type Limits struct {
	// Rows and Text limit the cache: the number of its rows, and the bytes of their policies. SiteRows and SiteText
	// limit the share of a site. Each refresh restores these limits, so that the cache exceeds them by what was fetched
	// since.
	Rows, SiteRows int
	Text, SiteText int64
	// Fetches and FetchesPerMinute limit the fetches of a node, and SiteFetches and SiteFetchesPerMinute those from a
	// site. A fetch that exceeds them waits for up to two seconds if a delivery needs it, and for up to half a minute
	// if it refreshes a policy.
	Fetches, SiteFetches                   int // at the same time
	FetchesPerMinute, SiteFetchesPerMinute int
}

// complete returns the limits with the default in place of each 0.
//
// A row has at most 64 KB of policy and 2 KB of other texts. With the defaults, the cache has at most 50,000 rows and
// 256 MB of policies, of which a site has at most 500 and 4 MB. In the 15 minutes between two refreshes, a node adds at
// most 3,200 rows, of which a site has at most 320.
func (l Limits) complete() Limits {
	return Limits{
		Rows: cmp.Or(l.Rows, 50_000), SiteRows: cmp.Or(l.SiteRows, 500),
		Text: cmp.Or(l.Text, 256<<20), SiteText: cmp.Or(l.SiteText, 4<<20),
		Fetches: cmp.Or(l.Fetches, 32), SiteFetches: cmp.Or(l.SiteFetches, 4),
		FetchesPerMinute:     cmp.Or(l.FetchesPerMinute, 200),
		SiteFetchesPerMinute: cmp.Or(l.SiteFetchesPerMinute, 20),
	}
}

// siteOf returns the site of a domain.
func siteOf(domain string) string {
	site, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return domain // a public suffix
	}
	return site
}

const (
	waitTime    = 2 * time.Second  // for which a fetch waits that a delivery needs
	refreshWait = 30 * time.Second // for which a fetch waits that refreshes a policy
	sitesMax    = 10_000           // sites in memory
)

// errBusy means that a policy cannot be fetched now, because the fetch would exceed the limits, or because another node
// has not finished its fetch.
var errBusy = errors.New("the MTA-STS policy cannot be fetched now")

// gate delays fetches until they are within the limits.
type gate struct {
	limits Limits
	all    *throttle

	mu    sync.Mutex
	sites *simplelru.LRU[string, *throttle]
}

// throttle limits the number of fetches at the same time and in a minute.
type throttle struct {
	slots chan struct{}
	rate  *rate.Limiter
}

func newThrottle(atOnce, perMinute int) *throttle {
	return &throttle{make(chan struct{}, atOnce), rate.NewLimiter(rate.Limit(perMinute)/60, perMinute)}
}

func newGate(l Limits) *gate {
	g := &gate{limits: l, all: newThrottle(l.Fetches, l.FetchesPerMinute)}
	g.sites, _ = simplelru.NewLRU[string, *throttle](sitesMax, nil) // the error is for sizes below 1
	return g
}

// acquire waits until a domain's policy may be fetched. The caller must call release after the fetch. If the wait would
// be longer than the given one, the error is errBusy.
func (g *gate) acquire(ctx context.Context, domain string, wait time.Duration) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	name := siteOf(domain)
	site := g.site(name)
	if err := site.acquire(ctx); err != nil {
		return nil, fmt.Errorf("%w: too many policies are being fetched from %s", errBusy, name)
	}
	if err := g.all.acquire(ctx); err != nil {
		site.release()
		return nil, fmt.Errorf("%w: this node is fetching too many policies", errBusy)
	}
	return func() { g.all.release(); site.release() }, nil
}

func (g *gate) site(name string) *throttle {
	g.mu.Lock()
	defer g.mu.Unlock()
	site, ok := g.sites.Get(name)
	if !ok {
		site = newThrottle(g.limits.SiteFetches, g.limits.SiteFetchesPerMinute)
		g.sites.Add(name, site)
	}
	return site
}

func (t *throttle) acquire(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := t.rate.Wait(ctx); err != nil {
		t.release()
		return err
	}
	return nil
}

func (t *throttle) release() { <-t.slots }

// failures remembers for recordRetry which domains' records could not be looked up.
type failures struct {
	mu    *sync.Mutex
	known *simplelru.LRU[string, failure]
}

type failure struct {
	r     record
	until time.Time
}

func newFailures() failures {
	known, _ := simplelru.NewLRU[string, failure](recordsMax, nil) // the error is for sizes below 1
	return failures{&sync.Mutex{}, known}
}

func (f failures) get(domain string, now time.Time) (r record, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.known.Get(domain)
	return last.r, ok && now.Before(last.until)
}

func (f failures) put(domain string, r record, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.Add(domain, failure{r, now.Add(recordRetry)})
}

func (f failures) remove(domain string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.Remove(domain)
}
