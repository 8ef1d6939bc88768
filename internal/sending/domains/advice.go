package domains

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	adviceMax     = 5 * time.Second  // time limit for judging the DNS of a domain
	adviceFor     = 30 * time.Second // age from which on advice is renewed
	adviceWorkers = 8                // domains that are judged at the same time; others are judged at the next request
)

// advices keeps advice about the DNS of domains in memory. Requests never wait for the DNS: they get the last advice,
// and look-ups in the background renew it until the node stops.
type advices struct {
	base   context.Context // of the look-ups; it ends with Run
	cancel context.CancelFunc
	active sync.WaitGroup // look-ups

	mu    sync.Mutex
	known map[string]cached[judgement]
	busy  map[string]bool // keys whose advice is being made
}

// judgement is advice with the states that the records had when it was begun.
type judgement struct {
	advice *Advice
	states string
}

// statesOf returns the states of records as a key.
func statesOf(records []Record) string {
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "%s %v ", r.Status, r.Hidden)
	}
	return b.String()
}

func newAdvices() *advices {
	a := &advices{known: map[string]cached[judgement]{}, busy: map[string]bool{}}
	a.base, a.cancel = context.WithCancel(context.Background())
	return a
}

// stop ends the look-ups and waits for them.
func (a *advices) stop() {
	a.mu.Lock() // so that no look-up begins while the others are waited for
	a.cancel()
	a.mu.Unlock()
	a.active.Wait()
}

// adviceKey identifies a domain with its wanted records, because advice about former records is of no use.
func adviceKey(d *Domain, records []Record) string {
	sum := sha256.New()
	for _, r := range records {
		fmt.Fprintf(sum, "%q %s %q %d\n", r.FQDN, r.Type, r.Value, r.Priority)
	}
	return d.ID + " " + hex.EncodeToString(sum.Sum(nil)[:16])
}

// advice returns the last advice about a domain's DNS, or nil if there is none. If it is missing or old, pending is
// true, and look-ups in the background renew it. If the state of a record has changed since, the problems are left out,
// because they may be solved.
func (s *Service) advice(ctx context.Context, d *Domain, records []Record) (a *Advice, pending bool) {
	if s.Deps.Advice == nil || d.Placeholder || s.c.TrustDomains {
		return nil, false
	}
	key, now := adviceKey(d, records), time.Now()
	all := s.advices
	all.mu.Lock()
	defer all.mu.Unlock()
	last := all.known[key]
	a = last.value.advice
	if fresh := last.value.states == statesOf(records); fresh && now.Before(last.until) {
		return a, false
	} else if !fresh && a != nil {
		rest := *a
		rest.Problems = nil
		a = &rest
	}
	if !all.busy[key] && len(all.busy) < adviceWorkers && all.base.Err() == nil {
		all.busy[key] = true
		of := *d
		all.active.Go(func() { s.advise(context.WithoutCancel(ctx), key, of, records) })
	}
	return a, true
}

// advise makes advice about a domain's DNS, and keeps it for requests. If the node stops, the advice is not kept,
// because it lacks what was not looked up.
func (s *Service) advise(ctx context.Context, key string, d Domain, records []Record) {
	ctx, cancel := context.WithTimeout(ctx, adviceMax)
	defer cancel()
	all := s.advices
	defer context.AfterFunc(all.base, cancel)()
	a := s.Deps.Advice(ctx, &d, records)
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.busy, key)
	if all.base.Err() != nil {
		return
	}
	if len(all.known) >= cacheMax {
		clear(all.known)
	}
	all.known[key] = cached[judgement]{judgement{&a, statesOf(records)}, time.Now().Add(adviceFor)}
}
