package tlspolicies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/audit"
)

// For returns the policy that applies to mail for a domain, and explains the result. The zero Policy means that none
// applies. If the policy must be fetched, For waits for at most a minute.
//
// An error wraps ErrUnknown, or the context has ended. Mail must wait then, because the cache may have a policy that
// forbids a connection in clear.
func (s *Service) For(ctx context.Context, domain string) (mtasts.Policy, State, error) {
	return s.find(ctx, domain, false)
}

// Renew is like For, but if the policy is enforced, Renew looks up the record again without cached answers of the DNS.
// Call it before an email bounces because of a policy, and try once more if the result differs from the policy of the
// last try (RFC 8461 section 5.1).
func (s *Service) Renew(ctx context.Context, domain string) (mtasts.Policy, State, error) {
	return s.find(ctx, domain, true)
}

func (s *Service) find(ctx context.Context, name string, renew bool) (mtasts.Policy, State, error) {
	domain, err := mtasts.Domain(name)
	if err != nil {
		return mtasts.Policy{}, State{Origin: NoPolicy, Reason: err.Error()}, nil
	}
	p, st, err := s.decide(ctx, domain, s.lookUp(ctx, domain))
	if err != nil || !renew || p.Mode != mtasts.Enforce {
		return p, st, err
	}
	return s.decide(ctx, domain, s.lookUpFresh(ctx, domain))
}

// decide returns the policy that applies to a domain with this record.
func (s *Service) decide(ctx context.Context, domain string, r record) (mtasts.Policy, State, error) {
	e, err := s.recall(ctx, domain)
	if err == nil && !e.settles(r, s.c.Now()) {
		e, err = s.fetchOrKeep(ctx, domain, e, r)
	}
	if err != nil {
		return mtasts.Policy{}, State{Domain: domain, Origin: NoPolicy, Reason: readable(err.Error())},
			fmt.Errorf("%w of %s: %w", ErrUnknown, domain, err)
	}
	p, st := judge(domain, e, r, s.c.Now())
	if p.Mode == "" && ctx.Err() != nil { // the caller has not waited for the record
		return p, st, fmt.Errorf("%w of %s: %w", ErrUnknown, domain, context.Cause(ctx))
	}
	return p, st, nil
}

// ErrUnknown means that it is unknown which policy applies, because the database failed or the context has ended.
var ErrUnknown = errors.New("this installation could not find out the MTA-STS policy")

// fetchOrKeep fetches the policy of a domain, and returns the domain's new entry. If the policy cannot be fetched now,
// the result is the current entry, so that a valid policy in it applies.
func (s *Service) fetchOrKeep(ctx context.Context, domain string, known *Entry, r record) (*Entry, error) {
	e, err := s.fetchOnce(ctx, domain, r)
	busy := errors.Is(err, errBusy)
	if err != nil && !busy && known.Valid(s.c.Now()) {
		e = known
	}
	switch {
	case err == nil:
		return e, nil
	case e.Valid(s.c.Now()):
		s.p.Log.Warn("a TLS policy cannot be fetched; the cached one applies", "domain", domain, "error", err)
		return e, nil
	case busy:
		s.warnBusy.Do(func() {
			s.p.Log.Warn("a TLS policy cannot be fetched now, and none is cached; the mail does not wait for it. "+
				"Check that this node reaches web servers at port 443", "domain", domain, "error", err)
		})
		return e, nil
	}
	return nil, err
}

// lookUp returns the domain's record. It repeats no look-up that has just failed.
func (s *Service) lookUp(ctx context.Context, domain string) record {
	if r, failed := s.failures.get(domain, s.c.Now()); failed {
		return r
	}
	return s.ask(ctx, s.p.DNS, domain)
}

// lookUpFresh returns the domain's record without using a cached answer. Concurrent callers share one look-up.
func (s *Service) lookUpFresh(ctx context.Context, domain string) record {
	flight := s.lookUps.DoChan(domain, func() (any, error) {
		return s.ask(context.WithoutCancel(ctx), s.p.Fresh, domain), nil
	})
	select {
	case landed := <-flight:
		r := landed.Val.(record)
		r.fresh = true
		return r
	case <-ctx.Done():
		return record{reason: lookUpFailed + ctx.Err().Error()}
	}
}

