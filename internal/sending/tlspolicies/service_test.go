package tlspolicies_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

const (
	site   = "one.example"
	none   = tlspolicies.NoPolicy
	live   = tlspolicies.Live
	cached = tlspolicies.Cached
)

var enforced = ststest.Policy("enforce", week, "mx.one.example")

// A policy is fetched once, and again after it has expired.
func TestExpiry(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish(site, "1", enforced)
		for range 3 {
			f.expect(f.s, site, "enforce", live, "", 1)
			f.clock.add(48 * time.Hour)
		}
		f.clock.add(24*time.Hour - time.Microsecond)
		f.expect(f.s, site, "enforce", live, "", 1)
		f.clock.add(time.Microsecond)
		f.expect(f.s, site, "enforce", live, "", 2)

		// Without a record, the policy applies until it expires.
		f.lab.Set(site, ststest.Site{})
		f.clock.add(week*time.Second - time.Microsecond)
		f.expect(f.s, site, "enforce", cached, mtasts.FetchError, 2)
		f.clock.add(time.Microsecond)
		f.expect(f.s, site, "", none, "", 2)
	})
}

// No failure removes a valid cached policy. After a failed fetch, the next one with the same id is five minutes later.
func TestFailuresKeepTheCachedPolicy(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		expired := f.lab.CA.Expired("mta-sts." + site)
		for name, c := range map[string]struct {
			site    ststest.Site
			result  mtasts.Result
			fetches int // for each try
		}{
			"no record":       {ststest.Site{}, mtasts.FetchError, 0},
			"record fails":    {ststest.Site{RecordFails: true}, mtasts.FetchError, 0},
			"two records":     {ststest.Site{TXT: append(ststest.Record("2"), ststest.Record("3")...)}, mtasts.FetchError, 0},
			"broken record":   {ststest.Site{TXT: ststest.Record("")}, mtasts.FetchError, 0},
			"404":             {ststest.Site{TXT: ststest.Record("2"), Handler: http.NotFound}, mtasts.FetchError, 1},
			"no web server":   {ststest.Site{TXT: ststest.Record("2"), NoAddress: true}, mtasts.FetchError, 0},
			"bad certificate": {ststest.Site{TXT: ststest.Record("2"), Certificate: &expired}, mtasts.WebPKIInvalid, 0},
			"bad policy":      {ststest.Site{TXT: ststest.Record("2"), Policy: "mode: none"}, mtasts.PolicyInvalid, 1},
		} {
			f.publish(site, "1", enforced)
			if err := f.s.Forget(t.Context(), site); err != nil && fault.KindOf(err) != fault.NotFound {
				t.Fatal(err)
			}
			n := f.lab.Fetches(site)
			f.expect(f.s, site, "enforce", live, "", n+1)
			f.lab.Set(site, c.site)
			f.expect(f.s, site, "enforce", cached, c.result, n+1+c.fetches)
			f.clock.add(5*time.Minute - time.Microsecond)
			f.expect(f.s, site, "enforce", cached, c.result, n+1+c.fetches)
			f.clock.add(time.Microsecond)
			f.expect(f.s, site, "enforce", cached, c.result, n+1+2*c.fetches)
			if _, st := f.find(f.s, site); !strings.Contains(st.Reason, "applies until") {
				t.Errorf("%s: the reason is %q", name, st.Reason)
			}
			if c.site.RecordFails {
				f.clock.add(2 * time.Minute) // failed look-ups are remembered
			}
			f.publish(site, "3", ststest.Policy("testing", week, "other.example")) // another id is tried at once
			f.expect(f.s, site, "testing", live, "", n+2+2*c.fetches)
		}
	})
}

// The first fetch fails: no policy applies, and the next try is five minutes later, also with another id.
func TestFirstFetchFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.lab.Set(site, ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
		f.expect(f.s, site, "", none, mtasts.FetchError, 1)
		f.expect(f.s, site, "", none, mtasts.FetchError, 1)
		f.expect(f.service(d), site, "", none, mtasts.FetchError, 1)
		f.clock.add(5 * time.Minute)
		f.expect(f.s, site, "", none, mtasts.FetchError, 2)
		f.publish(site, "2", enforced)
		f.clock.add(5*time.Minute - time.Microsecond)
		f.expect(f.s, site, "", none, mtasts.FetchError, 2)
		f.clock.add(time.Microsecond)
		f.expect(f.s, site, "enforce", live, "", 3)
	})
}

