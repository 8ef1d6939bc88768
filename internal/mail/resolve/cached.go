package resolve

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Limits on how long an answer is cached, regardless of its TTL. The times are long enough to save look-ups during a
// burst of mail, but short enough for a corrected record to be noticed.
const (
	minTTL     = 5 * time.Second
	maxTTL     = time.Hour
	defaultTTL = 60 * time.Second // TTL for answers that have none
	// failureTTL is how long the failure of a look-up for HostTLSA is cached.
	failureTTL = 2 * time.Minute
	// flightTimeout is the time limit for a look-up that several callers may share. A shared look-up continues even if
	// its first caller gives up, because other callers may be waiting for it.
	flightTimeout = time.Minute
	// maxBytes is the approximate size of all cached answers. Owners of domains can make an answer as large as a DNS
	// message, which is 64 KB.
	maxBytes = 64 << 20
)

// timed is a Secure that also returns how long an answer may be cached. DNS implements timed; untimed wraps any other
// Resolver.
type timed interface {
	mx(ctx context.Context, name string) ([]MX, time.Duration, error)
	addrs(ctx context.Context, host string) ([]netip.Addr, time.Duration, error)
	txt(ctx context.Context, name string) ([]string, time.Duration, error)
	cname(ctx context.Context, name string) (string, time.Duration, error)
	caa(ctx context.Context, name string) ([]CAA, time.Duration, error)
	ptr(ctx context.Context, addr string) ([]string, time.Duration, error)

	mxSecure(ctx context.Context, name string) (Answer[MX], time.Duration, error)
	addrsSecure(ctx context.Context, host string) (Answer[netip.Addr], time.Duration, error)
	cnameSecure(ctx context.Context, name string) (Answer[string], time.Duration, error)
	tlsa(ctx context.Context, name string) (Answer[TLSA], time.Duration, error)
}

// Cached is a Secure that caches the answers and the definite errors of another Resolver. Each answer is cached for its
// TTL, but for at least five seconds and at most one hour. Concurrent callers with the same question share one look-up,
// which continues even if one of them gives up.
//
// Temporary failures are not cached, except those of TLSA and CNAMESecure, which HostTLSA calls for each email to a
// host. They are cached for two minutes, unless our own servers failed.
//
// Secure look-ups have entries of their own, because other look-ups may ask servers that do not validate. If the other
// Resolver is no Secure, the answers are insecure.
type Cached struct {
	r       timed
	limit   int
	flights singleflight.Group

	mu      sync.Mutex
	entries map[key]*list.Element
	recent  *list.List // list of *entry, with the most recently used entry first
	size    int        // of all entries, in bytes
}

type key struct{ kind, name string }

// These are the kinds of secure look-ups.
const (
	mxSecureKind    = "secure mx"
	addrSecureKind  = "secure addr"
	cnameSecureKind = "secure cname"
	tlsaKind        = "tlsa"
)

type entry struct {
	key     key
	value   any
	err     error
	expires time.Time
	size    int
}

// sizeOf returns the approximate size of an entry in bytes.
func sizeOf(e *entry) int {
	n := 300 + 2*len(e.key.name)
	text := func(all []string) {
		for _, s := range all {
			n += 16 + len(s)
		}
	}
	hosts := func(all []MX) {
		for _, x := range all {
			n += 24 + len(x.Host)
		}
	}
	switch v := e.value.(type) {
	case []string:
		text(v)
	case []MX:
		hosts(v)
	case []netip.Addr:
		n += 24 * len(v)
	case []CAA:
		for _, x := range v {
			n += 40 + len(x.Tag) + len(x.Value)
		}
	case string:
		n += len(v)
	case Answer[string]:
		text(v.Records)
	case Answer[MX]:
		hosts(v.Records)
	case Answer[netip.Addr]:
		n += 24 * len(v.Records)
	case Answer[TLSA]:
		for _, x := range v.Records {
			n += 32 + len(x.Data)
		}
	}
	return n
}