const lookUpFailed = "the MTA-STS record cannot be looked up: "

// ask asks a resolver for the domain's record, and remembers a failure.
func (s *Service) ask(ctx context.Context, dns resolve.Resolver, domain string) record {
	within, cancel := context.WithTimeout(ctx, s.c.RecordTimeout)
	defer cancel()
	texts, err := dns.TXT(within, mtasts.RecordName(domain))
	if err != nil && !errors.Is(err, resolve.ErrNotFound) {
		r := record{reason: readable(lookUpFailed + err.Error())}
		if ctx.Err() == nil {
			s.failures.put(domain, r, s.c.Now())
		}
		return r
	}
	s.failures.remove(domain)
	id, err := mtasts.FindRecord(texts)
	if errors.Is(err, mtasts.ErrNoRecord) {
		return record{reason: domain + " has no MTA-STS record"}
	}
	if err != nil {
		return record{reason: readable("the MTA-STS record is invalid: " + err.Error())}
	}
	return record{id: id}
}

// recall returns the domain's entry, or nil if there is none. If the database fails, recall returns the last known
// entry if its policy is still valid. Otherwise it returns an error, because the database may have a policy.
func (s *Service) recall(ctx context.Context, domain string) (*Entry, error) {
	now := s.c.Now()
	known, fresh := s.memory.get(domain, now)
	if fresh {
		return known, nil
	}
	version := s.memory.version()
	e, err := find(ctx, s.p.DB.Reader, domain)
	if err != nil {
		if !known.Valid(now) {
			return nil, unavailable{err}
		}
		s.p.Log.Warn("a cached TLS policy cannot be read; the last known one applies", "domain", domain, "error", err)
		return known, nil
	}
	if e != nil && e.Unreadable {
		s.p.Log.Warn("a stored TLS policy is invalid and is fetched again", "domain", domain)
	}
	if e != nil && now.Sub(e.UsedAt) >= usedEvery {
		if err := s.recordUse(ctx, domain, now); err != nil {
			s.p.Log.Warn("the use of a TLS policy cannot be recorded", "domain", domain, "error", err)
		}
		e.UsedAt = now
	}
	s.memory.put(domain, e, now, version)
	return e, nil
}

// unavailable is an error that is our own failure, and not that of a domain.
type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

// Outage reports that this installation failed (see fault.IsOutage).
func (unavailable) Outage() bool { return true }

// Show returns the cached entry of a domain, for the operator.
func (s *Service) Show(ctx context.Context, name string) (Entry, error) {
	domain, err := mtasts.Domain(name)
	if err != nil {
		return Entry{}, fault.Invalidf("domain", "%s", err)
	}
	e, err := find(ctx, s.p.DB.Reader, domain)
	if err != nil {
		return Entry{}, err
	}
	if e == nil {
		return Entry{}, errNotCached(domain)
	}
	return *e, nil
}

// Forget deletes the cached entry of a domain on all nodes. If the domain still has a record, the next email fetches
// its policy.
func (s *Service) Forget(ctx context.Context, name string) error {
	domain, err := mtasts.Domain(name)
	if err != nil {
		return fault.Invalidf("domain", "%s", err)
	}
	audit.Target(ctx, domain)
	found, err := s.remove(ctx, domain)
	if err == nil && !found {
		err = errNotCached(domain)
	}
	return err
}

func errNotCached(domain string) error {
	return fault.NotFoundf("No policy of %s is cached: no email was sent to it, or it has no MTA-STS record.", domain)
}

// Now returns the time by which policies expire.
func (s *Service) Now() time.Time { return s.c.Now() }

const maxReason = 300 // bytes

// readable makes the hidden characters of a text visible that may contain data of strangers, and shortens it.
func readable(text string) string {
	text = visible.Show(text[:min(len(text), maxReason+1)])
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}