// While a domain has no valid policy, each failed fetch doubles the time until the next one, up to four hours.
// Refreshes of the cache do not begin it anew. A policy that is valid is tried each five minutes.
func TestFetchesThatFailBecomeRare(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.lab.Set(site, ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
		f.expect(f.s, site, "", none, mtasts.FetchError, 1)
		for i, minutes := range []time.Duration{5, 10, 20, 40, 80, 160, 240, 240} {
			f.clock.add(minutes*time.Minute - time.Microsecond)
			f.refresh()
			f.expect(f.s, site, "", none, mtasts.FetchError, i+1)
			f.clock.add(time.Microsecond)
			f.expect(f.s, site, "", none, mtasts.FetchError, i+2)
		}
		f.clock.add(4 * time.Hour)
		f.publish(site, "1", enforced)
		f.expect(f.s, site, "enforce", live, "", 10)
		f.lab.Set(site, ststest.Site{TXT: ststest.Record("2"), Handler: http.NotFound})
		for i := range 3 {
			f.expect(f.s, site, "enforce", cached, mtasts.FetchError, i+11)
			f.clock.add(5 * time.Minute)
		}
	})
}

// A change of the policy counts when the id changes. A policy of the mode none ends the enforcement at once.
func TestModeChanges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish(site, "1", enforced)
		f.expect(f.s, site, "enforce", live, "", 1)
		f.publish(site, "1", ststest.Policy("none", 60)) // with the same id
		f.expect(f.s, site, "enforce", live, "", 1)
		f.publish(site, "2", ststest.Policy("none", 60))
		f.expect(f.s, site, "none", live, "", 2)
		f.publish(site, "3", ststest.Policy("testing", week, "a.example"))
		f.expect(f.s, site, "testing", live, "", 3)
		f.publish(site, "4", ststest.Policy("enforce", 0, "a.example"))
		f.expect(f.s, site, "enforce", live, "", 4)
		f.expect(f.s, site, "enforce", live, "", 4) // max_age 0 costs no fetch for each email
		f.clock.add(5 * time.Minute)
		f.expect(f.s, site, "enforce", live, "", 5)
	})
}

// staleDNS is a resolver whose cache has an old record.
type staleDNS struct {
	resolve.Resolver
	old   atomic.Pointer[[]string]
	fresh atomic.Int32 // look-ups of freshDNS
}

// freshDNS is the resolver without the cache.
type freshDNS struct{ *staleDNS }

func (f freshDNS) TXT(ctx context.Context, name string) ([]string, error) {
	f.fresh.Add(1)
	return f.Resolver.TXT(ctx, name)
}

func (s *staleDNS) TXT(ctx context.Context, name string) ([]string, error) {
	if old := s.old.Load(); old != nil {
		return *old, nil
	}
	return s.Resolver.TXT(ctx, name)
}

// Before a bounce, Renew sees a change that a cached DNS answer hides. Nodes whose caches have the former id do not
// fetch the policy again and again. After an hour, the former id means that the policy was changed back.
func TestRenew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		dns := &staleDNS{Resolver: f.lab.Resolver()}
		s := f.service(d, func(_ *tlspolicies.Config, p *tlspolicies.Deps) { p.DNS, p.Fresh = dns, freshDNS{dns} })
		f.publish(site, "1", enforced)
		f.expect(s, site, "enforce", live, "", 1)
		p, st := f.renew(s, site)
		f.compare(site, p, st, "enforce", live, "")
		if n := f.lab.Fetches(site); n != 1 {
			t.Errorf("Renew without a new id fetches the policy: %d", n)
		}

		dns.old.Store(new(ststest.Record("1")))
		f.publish(site, "2", ststest.Policy("testing", week, "a.example"))
		f.expect(s, site, "enforce", live, "", 1)
		p, st = f.renew(s, site)
		f.compare(site, p, st, "testing", live, "")
		if st.ID != "2" {
			t.Errorf("the id is %q", st.ID)
		}
		f.expect(s, site, "testing", live, "", 2)
		f.expect(f.s, site, "testing", live, "", 2)
		f.clock.add(time.Hour - time.Microsecond)
		f.expect(s, site, "testing", live, "", 2)

		// No email bounces because of a policy that is not enforced.
		f.publish(site, "3", enforced)
		asked := dns.fresh.Load()
		p, st = f.renew(s, site)
		f.compare(site, p, st, "testing", live, "")
		if n := dns.fresh.Load() - asked; n != 0 {
			t.Errorf("Renew asks %d times for the record of a policy in testing", n)
		}
		f.clock.add(time.Hour)
		f.publish(site, "1", enforced)
		f.expect(s, site, "enforce", live, "", 3)
		dns.old.Store(nil)

		// A failure is no news.
		f.lab.Set(site, ststest.Site{TXT: ststest.Record("5"), Handler: http.NotFound})
		p, st = f.renew(s, site)
		f.compare(site, p, st, "enforce", cached, mtasts.FetchError)
	})
}