// NewCached returns a cache for r that holds at most limit answers. A limit below one counts as one.
func NewCached(r Resolver, limit int) *Cached {
	t, ok := r.(timed)
	if !ok {
		t = untimed{r}
	}
	return &Cached{r: t, limit: max(limit, 1), entries: make(map[key]*list.Element), recent: list.New()}
}

// MX implements Resolver.
func (c *Cached) MX(ctx context.Context, name string) ([]MX, error) {
	records, err := get(ctx, c, "mx", name, c.r.mx)
	return slices.Clone(records), err
}

// MXKept returns how much longer the cached answer about the mail exchangers of a name is valid, or 0 if the cache has
// no answer. If both MX and MXSecure were called, the answer that is valid longer counts. MXKept never performs a
// look-up.
func (c *Cached) MXKept(name string) (kept time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []string{"mx", mxSecureKind} {
		if element, ok := c.entries[key{kind, clean(name)}]; ok {
			kept = max(kept, time.Until(element.Value.(*entry).expires))
		}
	}
	return kept
}

// MXSecure implements Secure.
func (c *Cached) MXSecure(ctx context.Context, name string) (Answer[MX], error) {
	return getAnswer(ctx, c, mxSecureKind, name, c.r.mxSecure)
}

// AddrsSecure implements Secure.
func (c *Cached) AddrsSecure(ctx context.Context, host string) (Answer[netip.Addr], error) {
	return getAnswer(ctx, c, addrSecureKind, host, c.r.addrsSecure)
}

// CNAMESecure implements Secure.
func (c *Cached) CNAMESecure(ctx context.Context, name string) (Answer[string], error) {
	return getAnswer(ctx, c, cnameSecureKind, name, c.r.cnameSecure)
}

// TLSA implements Secure.
func (c *Cached) TLSA(ctx context.Context, name string) (Answer[TLSA], error) {
	return getAnswer(ctx, c, tlsaKind, name, c.r.tlsa)
}

// getAnswer is get for secure look-ups. The caller may modify the list of records.
func getAnswer[T any](ctx context.Context, c *Cached, kind, name string, lookup func(context.Context,
	string) (Answer[T], time.Duration, error)) (Answer[T], error) {
	a, err := get(ctx, c, kind, name, lookup)
	a.Records = slices.Clone(a.Records)
	return a, err
}

// Addrs implements Resolver.
func (c *Cached) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	records, err := get(ctx, c, "addr", host, c.r.addrs)
	return slices.Clone(records), err
}

// TXT implements Resolver.
func (c *Cached) TXT(ctx context.Context, name string) ([]string, error) {
	records, err := get(ctx, c, "txt", name, c.r.txt)
	return slices.Clone(records), err
}

// CNAME implements Resolver.
func (c *Cached) CNAME(ctx context.Context, name string) (string, error) {
	return get(ctx, c, "cname", name, c.r.cname)
}

// CAA implements Resolver.
func (c *Cached) CAA(ctx context.Context, name string) ([]CAA, error) {
	records, err := get(ctx, c, "caa", name, c.r.caa)
	return slices.Clone(records), err
}

// PTR implements Resolver.
func (c *Cached) PTR(ctx context.Context, addr netip.Addr) ([]string, error) {
	names, err := get(ctx, c, "ptr", addr.Unmap().WithZone("").String(), c.r.ptr)
	return slices.Clone(names), err
}

// get returns the cached answer if there is one, and otherwise performs a look-up that concurrent callers share.
func get[T any](ctx context.Context, c *Cached, kind, name string, lookup func(context.Context, string) (T,
	time.Duration, error)) (T, error) {
	k := key{kind, clean(name)}
	if e, ok := c.recall(k); ok {
		return e.value.(T), e.err
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	flight := c.flights.DoChan(kind+" "+k.name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flightTimeout)
		defer cancel()
		value, ttl, err := lookup(ctx, k.name)
		if err == nil || errors.Is(err, ErrNotFound) {
			c.add(entry{key: k, value: value, err: err, expires: time.Now().Add(min(max(ttl, minTTL), maxTTL))})
		} else if (kind == tlsaKind || kind == cnameSecureKind) && !errors.Is(err, ErrNoServer) {
			c.add(entry{key: k, value: value, err: err, expires: time.Now().Add(failureTTL)})
		}
		return value, err
	})
	select {
	case landed := <-flight:
		return landed.Val.(T), landed.Err
	case <-ctx.Done():
		return zero, fmt.Errorf("%w: %w", ErrTemporary, ctx.Err())
	}
}

