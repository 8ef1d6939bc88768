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
// nothing and returns an error, because only the database says which policy applies if the fetch fails.
func (s *Service) renew(ctx context.Context, domain string, r record, since time.Time) (*Entry, error) {
	ctx, cancel := context.WithTimeout(db.WithoutAddition(context.WithoutCancel(ctx)), flightTime)
	defer cancel()
	release, err := s.gate.acquire(ctx, domain)
	if err != nil {
		return nil, err
	}
	defer release()
	settled := func(e *Entry) bool {
		if since.IsZero() {
			return e.settles(r, s.c.Now())
		}
		return e != nil && (e.FetchedAt.After(since) || e.FailedAt.After(since))
	}
	e, claimed, err := s.claim(ctx, domain, settled)
	if err != nil {
		return nil, unavailable{err}
	}
	if !claimed {
		return e, nil
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
	return next, nil
}

// claim gives this node the right to fetch a domain's policy, and returns the domain's entry. While another node has
// the right, claim waits. It returns claimed == false if no fetch is needed any more.
func (s *Service) claim(ctx context.Context, domain string, settled func(*Entry) bool) (e *Entry, claimed bool,
	err error) {
	for {
		news := s.memory.next()
		if e, claimed, err = s.tryClaim(ctx, domain, settled); err != nil {
			return nil, false, err
		}
		if claimed || settled(e) {
			return e, claimed, nil
		}
		select {
		case <-news:
		case <-time.After(time.Second): // hints may be lost
		case <-ctx.Done():
			return nil, false, fmt.Errorf("another node has not fetched the policy in time: %w", ctx.Err())
		}
	}
}

// after returns the domain's entry after a fetch. The entry before may be nil.
func (s *Service) after(domain string, before *Entry, id string, f fetched) *Entry {
	now := s.c.Now()
	e := Entry{Domain: domain, UsedAt: now}
	if before != nil {
		e = *before
	}
	if f.result != "" {
		e.FailedID, e.Failure, e.Reason, e.FailedAt, e.RetryAt = id, f.result, f.reason, now, now.Add(retryAfter)
		e.RefreshAt = now.Add(refreshRetry)
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