// Concurrent deliveries share one fetch, also with the deliveries of another node.
func TestOneFetchAtATime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		asked, answer := make(chan struct{}, 100), make(chan struct{})
		f.lab.Set(site, ststest.Site{TXT: ststest.Record("1"), Handler: func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			select {
			case <-answer:
			case <-r.Context().Done():
			}
			w.Header().Set("Content-Type", "text/plain")
			w.Write([]byte(enforced))
		}})
		other := f.service(d)
		var wg sync.WaitGroup
		for _, s := range []*tlspolicies.Service{f.s, other} {
			for range 10 {
				wg.Go(func() {
					p, st := f.find(s, site)
					f.compare(site, p, st, "enforce", live, "")
				})
			}
		}
		<-asked
		// A delivery that is stopped does not wait, and a transaction is possible.
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if p, st, err := f.s.For(ctx, site); p.Mode != "" || st.Origin != none || !errors.Is(err, context.Canceled) {
			t.Errorf("a stopped delivery gets %+v, %+v, %v", p, st, err)
		}
		if _, err := f.s.Show(t.Context(), site); err != nil {
			t.Error(err)
		}
		close(answer)
		wg.Wait()
		if n := f.lab.Fetches(site); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// A domain without a record costs no row, and one without a policy domain no look-up.
func TestNoRecord(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		for name, want := range map[string]string{"plain.example": "plain.example has no MTA-STS record",
			"[192.0.2.1]": "is an address", "": "is not a domain"} {
			if p, st := f.find(f.s, name); p.Mode != "" || st.Origin != none || st.Result != "" ||
				!strings.Contains(st.Reason, want) {
				t.Errorf("%q: %+v, %+v", name, p, st)
			}
		}
		f.lab.Set("failing.example", ststest.Site{RecordFails: true})
		f.expect(f.s, "failing.example", "", none, "", 0)
		var rows int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM mta_sts_policies`).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

// Web servers at addresses that are not public get no request.
func TestGuard(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	f.publish(site, "1", enforced)
	s := f.service(f.d, func(_ *tlspolicies.Config, p *tlspolicies.Deps) { p.Guard = netguard.New(netguard.Options{}) })
	f.expect(s, site, "", none, mtasts.FetchError, 0)
	if _, st := f.find(s, site); !strings.Contains(st.Reason, netguard.ErrRefused.Error()) {
		t.Errorf("the reason is %q", st.Reason)
	}
}

// Show and Forget find a domain in any spelling. The next email after Forget fetches the policy again.
func TestShowAndForget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		const domain = "xn--bcher-kva.example"
		ctx := t.Context()
		if _, err := f.s.Show(ctx, domain); fault.KindOf(err) != fault.NotFound {
			t.Errorf("nothing is cached: %v", err)
		}
		if err := f.s.Forget(ctx, domain); fault.KindOf(err) != fault.NotFound {
			t.Errorf("nothing is cached: %v", err)
		}
		if _, err := f.s.Show(ctx, "[192.0.2.1]"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("an address: %v", err)
		}
		if err := f.s.Forget(ctx, "a b"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("no domain: %v", err)
		}
		f.publish(domain, "1", enforced)
		f.expect(f.s, "Bücher.example", "enforce", live, "", 0)
		e, err := f.s.Show(ctx, "BÜCHER.example.")
		now := f.clock.Now()
		if err != nil || e.Domain != domain || e.ID != "1" || e.Policy.MX[0] != "mx.one.example" || !e.UsedAt.Equal(now) ||
			!e.FetchedAt.Equal(now) || !e.ExpiresAt.Equal(now.Add(week*time.Second)) || e.FailedID != "" {
			t.Errorf("%+v, %v", e, err)
		}
		f.lab.Set(domain, ststest.Site{TXT: ststest.Record("2"), Handler: http.NotFound})
		f.s.For(ctx, domain)
		e, err = f.s.Show(ctx, domain)
		if err != nil || e.ID != "1" || e.FailedID != "2" || e.Failure != mtasts.FetchError ||
			!e.RetryAt.Equal(f.clock.Now().Add(5*time.Minute)) || !strings.Contains(e.Reason, "404") {
			t.Errorf("%+v, %v", e, err)
		}
		if err := f.s.Forget(ctx, "bücher.example"); err != nil {
			t.Error(err)
		}
		f.publish(domain, "1", ststest.Policy("testing", week, "a.example"))
		f.expect(f.s, domain, "testing", live, "", 3)
	})
}
