package tlspolicies

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// fetchOnce fetches the policy that a record names, and returns the domain's new entry. Concurrent callers share one
// fetch for a domain, which continues if one of them gives up. If the shared fetch was for another id, and its result
// does not settle the record, fetchOnce fetches again.
func (s *Service) fetchOnce(ctx context.Context, domain string, r record) (*Entry, error) {
	for {
		own := false
		flight := s.flights.DoChan(domain, func() (any, error) {
			own = true
			return s.renew(ctx, domain, r, time.Time{})
		})
		select {
		case landed := <-flight:
			e := landed.Val.(*Entry)
			if own || landed.Err != nil || e.settles(r, s.c.Now()) {
				return e, landed.Err
			}
		case <-ctx.Done():
			return nil, unavailable{ctx.Err()}
		}
	}
}

// renew fetches a policy and stores the outcome. It fetches nothing if another node has fetched the policy meanwhile:
// after the time since, or, if since is zero, so that it settles the record. Without the database, renew fetches
// nothing and returns an error, because only the database says which policy applies if the fetch fails. If the error is
// errBusy, the returned entry is the domain's row.
func (s *Service) renew(ctx context.Context, domain string, r record, since time.Time) (*Entry, error) {
	ctx, cancel := context.WithTimeout(db.WithoutAddition(context.WithoutCancel(ctx)), flightTime)
	defer cancel()
	wait := s.c.Wait
	settled := func(e *Entry) bool { return e.settles(r, s.c.Now()) }
	if !since.IsZero() {
		wait = refreshWait
		settled = func(e *Entry) bool { return e != nil && (e.FetchedAt.After(since) || e.FailedAt.After(since)) }
	}
	for {
		e, free, err := s.unclaimed(ctx, domain, settled)
		if err != nil || !free {
			return e, err
		}
		if e, done, err := s.fetchAlone(ctx, domain, r, wait, settled); err != nil || done {
			return e, err
		}
	}
}

// unclaimed waits until no other node is fetching a domain's policy, and returns the domain's entry. It returns free ==
// false if no fetch is needed any more. The wait takes no place from other fetches.
func (s *Service) unclaimed(ctx context.Context, domain string, settled func(*Entry) bool) (e *Entry, free bool,
	err error) {
	for {
		news := s.memory.next()
		if e, err = find(ctx, s.p.DB.Reader, domain); err != nil {
			return nil, false, unavailable{err}
		}
		if settled(e) {
			return e, false, nil
		}
		if e == nil || !e.claimedUntil.After(s.c.Now()) {
			return e, true, nil
		}
		select {
		case <-news:
		case <-time.After(time.Second): // hints may be lost
		case <-ctx.Done():
			return e, false, fmt.Errorf("%w: another node has not fetched it in time", errBusy)
		}
	}
}

// fetchAlone fetches a policy and stores the outcome, if the limits allow it within a time. It returns done == false if
// another node has begun a fetch meanwhile.
func (s *Service) fetchAlone(ctx context.Context, domain string, r record, wait time.Duration,
	settled func(*Entry) bool) (e *Entry, done bool, err error) {
	release, busy := s.gate.acquire(ctx, domain, wait)
	if busy != nil {
		// The row may have changed during the wait.
		if e, err = find(ctx, s.p.DB.Reader, domain); err != nil {
			return nil, false, unavailable{err}
		}
		if settled(e) {
			return e, true, nil
		}
		return e, false, busy
	}
	defer release()
	e, claimed, err := s.tryClaim(ctx, domain, settled)
	if err != nil {
		return nil, false, unavailable{err}
	}
	if !claimed {
		return e, settled(e), nil
	}
	f := s.fetch(ctx, domain)
	next := s.after(domain, e, r.id, f)
	version := s.memory.version()
	if err := s.store(ctx, next); err != nil {
		s.p.Log.Warn("a TLS policy cannot be stored", "domain", domain, "error", err)
		if f.result == "" {
			s.memory.put(domain, next, s.c.Now(), version)
		} else {
			s.memory.forget(domain) // the next email reads the row
		}
	}
	return next, true, nil
}

// after returns the domain's entry after a fetch. The entry before may be nil.
func (s *Service) after(domain string, before *Entry, id string, f fetched) *Entry {
	now := s.c.Now()
	e := Entry{Domain: domain, UsedAt: now}
	if before != nil {
		e = *before
	}
	if f.result != "" {
		pause, refresh := retryAfter, refreshRetry
		if !e.Valid(now) {
			if e.FailedID != "" {
				pause = min(max(2*e.RetryAt.Sub(e.FailedAt), retryAfter), retryMax)
			}
			refresh = refreshAfter // keeps the row, which has the pause
		}
		e.FailedID, e.Failure, e.Reason, e.FailedAt, e.RetryAt = id, f.result, f.reason, now, now.Add(pause)
		e.RefreshAt = now.Add(refresh)
		return &e
	}
	prior := e.ID
	if prior == id {
		prior = ""
	}
	return &Entry{Domain: domain, ID: id, PriorID: prior, Policy: f.policy, FetchedAt: now,
		ExpiresAt: now.Add(max(f.policy.MaxAge, minLifetime)), UsedAt: e.UsedAt,
		RefreshAt:    now.Add(refreshAfter + rand.N(refreshWidth)),
		claimedUntil: e.claimedUntil}
}
