package tlspolicies_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// A policy whose text grows beyond the limit when it is stored is refused.
func TestPolicyThatGrows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	var b strings.Builder
	b.WriteString("version:STSv1\nmode:enforce\nmax_age:604800\n")
	for i := 0; b.Len() < mtasts.MaxPolicySize-20; i++ {
		fmt.Fprintf(&b, "mx:a%d\n", i)
	}
	f.publish(site, "1", b.String())
	f.expect(f.s, site, "", none, mtasts.PolicyInvalid, 1)
	f.clock.add(5 * time.Minute)
	f.publish(site, "2", enforced)
	f.expect(f.s, site, "enforce", live, "", 2)
}

// A stored policy that cannot be parsed is fetched again by the next email or the next refresh. It does not stop the
// refresh of others.
func TestUnreadableRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		domains := []string{"a.example", "bad.example", "c.example", "gone.example"}
		for _, domain := range domains {
			f.publish(domain, "1", enforced)
			f.expect(f.s, domain, "enforce", live, "", 1)
		}
		spoil := func(domain string) {
			t.Helper()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE mta_sts_policies SET policy = 'mode: strict' WHERE domain = $1`, domain)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		spoil("bad.example")
		spoil("gone.example")
		f.lab.Set("gone.example", ststest.Site{})
		s := f.service(d)
		if e, err := s.Show(t.Context(), "bad.example"); err != nil || !e.Unreadable || e.ID != "" || e.Policy.Mode != "" {
			t.Errorf("%+v, %v", e, err)
		}
		f.expect(s, "gone.example", "", none, "", 1)
		f.clock.add(27 * time.Hour)
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.absent("gone.example")
		if e, err := s.Show(t.Context(), "bad.example"); err != nil || e.Unreadable || e.ID != "1" {
			t.Errorf("after the refresh: %+v, %v", e, err)
		}
		for _, domain := range domains[:3] {
			f.expect(s, domain, "enforce", live, "", 2)
		}
		spoil("bad.example")
		f.expect(f.service(d), "bad.example", "enforce", live, "", 3)
	})
}

// brokenDNS fails to look up TXT records while it is broken.
type brokenDNS struct {
	resolve.Resolver
	broken atomic.Bool
	asked  atomic.Int32
}

func (b *brokenDNS) TXT(ctx context.Context, name string) ([]string, error) {
	b.asked.Add(1)
	if b.broken.Load() {
		return nil, resolve.ErrTemporary
	}
	return b.Resolver.TXT(ctx, name)
}

// stuckDNS does not answer look-ups of TXT records.
type stuckDNS struct {
	resolve.Resolver
	asked *atomic.Int32
}

func (s stuckDNS) TXT(ctx context.Context, _ string) ([]string, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", resolve.ErrTemporary, ctx.Err())
}

// A delivery waits for the look-up of a record only until its time limit, and the next delivery does not wait. Without
// the limit, the test would not end.
func TestStuckLookUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	f.publish(site, "1", enforced)
	f.expect(f.s, site, "enforce", live, "", 1)
	var asked atomic.Int32
	s := f.service(f.d, func(c *tlspolicies.Config, p *tlspolicies.Deps) {
		p.DNS, c.RecordTimeout = stuckDNS{p.DNS, &asked}, time.Millisecond
	})
	for range 3 {
		f.expect(s, site, "enforce", cached, mtasts.FetchError, 1)
	}
	if asked.Load() != 1 {
		t.Errorf("%d look-ups", asked.Load())
	}
}

// A look-up that failed is not repeated for two minutes. Meanwhile, the cached policy applies. Renew looks up the
// record all the same.
func TestFailedLookUpsAreRemembered(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		dns := &brokenDNS{Resolver: f.lab.Resolver()}
		s := f.service(d, func(_ *tlspolicies.Config, p *tlspolicies.Deps) { p.DNS = dns })
		f.publish(site, "1", enforced)
		f.expect(s, site, "enforce", live, "", 1)
		dns.broken.Store(true)
		before := dns.asked.Load()
		for range 3 {
			f.expect(s, site, "enforce", cached, mtasts.FetchError, 1)
			f.expect(s, "plain.example", "", none, "", 0)
		}
		p, st := f.renew(s, site)
		f.compare(site, p, st, "enforce", live, "")
		if n := dns.asked.Load() - before; n != 2 {
			t.Errorf("%d look-ups for two domains", n)
		}
		dns.broken.Store(false)
		f.expect(s, site, "enforce", live, "", 1) // Renew has found it
		f.clock.add(2*time.Minute - time.Microsecond)
		before = dns.asked.Load()
		f.expect(s, "plain.example", "", none, "", 0)
		if n := dns.asked.Load() - before; n != 0 {
			t.Errorf("%d look-ups within two minutes of a failure", n)
		}
		f.clock.add(time.Microsecond)
		f.expect(s, "plain.example", "", none, "", 0)
		if n := dns.asked.Load() - before; n != 1 {
			t.Errorf("%d look-ups after two minutes", n)
		}
	})
}

// The failed look-up of a delivery that is stopped says nothing about the domain.
func TestStoppedLookUpIsNotRemembered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	f.publish(site, "1", enforced)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := f.s.For(ctx, site); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	f.expect(f.s, site, "enforce", live, "", 1)
}

// Emails to new subdomains of one site cause at most as many fetches as the limit says. Mail beyond it is delivered
// without a policy, and other sites are not affected. A valid policy in the cache applies.
func TestFetchesOfASite(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	s := f.service(f.d, func(c *tlspolicies.Config, _ *tlspolicies.Deps) { c.Limits.SiteFetchesPerMinute = 1 })
	for i := range 5 {
		f.publish(fmt.Sprintf("d%d.wild.example", i), "1", enforced)
	}
	f.expect(s, "d0.wild.example", "enforce", live, "", 1)
	for i := range 4 {
		f.expect(s, fmt.Sprintf("d%d.wild.example", i+1), "", none, "", 0)
	}
	f.publish(site, "1", enforced)
	f.expect(s, site, "enforce", live, "", 1)
	f.publish("d0.wild.example", "2", enforced)
	f.expect(s, "d0.wild.example", "enforce", cached, mtasts.FetchError, 1)
	f.clock.add(27 * time.Hour)
	if err := s.Refresh(t.Context()); err != nil {
		t.Errorf("a refresh that must wait: %v", err)
	}
	f.expect(s, "d0.wild.example", "enforce", cached, mtasts.FetchError, 1)
}

// The limit of a node holds for all sites together. Mail beyond it is delivered without a policy, unless the cache has
// a valid one, which another node may have fetched meanwhile.
func TestFetchesOfANode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	s := f.service(f.d, func(c *tlspolicies.Config, _ *tlspolicies.Deps) { c.Limits.FetchesPerMinute = 1 })
	f.publish("one.example", "1", enforced)
	f.publish("two.example", "1", enforced)
	f.expect(s, "one.example", "enforce", live, "", 1)
	f.expect(s, "two.example", "", none, "", 0)
	if all := f.log.take(); len(all) != 1 {
		t.Errorf("logged: %q", all)
	}
	f.expect(f.s, "two.example", "enforce", live, "", 1)
	f.expect(s, "two.example", "enforce", live, "", 1)
	f.publish("one.example", "2", enforced)
	f.expect(s, "one.example", "enforce", cached, mtasts.FetchError, 1)
}

// A web server that never ends its answer keeps the only place. Mail to other domains does not wait for it, and their
// policies are fetched later.
func TestDrippingServerStopsNoMail(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	s := f.service(f.d, func(c *tlspolicies.Config, _ *tlspolicies.Deps) {
		c.Limits.Fetches, c.Wait = 1, time.Millisecond
	})
	begun, end := make(chan struct{}), make(chan struct{})
	f.lab.Set("drip.example", ststest.Site{TXT: ststest.Record("1"), Handler: func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-end
	}})
	f.publish(site, "1", enforced)
	var drip sync.WaitGroup
	drip.Go(func() { f.find(s, "drip.example") })
	<-begun
	f.expect(s, site, "", none, "", 0)
	close(end)
	drip.Wait()
	f.expect(s, site, "enforce", live, "", 1)
}

// A web server that accepts connections and says nothing costs a fetch the time for the connection only. Without this
// limit, the test would not end.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := f.service(f.d, func(c *tlspolicies.Config, _ *tlspolicies.Deps) {
		c.Port, c.ConnectTimeout, c.Timeout = silent.Addr().(*net.TCPAddr).Port, 50*time.Millisecond, time.Hour
	})
	f.publish(site, "1", enforced)
	f.expect(s, site, "", none, mtasts.FetchError, 0)
	if _, st := f.find(s, site); !strings.Contains(st.Reason, "in time") {
		t.Errorf("the reason is %q", st.Reason)
	}
}

// toldDNS tells when a TXT record was looked up.
type toldDNS struct {
	resolve.Resolver
	told chan string
}

func (d toldDNS) TXT(ctx context.Context, name string) ([]string, error) {
	defer func() { d.told <- name }()
	return d.Resolver.TXT(ctx, name)
}

// A delivery that waits for the fetch of another node takes no place from other fetches.
func TestWaitForAnotherNodeTakesNoPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	told := make(chan string, 100)
	s := f.service(f.d, func(c *tlspolicies.Config, p *tlspolicies.Deps) {
		c.Limits.Fetches, c.Limits.SiteFetches, c.Wait = 1, 1, 10*time.Second
		p.DNS = toldDNS{p.DNS, told}
	})
	begun, end := make(chan struct{}), make(chan struct{})
	f.lab.Set("claimed.example", ststest.Site{TXT: ststest.Record("1"), Handler: func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		w.Header().Set("Content-Type", "text/plain")
		w.Write([]byte(enforced))
	}})
	var all sync.WaitGroup
	all.Go(func() { f.find(f.s, "claimed.example") }) // on the other node
	<-begun
	all.Go(func() {
		p, st := f.find(s, "claimed.example")
		f.compare("claimed.example", p, st, "enforce", live, "")
	})
	<-told
	for i := range 20 { // the delivery above waits by now, or soon
		domain := fmt.Sprintf("d%d.example", i)
		f.publish(domain, "1", enforced)
		f.expect(s, domain, "enforce", live, "", 1)
	}
	close(end)
	all.Wait()
}

// At most so many fetches run at the same time as the limits say, from a site and in total.
func TestFetchesAtATime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits tlspolicies.Limits
		domain string
	}{
		{tlspolicies.Limits{SiteFetches: 2}, "d%d.wild.example"},
		{tlspolicies.Limits{Fetches: 2}, "d%d.example"},
	} {
		f := newFixture(t, sqlite(t))
		s := f.service(f.d, func(to *tlspolicies.Config, _ *tlspolicies.Deps) {
			to.Wait = time.Minute
			to.Limits.Fetches = cmp.Or(c.limits.Fetches, to.Limits.Fetches)
			to.Limits.SiteFetches = cmp.Or(c.limits.SiteFetches, to.Limits.SiteFetches)
		})
		var now, most atomic.Int32
		begun := make(chan struct{}, 100)
		answer := make(chan struct{})
		for i := range 6 {
			f.lab.Set(fmt.Sprintf(c.domain, i), ststest.Site{TXT: ststest.Record("1"),
				Handler: func(w http.ResponseWriter, _ *http.Request) {
					n := now.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					begun <- struct{}{}
					<-answer
					now.Add(-1)
					w.Header().Set("Content-Type", "text/plain")
					w.Write([]byte(enforced))
				}})
		}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() { f.expect(s, fmt.Sprintf(c.domain, i), "enforce", live, "", 1) })
		}
		<-begun
		<-begun
		close(answer)
		all.Wait()
		if most.Load() > 2 {
			t.Errorf("%s: %d fetches at the same time", c.domain, most.Load())
		}
	}
}

// Concurrent calls of For and Renew for one domain share one fetch, even if a DNS cache has the former id.
func TestOneFetchForAllIDs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		dns := &staleDNS{Resolver: f.lab.Resolver()}
		s := f.service(d, func(_ *tlspolicies.Config, p *tlspolicies.Deps) { p.DNS, p.Fresh = dns, freshDNS{dns} })
		f.publish(site, "1", enforced)
		f.expect(s, site, "enforce", live, "", 1)
		dns.old.Store(new(ststest.Record("1")))
		f.publish(site, "2", enforced)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				find := f.find
				if i%2 == 0 {
					find = f.renew
				}
				if p, st := find(s, site); p.Mode != "enforce" || st.Origin != live {
					t.Errorf("%+v, %+v", p, st)
				}
			})
		}
		all.Wait()
		if n := f.lab.Fetches(site); n != 2 {
			t.Errorf("%d fetches, want 2", n)
		}
	})
}

// A refresh deletes rows until the cache is within its limits: first those of sites that have too many, and first those
// without a valid enforced policy.
func TestPrune(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		add := func(mode string, domains ...string) {
			for _, domain := range domains {
				f.publish(domain, "1", ststest.Policy(mode, 4*week, "mx.example"))
				f.expect(f.s, domain, mtasts.Mode(mode), live, "", 1)
				f.clock.add(time.Second)
			}
		}
		add("enforce", "old.example", "e1.wild.example", "e2.wild.example")
		add("testing", "t1.wild.example", "t2.wild.example", "t1.example", "t2.example")
		add("enforce", "e1.example", "e2.example")
		left := func(l tlspolicies.Limits, want ...string) {
			t.Helper()
			s := f.service(d, func(c *tlspolicies.Config, _ *tlspolicies.Deps) { c.Limits = l })
			if err := s.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			rows, err := d.Query(t.Context(), `SELECT domain FROM mta_sts_policies`)
			got, err := db.Collect(rows, err, func(r db.Row) (domain string, err error) { return domain, r.Scan(&domain) })
			if slices.Sort(got); err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%+v: %q, %v; want %q", l, got, err, want)
			}
		}
		all := []string{"e1.example", "e1.wild.example", "e2.example", "e2.wild.example", "old.example", "t1.example",
			"t1.wild.example", "t2.example", "t2.wild.example"}
		left(tlspolicies.Limits{}, all...)
		left(tlspolicies.Limits{Rows: 9, SiteRows: 4}, all...)
		left(tlspolicies.Limits{SiteRows: 3}, "e1.example", "e1.wild.example", "e2.example", "e2.wild.example",
			"old.example", "t1.example", "t2.example", "t2.wild.example")
		left(tlspolicies.Limits{SiteRows: 1}, "e1.example", "e2.example", "e2.wild.example", "old.example", "t1.example",
			"t2.example")
		left(tlspolicies.Limits{Rows: 5}, "e1.example", "e2.example", "e2.wild.example", "old.example", "t2.example")
		left(tlspolicies.Limits{Rows: 3}, "e1.example", "e2.example", "e2.wild.example")
		one := int64(len(mtasts.Policy{Mode: mtasts.Enforce, MX: []string{"mx.example"}, MaxAge: 4 * week *
			time.Second}.Text()))
		left(tlspolicies.Limits{Text: 2 * one}, "e1.example", "e2.example")
		left(tlspolicies.Limits{SiteText: one}, "e1.example", "e2.example")
		left(tlspolicies.Limits{SiteText: one - 1})
	})
}
