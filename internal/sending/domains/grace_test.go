package domains_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

// clocked runs f in simulated time on an SQLite database, with the job runner and daily rechecks running. PostgreSQL
// uses its own clock, so other tests cover the behavior that both engines share. The function pass advances the
// simulated time and then runs the due jobs.
func clocked(t *testing.T, dns resolve.Resolver, c domains.Config, f func(t *testing.T, s *domains.Service,
	pass func(time.Duration)),
	listeners ...events.Listener) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, _, runner := build(t, dbtest.SQLite(t), dns, c, listeners...)
		oneKey(t, s)
		stop := run(t, runner())
		t.Cleanup(func() { stop() })
		f(t, s, func(long time.Duration) {
			if long > time.Hour {
				stop()
				time.Sleep(long - time.Minute)
				stop = run(t, runner())
				long = time.Minute
			}
			time.Sleep(long)
			synctest.Wait()
		})
	})
}

// statuses returns the status of the domain and, by record key, the states of its records.
func statuses(t *testing.T, s *domains.Service, domainID string) (domains.Status, map[string]domains.Status) {
	t.Helper()
	d, err := s.Get(t.Context(), dbtest.ID("team"), domainID)
	if err != nil {
		t.Fatal(err)
	}
	records := map[string]domains.Status{}
	for _, r := range s.Records(&d) {
		records[r.Key] = r.Status
	}
	return d.Status, records
}

func newZone() *zone {
	return &zone{Fake: resolve.Fake{MXRecords: map[string][]resolve.MX{}, TXTRecords: map[string][]string{}}}
}

// install adds the domain's records to the zone.
func (z *zone) install(all []domains.Record) {
	z.set(func(f *resolve.Fake) {
		for _, r := range all {
			if r.Type == "MX" {
				f.MXRecords[r.FQDN] = []resolve.MX{{Host: r.Value, Pref: 10}}
			} else {
				f.TXTRecords[r.FQDN] = []string{r.Value}
			}
		}
	})
}

func mustCreate(t *testing.T, s *domains.Service, n domains.NewDomain) domains.Domain {
	t.Helper()
	d, err := s.Create(t.Context(), dbtest.ID("team"), n)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// If a domain's name servers fail ten times and then answer, the domain becomes verified without a second verification
// request.
func TestADomainOutlivesBrokenNameServers(t *testing.T) {
	for name, broken := range map[string]resolve.Fake{
		"servers that fail": {Fail: []string{"acme.example", "send.acme.example", "postrider._domainkey.acme.example",
			"postrider-ed._domainkey.acme.example"}},
		"servers that are silent": {},
	} {
		t.Run(name, func(t *testing.T) {
			dns := &stubborn{zone: newZone(), failures: 10, silent: name == "servers that are silent"}
			dns.Fail = broken.Fail
			clocked(t, dns, domains.Config{}, func(t *testing.T, s *domains.Service, pass func(time.Duration)) {
				dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
				dns.install(s.Records(&dom))
				verify(t, s, dbtest.ID("team"), dom.ID)
				pass(time.Second)
				if status, _ := statuses(t, s, dom.ID); status != domains.Pending {
					t.Errorf("it is %s at first", status)
				}
				pass(time.Hour)
				if status, records := statuses(t, s, dom.ID); status != domains.Verified {
					t.Errorf("after %d looks and an hour it is %s: %v", dns.looks.Load(), status, records)
				}
			})
		})
	}
}

// stubborn is a DNS zone in which the first few look-ups of a domain fail.
type stubborn struct {
	*zone
	failures int32
	silent   bool // queries get no answer, so the client times out
	looks    atomic.Int32
}

func (s *stubborn) TXT(ctx context.Context, name string) ([]string, error) {
	if name != "send.acme.example" || s.looks.Add(1) > s.failures {
		s.set(func(f *resolve.Fake) {
			if s.looks.Load() > s.failures {
				f.Fail = nil
			}
		})
		return s.zone.TXT(ctx, name)
	}
	if s.silent {
		<-ctx.Done()
	}
	return nil, resolve.ErrTemporary
}

// Ten consecutive internal errors do not end the verification of a domain.
func TestADomainOutlivesOurErrors(t *testing.T) {
	dns, listener := newZone(), &failing{left: 10}
	clocked(t, dns, domains.Config{}, func(t *testing.T, s *domains.Service, pass func(time.Duration)) {
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		dns.install(s.Records(&dom))
		verify(t, s, dbtest.ID("team"), dom.ID)
		for range 10 {
			pass(time.Hour)
		}
		if status, _ := statuses(t, s, dom.ID); status != domains.Verified || listener.left > 0 {
			t.Errorf("it is %s, and %d more errors would come", status, listener.left)
		}
	}, listener)
}

// failing is an event listener that returns an error the first few times that a domain becomes verified. The field left
// is the number of errors that remain to be returned.
type failing struct{ left int }

func (f *failing) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	for _, e := range all {
		if d, ok := e.Data.(domains.Domain); ok && d.Status == domains.Verified && f.left > 0 {
			f.left--
			return errors.New("our store is away")
		}
	}
	return nil
}

