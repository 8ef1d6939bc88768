package tlspolicies

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/audit"
)

// For returns the policy that applies to mail for a domain, and explains the result. The zero Policy means that none
// applies. If the policy must be fetched, For waits for at most a minute. If ctx ends earlier, For returns what is
// known.
func (s *Service) For(ctx context.Context, domain string) (mtasts.Policy, State) {
	return s.find(ctx, domain, s.p.DNS, false)
}

// Renew is like For, but does not use cached answers of the DNS. Call it before an email bounces because of a policy,
// and try once more if the result differs from the policy of the last try (RFC 8461 section 5.1).
func (s *Service) Renew(ctx context.Context, domain string) (mtasts.Policy, State) {
	return s.find(ctx, domain, s.p.Fresh, true)
}

func (s *Service) find(ctx context.Context, name string, dns resolve.Resolver, fresh bool) (mtasts.Policy, State) {
	domain, err := mtasts.Domain(name)
	if err != nil {
		return mtasts.Policy{}, State{Origin: NoPolicy, Reason: err.Error()}
	}
	r := lookUp(ctx, dns, domain)
	r.fresh = fresh
	e := s.recall(ctx, domain)
	if !e.settles(r, s.c.Now()) {
		e = s.fetchOnce(ctx, domain, r, e)
	}
	return judge(domain, e, r, s.c.Now())
}

// lookUp returns the domain's record.
func lookUp(ctx context.Context, dns resolve.Resolver, domain string) record {
	texts, err := dns.TXT(ctx, mtasts.RecordName(domain))
	if err != nil && !errors.Is(err, resolve.ErrNotFound) {
		return record{reason: readable("the MTA-STS record cannot be looked up: " + err.Error())}
	}
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
// entry.
func (s *Service) recall(ctx context.Context, domain string) *Entry {
	now := s.c.Now()
	known, fresh := s.memory.get(domain, now)
	if fresh {
		return known
	}
	version := s.memory.version()
	e, err := find(ctx, s.p.DB.Reader, domain)
	if err != nil {
		s.p.Log.Warn("a cached TLS policy cannot be read", "domain", domain, "error", err)
		return known
	}
	if e != nil && now.Sub(e.UsedAt) >= usedEvery {
		if err := s.recordUse(ctx, domain, now); err != nil {
			s.p.Log.Warn("the use of a TLS policy cannot be recorded", "domain", domain, "error", err)
		}
		e.UsedAt = now
	}
	s.memory.put(domain, e, now, version)
	return e
}

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

// readable shortens a text that may contain data of strangers, and makes its hidden characters visible.
func readable(text string) string {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return visible.Show(text)
}