// recall returns the cache entry for k unless it has expired.
func (c *Cached) recall(k key) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[k]
	if !ok {
		return entry{}, false
	}
	e := element.Value.(*entry)
	if !time.Now().Before(e.expires) {
		c.drop(element)
		return entry{}, false
	}
	c.recent.MoveToFront(element)
	return *e, true
}

// add stores e in the cache, and removes the least recently used entries if the cache is over one of its limits.
func (c *Cached) add(e entry) {
	e.size = sizeOf(&e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.entries[e.key]; ok {
		c.drop(old)
	}
	c.entries[e.key] = c.recent.PushFront(&e)
	c.size += e.size
	for len(c.entries) > c.limit || c.size > maxBytes {
		c.drop(c.recent.Back())
	}
}

// drop removes an entry. The caller must hold the lock.
func (c *Cached) drop(element *list.Element) {
	e := element.Value.(*entry)
	c.recent.Remove(element)
	delete(c.entries, e.key)
	c.size -= e.size
}

// untimed adds a fixed TTL to the answers of any Resolver.
type untimed struct{ r Resolver }

func (u untimed) mx(ctx context.Context, name string) ([]MX, time.Duration, error) {
	records, err := u.r.MX(ctx, name)
	return records, defaultTTL, err
}

func (u untimed) addrs(ctx context.Context, host string) ([]netip.Addr, time.Duration, error) {
	records, err := u.r.Addrs(ctx, host)
	return records, defaultTTL, err
}

func (u untimed) txt(ctx context.Context, name string) ([]string, time.Duration, error) {
	records, err := u.r.TXT(ctx, name)
	return records, defaultTTL, err
}

func (u untimed) cname(ctx context.Context, name string) (string, time.Duration, error) {
	target, err := u.r.CNAME(ctx, name)
	return target, defaultTTL, err
}

func (u untimed) caa(ctx context.Context, name string) ([]CAA, time.Duration, error) {
	records, err := u.r.CAA(ctx, name)
	return records, defaultTTL, err
}

func (u untimed) ptr(ctx context.Context, text string) ([]string, time.Duration, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return nil, defaultTTL, fmt.Errorf("%w: PTR %s", ErrNotFound, text)
	}
	names, err := u.r.PTR(ctx, addr)
	return names, defaultTTL, err
}

func (u untimed) mxSecure(ctx context.Context, name string) (Answer[MX], time.Duration, error) {
	if s, ok := u.r.(Secure); ok {
		a, err := s.MXSecure(ctx, name)
		return a, defaultTTL, err
	}
	records, err := u.r.MX(ctx, name)
	return Answer[MX]{Records: records, Name: name}, defaultTTL, err
}

func (u untimed) addrsSecure(ctx context.Context, host string) (Answer[netip.Addr], time.Duration, error) {
	if s, ok := u.r.(Secure); ok {
		a, err := s.AddrsSecure(ctx, host)
		return a, defaultTTL, err
	}
	records, err := u.r.Addrs(ctx, host)
	return Answer[netip.Addr]{Records: records, Name: host}, defaultTTL, err
}

func (u untimed) cnameSecure(ctx context.Context, name string) (Answer[string], time.Duration, error) {
	if s, ok := u.r.(Secure); ok {
		a, err := s.CNAMESecure(ctx, name)
		return a, defaultTTL, err
	}
	target, err := u.r.CNAME(ctx, name)
	return Answer[string]{Records: []string{target}, Name: name}, defaultTTL, err
}

func (u untimed) tlsa(ctx context.Context, name string) (Answer[TLSA], time.Duration, error) {
	if s, ok := u.r.(Secure); ok {
		a, err := s.TLSA(ctx, name)
		return a, defaultTTL, err
	}
	return Answer[TLSA]{}, defaultTTL, fmt.Errorf("%w: TLSA %s", ErrNotFound, name)
}