// Each verification request for a domain queries DNS, regardless of earlier results.
func TestVerifyLooksAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := &stubborn{zone: newZone(), failures: 10}
		s, _ := newService(t, d, dns)
		oneKey(t, s)
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		for range 10 {
			before := dns.looks.Load()
			verify(t, s, dbtest.ID("team"), dom.ID)
			testnode.Until(t, "DNS is asked", func() bool { return dns.looks.Load() > before })
		}
		dns.install(s.Records(&dom))
		verify(t, s, dbtest.ID("team"), dom.ID)
		testnode.Until(t, "it is verified", func() bool {
			status, _ := statuses(t, s, dom.ID)
			return status == domains.Verified
		})
	})
}

// If a capability is enabled long after the domain was verified, the capability's records have 72 hours of their own.
func TestACapabilityHasItsOwnTime(t *testing.T) {
	dns := newZone()
	clocked(t, dns, domains.Config{}, func(t *testing.T, s *domains.Service, pass func(time.Duration)) {
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		dns.install(s.Records(&dom))
		verify(t, s, dbtest.ID("team"), dom.ID)
		receiving := func(on bool) {
			t.Helper()
			if err := s.Update(t.Context(), dbtest.ID("team"), dom.ID,
				domains.Change{Capabilities: domains.Capabilities{Receiving: &on}}); err != nil {
				t.Fatal(err)
			}
		}
		is := func(after time.Duration, want, record domains.Status) {
			t.Helper()
			pass(after)
			status, records := statuses(t, s, dom.ID)
			if status != want || records["receiving"] != record {
				t.Errorf("it is %s, and the record of receiving %s; want %s, %s", status, records["receiving"], want, record)
			}
		}
		is(100*time.Hour, domains.Verified, "")
		receiving(true)
		is(0, domains.PartiallyVerified, domains.NotStarted)
		is(25*time.Hour, domains.PartiallyVerified, domains.Pending) // by now, a daily recheck has run
		is(46*time.Hour, domains.PartiallyVerified, domains.Pending)
		is(30*time.Hour, domains.PartiallyFailed, domains.Failed)

		// When a capability is disabled, the states of its records are deleted.
		receiving(false)
		receiving(true)
		is(0, domains.PartiallyVerified, domains.NotStarted)
		verify(t, s, dbtest.ID("team"), dom.ID)
		is(time.Second, domains.PartiallyVerified, domains.Pending)
		receiving(false)
		is(100*time.Hour, domains.Verified, "")
		receiving(true)
		is(25*time.Hour, domains.PartiallyVerified, domains.Pending)

		all, err := s.Get(t.Context(), dbtest.ID("team"), dom.ID)
		if err != nil {
			t.Fatal(err)
		}
		dns.install(s.Records(&all))
		is(40*time.Minute, domains.Verified, domains.Verified) // without a verification request
	})
}

// With TrustDomains, records become verified one second after a request, not earlier.
func TestTrustedDomainsHaveALife(t *testing.T) {
	clocked(t, resolve.Fake{}, domains.Config{TrustDomains: true}, func(t *testing.T, s *domains.Service,
		pass func(time.Duration)) {
		is := func(id string, want domains.Status) {
			t.Helper()
			status, records := statuses(t, s, id)
			for key, r := range records {
				if r != want {
					t.Errorf("of a domain that is %s the record %s is %s", status, key, r)
				}
			}
			_, err := s.Sender(t.Context(), dbtest.ID("team"), "acme.example")
			if maySend := err == nil; status != want || maySend != (want == domains.Verified) {
				t.Errorf("it is %s, want %s; sending: %v", status, want, err)
			}
		}
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		pass(49 * time.Hour)
		is(dom.ID, domains.NotStarted)
		verify(t, s, dbtest.ID("team"), dom.ID)
		is(dom.ID, domains.Pending)
		pass(900 * time.Millisecond)
		is(dom.ID, domains.Pending)
		pass(200 * time.Millisecond)
		is(dom.ID, domains.Verified)

		other, err := s.AddVerified(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "Other.example"})
		again, err2 := s.AddVerified(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "other.example"})
		if err != nil || err2 != nil || other.Status != domains.Verified || again.ID != other.ID {
			t.Errorf("added %+v, %v, and again %+v, %v", other, err, again, err2)
		}
		if _, err := s.AddVerified(t.Context(), dbtest.ID("stranger"),
			domains.NewDomain{Name: "other.example"}); err == nil {
			t.Error("another team has it too")
		}
	})
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _, _ := build(t, d, resolve.Fake{}, domains.Config{})
		if _, err := s.AddVerified(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "acme.example"}); err == nil {
			t.Error("a domain is verified without DNS though domains are not trusted")
		}
	})
}
